"""TM, TG and CM: training memorization, generalisation and counterfactual memorization.

For pair i and run r, p_ir = σ(reward_chosen − reward_rejected). TM_i is the mean of p over the runs that trained on the
pair, TG_i over the runs that trained on nothing of its unit, CM_i = TM_i − TG_i (Feldman & Zhang 2020; Zhang et al. 2023).
CM may be negative and is never clipped. The sigmoid is taken run by run, before the mean.

Matrices have one row a pair and one column a run. Sums run over the columns in their order, so that results do not
depend on the order of rows, on chunks or on threads.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl
from scipy import special, stats

Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

CONFIDENCE = 0.95


def probabilities(reward_chosen: npt.NDArray[np.float32], reward_rejected: npt.NDArray[np.float32]) -> Floats:
    """p = σ(margin): the margin in float32, the sigmoid in float64.

    Examples
    --------
    >>> probabilities(np.float32([2.0]), np.float32([2.0]))
    array([0.5])
    """
    return special.expit((reward_chosen - reward_rejected).astype(np.float64))


@dataclass(frozen=True)
class Membership:
    """Who trained on what.

    Parameters
    ----------
    trained
        Shape (pairs, runs): the run trained on the pair.
    held_out
        Shape (pairs, runs): the run trained on no pair of the unit. Where neither holds, the run trained on other pairs
        of the unit alone and says nothing about this one.
    """

    trained: Mask
    held_out: Mask

    def without(self, run: int) -> "Membership":
        """Leave one run out."""
        return Membership(np.delete(self.trained, run, axis=1), np.delete(self.held_out, run, axis=1))


def membership(unit_id: pl.Series, trained: Mask) -> Membership:
    """Derive who is held out from who is trained on.

    Parameters
    ----------
    unit_id
        Unit of each pair.
    trained
        Shape (pairs, runs).

    Examples
    --------
    >>> membership(pl.Series(["u", "u"]), np.array([[True, False], [False, False]])).held_out
    array([[False,  True],
           [False,  True]])
    """
    _, unit = np.unique(unit_id.to_numpy(), return_inverse=True)
    touched = np.zeros((unit.max() + 1, trained.shape[1]), dtype=bool)
    np.logical_or.at(touched, unit, trained)
    return Membership(trained, ~touched[unit])


def _means(p: Floats, mask: Mask) -> tuple[npt.NDArray[np.int64], Floats, Floats]:
    """Count, mean (NaN for none) and unbiased variance (NaN below two) of each row's masked values, in two passes."""
    n = mask.sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.where(mask, p, 0.0).sum(axis=1) / n
        variance = (np.where(mask, p - mean[:, None], 0.0) ** 2).sum(axis=1) / (n - 1)
    return n, mean, np.where(n > 1, variance, np.nan)


def means(p: Floats, member: Membership) -> tuple[Floats, Floats, Floats]:
    """TM, TG and CM of each pair; NaN where a side has no run."""
    tm, tg = _means(p, member.trained)[1], _means(p, member.held_out)[1]
    return tm, tg, tm - tg


def memorization(p: Floats, member: Membership) -> pl.DataFrame:
    """TM, TG, CM of each pair with the standard error and Welch's interval of CM.

    Parameters
    ----------
    p
        Shape (pairs, runs).
    member
        Of the same shape.

    Returns
    -------
    pl.DataFrame
        n_in, n_out, tm, tg, cm, se, df, low, high, reason; in the order of the rows. CM is null with a reason where a
        side has fewer than two runs, its interval where the standard error is 0. The variances of the two sides are
        never pooled: on memorized pairs they differ most.
    """
    n_in, tm, v_in = _means(p, member.trained)
    n_out, tg, v_out = _means(p, member.held_out)
    with np.errstate(invalid="ignore", divide="ignore"):
        a, b = v_in / n_in, v_out / n_out
        se = np.sqrt(a + b)
        df = (a + b) ** 2 / (a**2 / (n_in - 1) + b**2 / (n_out - 1))
        half = stats.t.ppf(0.5 + CONFIDENCE / 2, df) * se
    cm = np.where((n_in >= 2) & (n_out >= 2), tm - tg, np.nan)  # noqa: PLR2004
    reason = np.select([n_in < 2, n_out < 2, se == 0], ["fewer_than_2_runs_in", "fewer_than_2_runs_out", "zero_standard_error"], "")  # noqa: PLR2004
    columns = {"n_in": n_in, "n_out": n_out, "tm": tm, "tg": tg, "cm": cm, "se": se, "df": df, "low": cm - half, "high": cm + half}
    frame = pl.DataFrame(columns).with_columns(pl.col(pl.Float64).fill_nan(None), reason=pl.Series(reason))
    return frame.with_columns(pl.col("n_in", "n_out").cast(pl.Int64), pl.col("reason").replace("", None))


@dataclass(frozen=True)
class Estimate:
    """A mean over pairs, with a standard error that covers users and runs."""

    value: float
    se: float
    low: float
    high: float


def jackknife_se(leave_one_out: Floats) -> float:
    """Jackknife standard error from the R estimates that leave one run out.

    Examples
    --------
    >>> jackknife_se(np.array([1.0, 2.0, 3.0]))  # the standard error of a mean of values 2 apart
    1.154...
    """
    runs = len(leave_one_out)
    return float(np.sqrt((runs - 1) / runs * ((leave_one_out - leave_one_out.mean()) ** 2).sum()))


def estimate(value: float, cluster_se: float, run_se: float) -> Estimate:
    """Join the two sources of error: variance of a cluster bootstrap by unit plus that of a jackknife by run."""
    se = float(np.hypot(cluster_se, run_se))
    half = float(stats.norm.ppf(0.5 + CONFIDENCE / 2)) * se
    return Estimate(value, se, value - half, value + half)
