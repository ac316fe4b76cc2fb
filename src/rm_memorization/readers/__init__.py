"""The readers: each turns files of one kind into candidate rows, and `pairs.collect` makes pairs of them."""

from collections import Counter
from pathlib import Path

import polars as pl

from ..errors import UserError
from ..sources import Source
from .hh_rlhf import read_hh_rlhf
from .pairs import collect
from .planted import read_planted
from .table import read_table


def read_source(source: Source) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Read a data set.

    Parameters
    ----------
    source
        Its settings.

    Returns
    -------
    pairs, dropped : pl.DataFrame
        Of the contracts `tables.PAIRS` and `tables.DROPPED`; every source row is in exactly one of them.

    Raises
    ------
    UserError
        If a file cannot be read, or no pair is left.

    Examples
    --------
    >>> pairs, dropped = read_source(Source.model_validate({"planted": {"rule_users": 1, "pairs_per_user": 2}}))
    >>> pairs.height, dropped.height
    (74, 0)
    """
    _check_names(source.files)
    if source.planted:
        return collect(read_planted(source.planted), "user")
    if source.hh_rlhf:
        return collect(read_hh_rlhf(source.hh_rlhf), "prompt")
    if source.table:
        return collect(read_table(source.table), source.table.unit)
    raise AssertionError("a Source has a reader")


def _check_names(files: list[str]) -> None:
    """Refuse two files of one name: pairs and ledger name their source rows by it."""
    names = Counter(Path(file).name for file in files)
    for file in files:
        if names[Path(file).name] > 1:
            raise UserError(
                file,
                "another source file has the same name",
                "Rows are named by it",
                hint="rename one, or list it once",
            )
