"""The subset design: which run holds out which unit.

Every unit is held out of exactly `held_out` runs: its *row*. First as many rows are drawn as there are units, so that
rows, runs and pairs of runs are used evenly; then the rows are handed out, heaviest unit first, so that the runs hold out
equal shares of the pairs.
"""

from itertools import combinations
from math import comb

import numpy as np
import numpy.typing as npt
import polars as pl

from .errors import UserError
from .hashing import text_digest

MAX_ROWS = 60_000
REPEATED, TIE = 1e9, 1e-3

Holdout = npt.NDArray[np.bool_]
Rows = npt.NDArray[np.int64]


def design(weights: dict[str, int], runs: int, held_out: int, seed: int) -> dict[str, list[int]]:
    """Hold every unit out of `held_out` of the runs.

    Parameters
    ----------
    weights
        Pairs by unit; their order does not matter.
    runs, held_out
        Size of the design.
    seed
        Decides ties.

    Returns
    -------
    dict
        For each unit the indices of the runs that hold it out, ascending.

    Raises
    ------
    UserError
        If no such design exists, or if there are too few units for every run to hold one out and to train on one.

    Examples
    --------
    >>> held = design({f"u{i}": 1 for i in range(45)}, runs=10, held_out=2, seed=1)
    >>> len({tuple(runs) for runs in held.values()})
    45
    """
    if not 0 < held_out < runs:
        raise UserError("split", f"{runs} runs cannot hold out a unit {held_out} times and train on it too")
    needed = max(2, -(-runs // held_out), -(-runs // (runs - held_out)))
    if len(weights) < needed:
        raise UserError(
            "split",
            f"{len(weights)} units, but {runs} runs with {held_out} held out need {needed}",
            hint="add data, or ask for fewer runs",
        )
    rng = np.random.default_rng(seed)
    rows = _even_rows(runs, held_out, len(weights), rng)
    heaviest_first = sorted(weights, key=lambda unit: (-weights[unit], text_digest(str(seed), unit)))
    return _hand_out(rows, {unit: weights[unit] for unit in heaviest_first}, runs, rng)


def _even_rows(runs: int, held_out: int, count: int, rng: np.random.Generator) -> Rows:
    """Draw rows one after the other: the least used of those that share the fewest runs with all drawn so far.

    Shared runs count by their square, so that one run shared with each of two rows is better than two with one.
    """
    rows = _rows(runs, held_out, rng)
    member = _membership(rows, runs)
    cost = TIE * rng.random(len(rows))
    drawn = []
    for _ in range(count):
        best = int(np.argmin(cost))
        drawn.append(best)
        cost += member[rows[best]].sum(axis=0) ** 2
        cost[best] += REPEATED
    return rows[drawn]


def _hand_out(
    rows: Rows, weights: dict[str, int], runs: int, rng: np.random.Generator
) -> dict[str, list[int]]:
    """Give each unit in turn the row whose runs hold out the fewest pairs so far."""
    distinct, left = np.unique(rows, axis=0, return_counts=True)
    member = _membership(distinct, runs)
    load = TIE * rng.random(len(distinct))
    held: dict[str, list[int]] = {}
    for unit, weight in weights.items():
        best = int(np.argmin(np.where(left > 0, load, np.inf)))
        left[best] -= 1
        load += weight * member[distinct[best]].sum(axis=0)
        held[unit] = distinct[best].tolist()
    return held


def _membership(rows: Rows, runs: int) -> npt.NDArray[np.float64]:
    """Give the runs × rows matrix of which run is in which row."""
    member = np.zeros((runs, len(rows)))
    member[rows.T, np.arange(len(rows))] = 1
    return member


def _rows(runs: int, held_out: int, rng: np.random.Generator) -> Rows:
    """Give all sets of `held_out` runs, or distinct random ones where there are too many."""
    if comb(runs, held_out) <= MAX_ROWS:
        return np.array(list(combinations(range(runs), held_out)))
    drawn = np.sort(rng.permuted(np.tile(np.arange(runs), (MAX_ROWS, 1)), axis=1)[:, :held_out], axis=1)
    return np.unique(drawn, axis=0)


def matrix(held: dict[str, list[int]], runs: int) -> Holdout:
    """Give the units × runs matrix of who is held out, units in sorted order."""
    result = np.zeros((len(held), runs), dtype=bool)
    for index, unit in enumerate(sorted(held)):
        result[index, held[unit]] = True
    return result


def certify(held: dict[str, list[int]], weights: dict[str, int], runs: int) -> pl.DataFrame:
    """Measure a design against what any design could reach.

    Parameters
    ----------
    held
        For each unit the runs that hold it out.
    weights
        Pairs by unit.
    runs
        Number of runs.

    Returns
    -------
    pl.DataFrame
        A table of the certificate contract.
    """
    out = matrix(held, runs)
    weight = np.array([weights[unit] for unit in sorted(held)], dtype=float)
    units = out.sum(axis=0)
    together = (out.T.astype(int) @ out.astype(int))[np.triu_indices(runs, 1)]
    loads = weight @ out
    _, twins = np.unique(out, axis=0, return_counts=True)
    per_run, per_pair = out.sum() / runs, together.sum() / len(together)
    properties: list[tuple[str, float | None, float]] = [
        ("held_out_runs_per_unit_max", None, float(out.sum(axis=1).max())),
        ("held_out_runs_per_unit_min", None, float(out.sum(axis=1).min())),
        ("held_out_units_per_run_max", float(np.ceil(per_run)), float(units.max())),
        ("held_out_units_per_run_min", float(np.floor(per_run)), float(units.min())),
        ("held_out_units_per_run_pair_max", float(np.ceil(per_pair)), float(together.max())),
        ("held_out_units_per_run_pair_min", float(np.floor(per_pair)), float(together.min())),
        ("held_out_pairs_worst_deviation", 0.0, float(np.abs(loads / loads.mean() - 1).max())),
        (
            "units_with_the_same_runs_max",
            float(-(-len(held) // comb(runs, int(out[0].sum())))),
            float(twins.max()),
        ),
    ]
    return pl.DataFrame(properties, schema=["property", "bound", "achieved"], orient="row")
