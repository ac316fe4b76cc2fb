"""The subset design: which run holds out which unit.

Every unit is held out of exactly `held_out` runs. Rows (sets of runs) are chosen one unit after the other, heaviest
first, so that rows, then pairs of runs, then the runs' shares of pairs are used evenly.
"""

from itertools import combinations
from math import comb

import numpy as np
import numpy.typing as npt
import polars as pl

from .errors import UserError
from .hashing import text_digest

MAX_ROWS = 60_000

Holdout = npt.NDArray[np.bool_]


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
        If there are too few units for every run to hold one out and to train on one.

    Examples
    --------
    >>> held = design({f"u{i}": 1 for i in range(45)}, runs=10, held_out=2, seed=1)
    >>> len({tuple(runs) for runs in held.values()})
    45
    """
    needed = max(2, -(-runs // held_out), -(-runs // (runs - held_out)))
    if len(weights) < needed:
        raise UserError("split", f"{len(weights)} units, but {runs} runs with {held_out} held out need {needed}", hint="add data, or ask for fewer runs")
    rng = np.random.default_rng(seed)
    rows = _rows(runs, held_out, rng)
    order = sorted(weights, key=lambda unit: (-weights[unit], text_digest(str(seed), unit)))
    used = np.zeros(len(rows))
    together, load = np.zeros((runs, runs)), np.zeros(runs)
    pairs = list(combinations(range(held_out), 2))
    mean = sum(weights.values()) / len(weights)
    held: dict[str, list[int]] = {}
    for unit in order:
        shared = sum((together[rows[:, a], rows[:, b]] for a, b in pairs), np.zeros(len(rows)))
        cost = 1e6 * used + 1e3 * shared + load[rows].sum(axis=1) / mean + 1e-3 * rng.random(len(rows))
        best = int(np.argmin(cost))
        row = rows[best]
        used[best] += 1
        load[row] += weights[unit]
        together[np.ix_(row, row)] += 1
        held[unit] = [int(run) for run in row]
    return held


def _rows(runs: int, held_out: int, rng: np.random.Generator) -> npt.NDArray[np.int64]:
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
        ("units_with_the_same_runs_max", float(-(-len(held) // comb(runs, int(out[0].sum())))), float(twins.max())),
    ]
    return pl.DataFrame(properties, schema=["property", "bound", "achieved"], orient="row")
