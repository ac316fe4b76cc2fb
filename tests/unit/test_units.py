"""Users that a config names."""

import polars as pl
import pytest

from rm_memorization.errors import UserError
from rm_memorization.units import check_known

UNITS = pl.Series(["Alice", "alice", "bob"])


def test_known_units_pass():
    check_known([], UNITS, "key")
    check_known(["bob", "alice", "Alice"], UNITS, "key")


@pytest.mark.parametrize(
    ("named", "message"),
    [
        (["BOB"], "key: 'BOB' is not a unit of this data set. Hint: did you mean 'bob'?"),
        (
            ["zzz", "yyy"],
            "key: 'yyy' is not a unit of this data set, nor are 1 others that are named. Hint: units",
        ),
    ],
)
def test_an_unknown_unit_is_named(named, message):
    with pytest.raises(UserError) as caught:
        check_known(named, UNITS, "key")
    assert str(caught.value).startswith(message)
