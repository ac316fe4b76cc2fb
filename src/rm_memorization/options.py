"""Command-line options that several stages share."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class DeviceName(StrEnum):
    """What a command can compute on."""

    cpu = "cpu"
    cuda = "cuda"


Record = Annotated[
    Path | None, typer.Option(help="Write a run record here: <experiment>/run_records/<job>.json.")
]
Threads = Annotated[int, typer.Option(min=1, help="CPU threads of torch.")]
Device = Annotated[DeviceName, typer.Option(help="What to compute on.")]
Runs = Annotated[list[str], typer.Option(help="Run id, such as r07; repeat it.")]
RunTables = Annotated[list[Path], typer.Option(help="Table, one for each run in their order; repeat it.")]
Ledgers = Annotated[list[Path], typer.Option(help="Table of dropped rows; repeat it.")]
Pairs = Annotated[Path, typer.Option(help="Table of pairs.")]
Tokens = Annotated[Path, typer.Option(help="Table of token ids.")]
Backbone = Annotated[Path, typer.Option(help="Table of the backbone's files.")]
Panel = Annotated[list[Path], typer.Option(help="Panel file, JSON lines or Parquet; repeat it for several.")]
Resamples = Annotated[int, typer.Option(min=100, help="Bootstrap resamples.")]
Seed = Annotated[int, typer.Option(min=0, help="Random seed.")]
Out = Annotated[Path, typer.Option(help="Table to write.")]
