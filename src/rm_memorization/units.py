"""Units that a config names."""

from difflib import get_close_matches

import polars as pl

from .errors import UserError


def check_known(named: list[str], units: pl.Series, key: str) -> None:
    """Check that the data set has the units that a config names.

    Parameters
    ----------
    named
        As the config has them.
    units
        ``unit_id`` of the tokens.
    key
        The config's key, for the error.

    Raises
    ------
    UserError
        For the first that is unknown, with the nearest that is known.

    Examples
    --------
    >>> check_known(["ALICE"], pl.Series(["Alice", "bob"]), "config: split.exclude_users")
    Traceback (most recent call last):
    ...
    rm_memorization.errors.UserError: config: split.exclude_users: 'ALICE' is not a unit of this data set. Hint: did you \
mean 'Alice'?
    """
    known = {unit.casefold(): unit for unit in units.unique().sort()}
    unknown = sorted(set(named) - set(known.values()) - set(units))
    if unknown:
        near = get_close_matches(unknown[0].casefold(), known, n=1)
        more = f", nor are {len(unknown) - 1} others that are named" if len(unknown) > 1 else ""
        hint = (
            f"did you mean {known[near[0]]!r}?" if near else "units are in the column unit_id of the tokens"
        )
        raise UserError(key, f"{unknown[0]!r} is not a unit of this data set{more}", hint=hint)
