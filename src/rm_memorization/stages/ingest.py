"""ingest: source files become pairs; each row that makes none goes to a ledger with the reason."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import polars as pl
import typer

from .. import artifact, options, tables
from ..readers import read_source
from ..record import recorded
from ..settings import checked
from ..sources import Source
from ..strata import check_strata


def ingest(
    source: Annotated[str, typer.Option(help="The data set: the section `ingest` of the config, as JSON.")],
    pairs: options.Out,
    dropped: options.Out,
    record: options.Record = None,
) -> None:
    """Write the pairs and the ledger, and print how many rows became what."""
    settings = checked(Source, source, "--source")
    with recorded("ingest", record, source=without_folders(settings)):
        kept, refused = read_source(settings)
        check_strata(kept["stratum"].drop_nulls().unique().sort().to_list(), kept["source_file"][0])
        artifact.write(kept, tables.PAIRS, pairs)
        artifact.write(refused, tables.DROPPED, dropped)
    for line in count_lines(kept, refused):
        typer.echo(line)


def without_folders(source: Source) -> dict[str, Any]:
    """Give the settings with bare file names, as a run record holds them."""
    settings: dict[str, Any] = source.model_dump(mode="json", exclude_none=True)
    for reader in settings.values():
        if "files" in reader:
            reader["files"] = [Path(file).name for file in reader["files"]]
    return settings


def count_lines(pairs: pl.DataFrame, dropped: pl.DataFrame) -> Iterator[str]:
    r"""Count the rows that were read, kept and refused.

    Examples
    --------
    >>> pairs = pl.DataFrame({"unit_id": ["u1", "u1", "u2"]})
    >>> print(*count_lines(pairs, pl.DataFrame({"reason": ["duplicate"]})), sep="\n")
    rows read                            4
    pairs kept                           3
    units kept                           2
    rows dropped                         1
      duplicate                          1
    """
    counts = [
        ("rows read", pairs.height + dropped.height),
        ("pairs kept", pairs.height),
        ("units kept", pairs["unit_id"].n_unique()),
        ("rows dropped", dropped.height),
        *(
            (f"  {reason}", count)
            for reason, count in dropped.group_by("reason").len().sort("reason").iter_rows()
        ),
    ]
    return (f"{label:<30} {count:>7}" for label, count in counts)
