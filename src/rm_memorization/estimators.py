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
FEWEST_RUNS = 2  # on either side, for a variance


def probabilities(reward_chosen: npt.NDArray[np.float32], reward_rejected: npt.NDArray[np.float32]) -> Floats:
    """Give σ(margin): the margin in float32, the sigmoid in float64.

    Examples
    --------
    >>> probabilities(np.float32([2.0]), np.float32([2.0]))
    array([0.5])
    """
    return np.asarray(special.expit((reward_chosen - reward_rejected).astype(np.float64)))


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
    """Count, mean (NaN for none) and unbiased variance (NaN below two) of each row's masked values.

    Two passes over deviations from one of the row's own values: equal values have a variance of exactly 0.
    """
    n = mask.sum(axis=1)
    origin = np.take_along_axis(p, mask.argmax(axis=1)[:, None], axis=1)
    deviation = p - origin
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.where(mask, deviation, 0.0).sum(axis=1, keepdims=True) / n[:, None]
        variance = (np.where(mask, deviation - mean, 0.0) ** 2).sum(axis=1) / (n - 1)
    return n, (origin + mean)[:, 0], np.where(n > 1, variance, np.nan)


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
    cm = np.where((n_in >= FEWEST_RUNS) & (n_out >= FEWEST_RUNS), tm - tg, np.nan)
    reasons = ["fewer_than_2_runs_in", "fewer_than_2_runs_out", "zero_standard_error"]
    reason = np.select([n_in < FEWEST_RUNS, n_out < FEWEST_RUNS, se == 0], reasons, "")
    columns = {
        "n_in": n_in,
        "n_out": n_out,
        "tm": tm,
        "tg": tg,
        "cm": cm,
        "se": se,
        "df": df,
        "low": cm - half,
        "high": cm + half,
    }
    frame = pl.DataFrame(columns).with_columns(pl.col(pl.Float64).fill_nan(None), reason=pl.Series(reason))
    return frame.with_columns(pl.col("n_in", "n_out").cast(pl.Int64), pl.col("reason").replace("", None))


def sums_by_unit(unit: npt.NDArray[np.int64], values: Floats, units: int) -> Floats:
    """Sum rows by unit, in their order: polars adds up the rows of a group in an order that threads decide.

    Parameters
    ----------
    unit
        Number of each row's unit.
    values
        Shape (rows, columns).
    units
        How many units there are.

    Returns
    -------
    ndarray
        Shape (units, columns); 0 for a unit without rows.

    Examples
    --------
    >>> sums_by_unit(np.array([1, 0, 1]), np.array([[1.0], [2.0], [4.0]]), 3)
    array([[2.],
           [5.],
           [0.]])
    """
    sums = np.zeros((units, values.shape[1]))
    np.add.at(sums, unit, values)
    return sums


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
