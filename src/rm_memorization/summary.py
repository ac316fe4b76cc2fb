"""What the whole experiment and each stratum say: means over pairs, and differences between strata.

A standard error joins two sources of error: units drawn anew, each with all its pairs (a cluster bootstrap), and runs
left out one by one (a jackknife).
"""

from dataclasses import dataclass
from itertools import combinations

import numpy as np
import polars as pl

from . import tables
from .estimators import Floats, Mask, Membership, estimate, jackknife_se, means, sums_by_unit
from .resampling import replicates
from .strata import ALL, check_strata

METRICS = ("tm", "tg", "cm")
ROUNDING = 1e-12
Row = dict[str, object]


def summarise(pairs: pl.DataFrame, p: Floats, member: Membership, resamples: int, seed: int) -> pl.DataFrame:
    """Mean TM, TG, CM of all pairs and of each stratum, and the strata's differences in CM.

    Parameters
    ----------
    pairs
        pair_id, unit_id, stratum, tm, tg, cm of each row of `p`; pairs without a CM are left out of every mean.
    p, member
        Shape (pairs, runs).
    resamples, seed
        Of the bootstrap by unit.

    Returns
    -------
    pl.DataFrame
        The columns of the summary contract. What is undefined is null, with a reason: ``no_pairs`` (none has a CM),
        ``one_unit``, ``undefined_resamples`` (a resample drew no unit of one of two strata that share units) or
        ``zero_standard_error``.

    Raises
    ------
    UserError
        If a stratum's name is taken: by all pairs together, or by a difference of two others.
    """
    strata = pairs["stratum"].drop_nulls().unique().sort().to_list()
    check_strata(strata, "pairs")
    bootstrap = _Bootstrap(resamples, seed)
    groups = _groups(pairs, p, member, strata, bootstrap)
    rows = [_row(group.name, metric, (group,), *group.of(metric)) for group in groups for metric in METRICS]
    rows += [_difference(a, b, bootstrap) for a, b in combinations(groups[1:], 2)]
    return _table(rows)


@dataclass(frozen=True)
class _Bootstrap:
    """The cluster bootstrap by unit."""

    resamples: int
    seed: int

    def se(self, *sums: Floats) -> Floats:
        """Give the standard error of each metric's mean; of two groups' difference where two are given.

        Parameters
        ----------
        *sums
            Of one group or of two, see `_Group`, units in the same rows; NaN where a resample has no pair of a group.
        """

        def statistic(drawn: Floats) -> Floats:
            totals = [drawn @ each for each in sums]
            with np.errstate(invalid="ignore"):
                found = [each[:, 1:] / each[:, :1] for each in totals]
            return np.asarray(found[0] - found[1] if len(found) > 1 else found[0])

        return np.asarray(replicates(statistic, len(sums[0]), self.resamples, self.seed).std(axis=0, ddof=1))


@dataclass(frozen=True)
class _Group:
    """The pairs of a stratum that have a CM; there may be none.

    Parameters
    ----------
    name
        The stratum, or `all`.
    sums
        Shape (units, 1 + metrics): number of pairs and sum of each metric of every unit; 0 where it has no pair here.
    cluster_se
        Of each metric's mean, units drawn anew.
    without_run
        Shape (runs, metrics): the means that leave one run out.
    """

    name: str
    sums: Floats
    cluster_se: Floats
    without_run: Floats

    @property
    def has(self) -> Mask:
        """Which units have a pair here."""
        return self.sums[:, 0] > 0

    @property
    def pairs(self) -> int:
        """Number of pairs."""
        return int(self.sums[:, 0].sum())

    def of(self, metric: str) -> tuple[float, float, Floats]:
        """Mean of a metric, its error by units, and the means that leave one run out."""
        at = METRICS.index(metric)
        return self.sums[:, 1 + at].sum() / max(1, self.pairs), self.cluster_se[at], self.without_run[:, at]


def _groups(
    pairs: pl.DataFrame, p: Floats, member: Membership, strata: list[str], bootstrap: _Bootstrap
) -> list[_Group]:
    """Give `all` and the strata; sums run in the order of the pair ids, whatever the order of the rows."""
    order = np.argsort(pairs["pair_id"].to_numpy(), kind="stable")
    order = order[pairs["cm"].is_not_null().to_numpy()[order]]
    pairs, p, member = pairs[order], p[order], Membership(member.trained[order], member.held_out[order])
    names, unit = np.unique(pairs["unit_id"].to_numpy(), return_inverse=True)
    values = np.column_stack([np.ones(len(p)), pairs.select(METRICS).to_numpy()])
    left_out = np.array([means(np.delete(p, run, axis=1), member.without(run)) for run in range(p.shape[1])])
    groups = []
    for name in (ALL, *strata):
        rows = (
            np.full(len(p), fill_value=True) if name == ALL else pairs["stratum"].eq_missing(name).to_numpy()
        )
        sums = sums_by_unit(unit[rows], values[rows], len(names))
        own = sums[sums[:, 0] > 0]
        cluster_se = bootstrap.se(own) if len(own) else np.full(len(METRICS), np.nan)
        groups.append(_Group(name, sums, cluster_se, left_out[:, :, rows].sum(axis=2) / max(1, rows.sum())))
    return groups


def _difference(a: _Group, b: _Group, bootstrap: _Bootstrap) -> Row:
    """Give the row of CM of one stratum minus that of another. They share the runs, and may share units."""
    (first, a_se, a_runs), (second, b_se, b_runs) = a.of("cm"), b.of("cm")
    cluster_se = float(np.hypot(a_se, b_se))
    if (a.has & b.has).any():  # their units must be drawn together then
        either = a.has | b.has
        cluster_se = bootstrap.se(a.sums[either], b.sums[either])[METRICS.index("cm")]
    return _row(f"{a.name} - {b.name}", "cm", (a, b), first - second, cluster_se, a_runs - b_runs)


def _row(
    stratum: str,
    metric: str,
    groups: tuple[_Group, ...],
    value: float,
    cluster_se: float,
    without_run: Floats,
) -> Row:
    """Give a row of the summary; what is undefined is null, with a reason."""
    result = estimate(value, cluster_se, jackknife_se(without_run))
    reason = _why_undefined(groups, result.se)
    row: Row = {"stratum": stratum, "metric": metric, "reason": reason}
    row |= {
        "pairs": sum(group.pairs for group in groups),
        "units": int(np.any([group.has for group in groups], axis=0).sum()),
    }
    row |= {"estimate": None if reason == "no_pairs" else result.value}
    return row if reason else row | {"se": result.se, "low": result.low, "high": result.high}


def _why_undefined(groups: tuple[_Group, ...], se: float) -> str | None:
    units = min(int(group.has.sum()) for group in groups)
    if units <= 1:
        return "one_unit" if units else "no_pairs"
    if np.isnan(se):
        return "undefined_resamples"
    return "zero_standard_error" if se <= ROUNDING else None


def counts(memorization: pl.DataFrame, dropped: pl.DataFrame) -> pl.DataFrame:
    """How many pairs there are, how many have no CM and why, how many were dropped and why.

    Parameters
    ----------
    memorization
        Of the memorization contract.
    dropped
        All ledgers, one under the other.

    Returns
    -------
    pl.DataFrame
        The columns of the summary contract; the reason ``count`` says why there is no error.
    """
    pairs, units = memorization.height, memorization["unit_id"].n_unique()
    without = memorization.filter(pl.col("cm").is_null())
    found = {"pairs": pairs, "units": units}
    for name, frame in (("without_cm", without), ("dropped", dropped)):
        found |= {
            f"{name}:{reason}": count
            for reason, count in frame.group_by("reason").len().sort("reason").iter_rows()
        }
    shared = {"stratum": ALL, "pairs": pairs, "units": units, "reason": "count"}
    return _table([{**shared, "metric": metric, "estimate": float(count)} for metric, count in found.items()])


def _table(rows: list[Row]) -> pl.DataFrame:
    return pl.DataFrame(
        rows, schema={name: column.dtype.type for name, column in tables.SUMMARY.columns.items()}
    )
