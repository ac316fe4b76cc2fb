"""The columns that tables are made of."""

from typing import Any

import polars as pl
from pandera.polars import Check, Column

MESSAGES = pl.List(pl.Struct({"role": pl.String, "content": pl.String}))
TOKENS = pl.List(pl.Int32)

NOT_EMPTY = Check.str_length(min_value=1)
FINITE = Check(
    lambda data: data.lazyframe.select(pl.col(data.key).is_finite()), name="finite", error="finite"
)
PROBABILITY = Check.in_range(0.0, 1.0)
COUNT = Check.ge(0)


def identifier(description: str) -> Column:
    """Give a column of text that is never empty."""
    return Column(pl.String, NOT_EMPTY, description=description)


def text(description: str, *, nullable: bool = False) -> Column:
    """Give a column of any text."""
    return Column(pl.String, nullable=nullable, description=description)


def whole(description: str) -> Column:
    """Give a column of whole numbers from 0."""
    return Column(pl.Int64, COUNT, description=description)


def real(description: str, *checks: Check, nullable: bool = True, dtype: Any = pl.Float64) -> Column:
    """Give a column of finite numbers; an unknown value is null, never NaN."""
    return Column(dtype, [FINITE, *checks], nullable=nullable, description=description)


PAIR_ID = identifier("digest of unit, prompt and both replies: a pair keeps its name wherever it stands")
UNIT_ID = identifier("what is held out as a whole: the user, or the prompt where a data set has no users")
USER_ID = text("the annotator; null where the data set has none", nullable=True)
RUN = identifier("a training run, such as r07")
TOKEN_HASH = identifier("digest of the pair's token ids")
REASON = text("why the value is null", nullable=True)


def positive(description: str) -> Column:
    """Give a column of whole numbers from 1."""
    return Column(pl.Int64, Check.ge(1), description=description)


def one_of(values: list[str], description: str) -> Column:
    """Give a column of text that takes one of a few values."""
    return Column(pl.String, Check.isin(values), description=description)
