"""audit_factorial: correctness against verbosity, 2×2."""

from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from .. import artifact, options, tables
from ..panels import ALL, CELLS, PanelRewards, audit_rows, audit_table, read_panel_rewards
from ..record import recorded
from ..resampling import Array, cluster_bootstrap, means

PANEL = "factorial"


def audit_factorial(
    panel_scores: options.RunTables,
    run: options.Runs,
    audit: options.Out,
    resamples: options.Resamples,
    seed: options.Seed,
    record: options.Record = None,
) -> None:
    """Write the 2×2 audit."""
    with recorded("audit_factorial", record, runs=run, resamples=resamples, seed=seed):
        rewards = read_panel_rewards(panel_scores, run, PANEL)
        artifact.write(factorial(rewards, resamples, seed), tables.AUDIT, audit)


def factorial(panel: PanelRewards, resamples: int, seed: int) -> pl.DataFrame:
    """Estimate how correctness and wordiness move the reward, for each run and for the mean of the runs.

    Parameters
    ----------
    panel
        Rewards of four answers a prompt: correct or incorrect, concise or expanded.
    resamples, seed
        Of the bootstrap over prompts.

    Returns
    -------
    DataFrame
        Contract ``audit``. Metrics are means over prompts of the contrasts and shares of `contrasts`, and the mean
        reward of each cell. Strata are those of the panel and, if there are several, `all`.
    """
    cells = panel.cells(CELLS[PANEL])
    strata = panel.answers["stratum"].gather(cells[0]).to_numpy()
    rows = []
    for run, rewards in panel.rewards.items():
        metrics = contrasts(*(rewards[answers] for answers in cells))
        for stratum, members in _groups(strata).items():
            values = np.column_stack([values[members] for values in metrics.values()])
            estimates = cluster_bootstrap(means(values), len(values), resamples, seed)
            rows += audit_rows(
                run, stratum, dict(zip(metrics, estimates, strict=True)), len(values), len(values)
            )
    return audit_table(rows)


def contrasts(cc: NDArray[Any], ce: NDArray[Any], ic: NDArray[Any], ie: NDArray[Any]) -> dict[str, Array]:
    """Contrast the four answers to each prompt.

    Parameters
    ----------
    cc, ce, ic, ie : ndarray, shape (prompts,)
        Rewards of the correct concise, correct expanded, incorrect concise and incorrect expanded answers. They are
        subtracted in their own type; everything after is float64.

    Returns
    -------
    dict of ndarray, shape (prompts,), float64
        correctness = ((cc + ce) − (ic + ie)) / 2; expansion = ((ce + ie) − (cc + ic)) / 2;
        interaction = (ce − ie) − (cc − ic); correctness_when_concise = cc − ic; trap = cc − ie, whether a short right
        answer beats a long wrong one, with share_trap_won where it is above zero and share_tied where it is zero; and
        each cell's reward less the mean of the prompt's four, as rewards are only defined up to a shift.

    Examples
    --------
    >>> one = {name: float(values[0]) for name, values in contrasts(*np.array([[4.0], [5.0], [1.0], [3.0]])).items()}
    >>> one["correctness"], one["expansion"], one["interaction"], one["trap"]
    (2.5, 1.5, -1.0, 1.0)
    """
    concise, expanded, trap = _minus(cc, ic), _minus(ce, ie), _minus(cc, ie)
    return {
        "correctness": (concise + expanded) / 2,
        "expansion": (_minus(ce, cc) + _minus(ie, ic)) / 2,
        "interaction": expanded - concise,
        "correctness_when_concise": concise,
        "trap": trap,
        "share_trap_won": (trap > 0).astype(np.float64),
        "share_tied": (trap == 0).astype(np.float64),
        **_centred(np.stack([cc, ce, ic, ie])),
    }


def _minus(a: NDArray[Any], b: NDArray[Any]) -> Array:
    difference: NDArray[Any] = a - b
    return difference.astype(np.float64)


def _centred(cells: NDArray[Any]) -> dict[str, Array]:
    deviations = cells - cells.mean(axis=0, dtype=np.float64)
    return {f"mean_reward_{cell}": values for cell, values in zip(CELLS[PANEL], deviations, strict=True)}


def _groups(strata: NDArray[Any]) -> dict[str, NDArray[np.bool_]]:
    """Give the prompts of `all` and, if there are several strata, of each."""
    names = sorted(set(strata))
    apart = {str(name): strata == name for name in names} if len(names) > 1 else {}
    return {ALL: np.ones(len(strata), dtype=np.bool_), **apart}
