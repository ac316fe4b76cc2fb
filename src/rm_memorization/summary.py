"""What the whole experiment and each stratum say: means over pairs, and differences between strata."""

from itertools import combinations

import numpy as np
import numpy.typing as npt
import polars as pl

from .estimators import Floats, Membership, estimate, jackknife_se, means

METRICS = ("tm", "tg", "cm")
ALL = "all"


def summarise(pairs: pl.DataFrame, p: Floats, member: Membership, resamples: int, seed: int) -> pl.DataFrame:
    """Mean TM, TG, CM of all pairs and of each stratum, and the strata's differences in CM.

    Parameters
    ----------
    pairs
        unit_id, stratum, tm, tg, cm of each row of `p`; pairs without a CM are left out of every mean.
    p, member
        Shape (pairs, runs).
    resamples, seed
        Of the bootstrap by unit.

    Returns
    -------
    pl.DataFrame
        A table of the summary contract.
    """
    known = pairs["cm"].is_not_null().to_numpy()
    pairs, p, member = pairs.filter(known), p[known], Membership(member.trained[known], member.held_out[known])
    left_out = [means(np.delete(p, run, axis=1), member.without(run)) for run in range(p.shape[1])]
    strata = [ALL, *pairs["stratum"].drop_nulls().unique().sort()]
    groups = {name: _Group(pairs, left_out, name, resamples, seed) for name in strata}
    rows = [group.row(metric) for group in groups.values() for metric in METRICS]
    rows += [_difference(groups[a], groups[b]) for a, b in combinations(strata[1:], 2)]
    return pl.DataFrame(rows, schema_overrides={"reason": pl.String})


class _Group:
    """The pairs of a stratum, with each metric's mean, its bootstrap by unit and its jackknife by run."""

    def __init__(self, pairs: pl.DataFrame, left_out: list[tuple[Floats, ...]], name: str, resamples: int, seed: int) -> None:
        self.name = name
        chosen = np.ones(pairs.height, dtype=bool) if name == ALL else (pairs["stratum"] == name).fill_null(value=False).to_numpy()
        self.pairs = pairs.filter(chosen).sort("unit_id", maintain_order=True)
        self.units = self.pairs["unit_id"].n_unique()
        self.value = {metric: float(self.pairs[metric].mean() or 0.0) for metric in METRICS}  # type: ignore[arg-type]
        self.cluster_se = dict(zip(METRICS, self._bootstrap(resamples, seed), strict=True))
        self.without_run = {metric: np.array([np.nanmean(run[index][chosen]) for run in left_out]) for index, metric in enumerate(METRICS)}

    def _bootstrap(self, resamples: int, seed: int) -> npt.NDArray[np.float64]:
        """Standard deviation of each metric's mean when units are drawn anew."""
        sums = self.pairs.group_by("unit_id", maintain_order=True).agg(pl.len(), pl.col(METRICS).sum())
        counts = np.random.default_rng(seed).multinomial(self.units, np.full(self.units, 1 / self.units), size=resamples)
        totals = counts @ sums.select(METRICS).to_numpy()
        return np.asarray((totals / (counts @ sums["len"].to_numpy())[:, None]).std(axis=0, ddof=1))

    def row(self, metric: str) -> dict[str, object]:
        result = estimate(self.value[metric], float(self.cluster_se[metric]), jackknife_se(self.without_run[metric]))
        return _row(self.name, metric, result.value, result.se, result.low, result.high, self.pairs.height, self.units, self.units)


def _difference(a: _Group, b: _Group) -> dict[str, object]:
    """CM of one stratum minus that of another; units are drawn apart, runs are shared."""
    cluster = float(np.hypot(a.cluster_se["cm"], b.cluster_se["cm"]))
    result = estimate(a.value["cm"] - b.value["cm"], cluster, jackknife_se(a.without_run["cm"] - b.without_run["cm"]))
    units, fewest = a.units + b.units, min(a.units, b.units)
    return _row(f"{a.name} - {b.name}", "cm", result.value, result.se, result.low, result.high, a.pairs.height + b.pairs.height, units, fewest)


def _row(stratum: str, metric: str, value: float, se: float, low: float, high: float, pairs: int, units: int, fewest: int) -> dict[str, object]:
    """Give a row; one unit alone has no interval."""
    row: dict[str, object] = {"stratum": stratum, "metric": metric, "estimate": value, "se": se, "low": low, "high": high}
    row |= {"pairs": pairs, "units": units, "reason": None}
    return row if fewest > 1 else row | {"se": None, "low": None, "high": None, "reason": "one_unit"}


def counts(memorization: pl.DataFrame, dropped: pl.DataFrame) -> pl.DataFrame:
    """How many pairs there are, how many have no CM and why, how many were dropped and why.

    Parameters
    ----------
    memorization
        Of the memorization contract.
    dropped
        All ledgers, one under the other.
    """
    rows = [("pairs", memorization.height), ("units", memorization["unit_id"].n_unique())]
    without = memorization.filter(pl.col("cm").is_null()).group_by("reason").len().sort("reason")
    rows += [(f"without_cm:{reason}", count) for reason, count in without.iter_rows()]
    rows += [(f"dropped:{reason}", count) for reason, count in dropped.group_by("reason").len().sort("reason").iter_rows()]
    frame = pl.DataFrame(rows, schema=["metric", "estimate"], orient="row").with_columns(pl.col("estimate").cast(pl.Float64))
    empty = {name: pl.lit(None, dtype=pl.Float64) for name in ("se", "low", "high")}
    return frame.with_columns(
        stratum=pl.lit(ALL), **empty, reason=pl.lit("count"),
        pairs=pl.lit(memorization.height, dtype=pl.Int64), units=pl.lit(memorization["unit_id"].n_unique(), dtype=pl.Int64),
    )  # fmt: skip
