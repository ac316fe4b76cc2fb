"""The bootstrap over clusters: prompts or users are drawn again, each with all that belongs to it.

A resample is a vector of multiplicities, how often each cluster was drawn. A statistic maps multiplicities to values;
most need only sums per cluster, so that no row is ever copied.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Statistic = Callable[[Array], Array]
"""Multiplicities (resamples, clusters) → values (resamples, metrics), NaN where a value is undefined."""

TAILS = (0.025, 0.975)
CHUNK = 2**22
ROUNDING = 1e-12


@dataclass(frozen=True)
class Estimate:
    """A value with its 95 % interval.

    Parameters
    ----------
    estimate
        The value; null where it is undefined.
    low, high
        Ends of the interval; null where there is none.
    reason
        Why something is null: ``undefined`` (the value), ``one_cluster`` (nothing to draw from),
        ``undefined_resamples`` (some resample has no value) or ``no_variation`` (every resample gives the same value,
        which says nothing about how far off it is).
    """

    estimate: float | None
    low: float | None
    high: float | None
    reason: str | None


def point_estimates(statistic: Statistic, clusters: int) -> list[Estimate]:
    """Evaluate a statistic on the data themselves, without intervals.

    Parameters
    ----------
    statistic
        Multiplicities → values.
    clusters
        Number of clusters.
    """
    (values,) = statistic(np.ones((1, clusters)))
    return [_point(float(value)) for value in values]


def cluster_bootstrap(statistic: Statistic, clusters: int, resamples: int, seed: int) -> list[Estimate]:
    """Evaluate a statistic and its percentile intervals, the clusters drawn with replacement.

    Parameters
    ----------
    statistic
        Multiplicities → values.
    clusters
        Number of clusters; their order must follow from the data, not from how the rows happen to stand.
    resamples
        Number of resamples. Every metric sees the same ones, and so does every call with equal clusters and seed.
    seed
        Seed of the draws.

    Returns
    -------
    list of Estimate
        One a metric.

    Notes
    -----
    Percentile interval of Efron and Tibshirani (1993), section 13.3, between the 2.5 and the 97.5 % quantile.

    Examples
    --------
    >>> cluster_bootstrap(means(np.array([[1.0], [2.0], [6.0]])), clusters=3, resamples=1000, seed=1)
    [Estimate(estimate=3.0, low=1.0, high=6.0, reason=None)]
    """
    points = point_estimates(statistic, clusters)
    if clusters < 2:  # noqa: PLR2004
        return [Estimate(point.estimate, None, None, point.reason or "one_cluster") for point in points]
    drawn = replicates(statistic, clusters, resamples, seed)
    return [_with_interval(point, values) for point, values in zip(points, drawn.T, strict=True)]


def replicates(statistic: Statistic, clusters: int, resamples: int, seed: int) -> Array:
    """Evaluate a statistic on every resample.

    Returns
    -------
    ndarray, shape (resamples, metrics), float64
    """
    return np.concatenate([statistic(chunk) for chunk in _multiplicities(clusters, resamples, seed)])


def means(values: Array) -> Statistic:
    """Give the means over clusters of values that each cluster has once.

    Parameters
    ----------
    values : ndarray, shape (clusters, metrics)
    """
    return lambda drawn: (drawn @ values) / drawn.sum(axis=1, keepdims=True)


def _multiplicities(clusters: int, resamples: int, seed: int) -> Iterator[Array]:
    """Yield how often each cluster is drawn, in chunks that fit into memory; chunks do not change the draws."""
    rng = np.random.default_rng(seed)
    size = max(1, CHUNK // clusters)
    for start in range(0, resamples, size):
        draws = (rng.integers(clusters, size=clusters) for _ in range(min(size, resamples - start)))
        yield np.stack([np.bincount(draw, minlength=clusters) for draw in draws]).astype(np.float64)


def _point(value: float) -> Estimate:
    return Estimate(None, None, None, "undefined") if np.isnan(value) else Estimate(value, None, None, None)


def _with_interval(point: Estimate, values: Array) -> Estimate:
    reason = point.reason or _why_no_interval(values)
    if reason:
        return Estimate(point.estimate, None, None, reason)
    low, high = np.quantile(values, TAILS)
    return Estimate(point.estimate, float(low), float(high), None)


def _why_no_interval(values: Array) -> str | None:
    if np.isnan(values).any():
        return "undefined_resamples"
    return "no_variation" if np.ptp(values) <= ROUNDING * np.abs(values).max() else None
