"""manifest: what one run trains on, its own overrides applied."""

from pathlib import Path
from typing import Annotated

import polars as pl
import typer

from .. import artifact, options, tables
from ..errors import UserError
from ..record import recorded
from ..units import check_known

KEY = "config: manifest.overrides"


def manifest(
    assignment: Annotated[Path, typer.Option(help="What the design includes in this run.")],
    tokens: options.Tokens,
    manifest: options.Out,
    exclude_user: Annotated[
        list[str] | None, typer.Option(help="Unit that this run does not train on; repeat it.")
    ] = None,
    record: options.Record = None,
) -> None:
    """Write the run's manifest."""
    excluded = exclude_user or []
    with recorded("manifest", record, exclude_users=excluded):
        included = artifact.read(assignment, tables.ASSIGNMENT)
        check_known(excluded, artifact.read(tokens, tables.TOKENIZED, ["unit_id"])["unit_id"], KEY)
        artifact.write(without_units(included, excluded, str(assignment)), tables.MANIFEST, manifest)


def without_units(included: pl.DataFrame, excluded: list[str], where: str) -> pl.DataFrame:
    """Take units out of an assignment.

    Parameters
    ----------
    included
        An assignment.
    excluded
        Units; one that the design holds out of this run anyway, or that is withdrawn, is not in it.
    where
        Named in errors.

    Raises
    ------
    UserError
        If nothing is left.
    """
    left = included.filter(~pl.col("unit_id").is_in(excluded))
    if left.is_empty():
        raise UserError(
            where, "no pair is left to train on", hint="exclude fewer users, or ask for fewer runs"
        )
    return left
