"""Names of strata, which must not be taken for anything else in the summary."""

from collections import Counter
from itertools import combinations

from .errors import UserError

ALL = "all"


def check_strata(strata: list[str], where: str) -> None:
    """Check that every stratum and every difference of two has a name of its own.

    Parameters
    ----------
    strata
        Distinct names, sorted.
    where
        Named in the error.

    Raises
    ------
    UserError
        If a stratum is called ``all``, or like the difference of two others.

    Examples
    --------
    >>> check_strata(["a", "a - b", "b"], "pairs.csv")
    Traceback (most recent call last):
    ...
    rm_memorization.errors.UserError: pairs.csv: column 'stratum': the name 'a - b' would stand for 2 things in the \
summary. 'all' means all pairs together, 'a - b' a difference of two strata. Hint: rename the stratum in the source
    """
    differences = [f"{a} - {b}" for a, b in combinations(strata, 2)]
    for name, times in Counter([ALL, *strata, *differences]).items():
        if times > 1:
            raise UserError(
                where,
                f"column 'stratum': the name {name!r} would stand for {times} things in the summary",
                f"{ALL!r} means all pairs together, 'a - b' a difference of two strata",
                "rename the stratum in the source",
            )
