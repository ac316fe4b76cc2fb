"""split: the design and, for each run, the pairs that it includes."""

from pathlib import Path
from typing import Annotated

import polars as pl
import typer

from .. import artifact, options, tables
from ..design import certify
from ..design import design as make_design
from ..errors import UserError
from ..record import recorded
from ..units import check_known


def split(
    tokens: options.Tokens,
    run: options.Runs,
    assignment: options.RunTables,
    design: Annotated[Path, typer.Option(help="Table of the design to write.")],
    certificate: Annotated[Path, typer.Option(help="Table of the certificate to write.")],
    held_out: Annotated[int, typer.Option(min=1, help="Runs that each unit is held out of.")],
    seed: options.Seed,
    exclude_user: Annotated[list[str] | None, typer.Option(help="Withdrawn unit; repeat it.")] = None,
    record: options.Record = None,
) -> None:
    """Write the design, its certificate and the assignments."""
    excluded = exclude_user or []
    if len(run) != len(assignment):
        raise UserError(
            "--assignment", f"{len(assignment)} tables for {len(run)} runs", hint="name one for each --run"
        )
    with recorded("split", record, runs=run, held_out=held_out, seed=seed, exclude_users=excluded):
        frame = artifact.read(tokens, tables.TOKENIZED, ["pair_id", "unit_id", "token_hash"])
        weights = dict(frame.group_by("unit_id").len().sort("unit_id").iter_rows())
        check_known(excluded, frame["unit_id"], "config: split.exclude_users")
        held = make_design(weights, len(run), held_out, seed)
        artifact.write(_design_table(held, weights, run), tables.DESIGN, design)
        artifact.write(certify(held, weights, len(run)), tables.CERTIFICATE, certificate)
        withdrawn = set(excluded)
        for index, path in enumerate(assignment):
            included = [unit for unit, runs in held.items() if index not in runs and unit not in withdrawn]
            artifact.write(frame.filter(pl.col("unit_id").is_in(included)), tables.ASSIGNMENT, path)


def _design_table(held: dict[str, list[int]], weights: dict[str, int], runs: list[str]) -> pl.DataFrame:
    rows = [(unit, runs[index], weights[unit]) for unit, indices in held.items() for index in indices]
    return pl.DataFrame(rows, schema=["unit_id", "held_out", "pairs"], orient="row")
