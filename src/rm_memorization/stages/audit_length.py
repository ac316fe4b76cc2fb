"""audit_length: reward against length, on the panel and on the experiment's own pairs."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from .. import artifact, options, tables
from ..errors import UserError
from ..hashing import canonical_json, text_digest
from ..panels import (
    ALL,
    PanelRewards,
    audit_rows,
    audit_table,
    by_run,
    check_same,
    read_panel_rewards,
    with_mean,
)
from ..record import recorded
from ..resampling import ROUNDING, Array, Estimate, Statistic, cluster_bootstrap, point_estimates

Codes = NDArray[np.int64]
VIEWS = ("pooled", "within_prompt")
MEASURES = ("pearson", "slope_per_100_tokens", "spearman")
METRICS = tuple(f"{view}_{measure}" for view in VIEWS for measure in MEASURES)


def audit_length(
    panel_scores: options.RunTables,
    scores: options.RunTables,
    run: options.Runs,
    pairs: options.Pairs,
    tokens: options.Tokens,
    audit: options.Out,
    resamples: options.Resamples,
    seed: options.Seed,
    record: options.Record = None,
) -> None:
    """Write the length audit."""
    with recorded("audit_length", record, runs=run, resamples=resamples, seed=seed):
        panel = read_panel_rewards(panel_scores, run, "length")
        replies = read_replies(pairs, tokens, by_run(run, scores, "scores"))
        rows = [*panel_rows(panel, resamples, seed), *pair_rows(replies, resamples, seed)]
        artifact.write(audit_table(rows), tables.AUDIT, audit)


@dataclass(frozen=True)
class Replies:
    """The replies of all pairs: first the chosen ones, then the rejected ones.

    Parameters
    ----------
    prompts : ndarray, shape (replies,)
        Number of the prompt, from 0, in the order of the prompts' digests.
    tokens : ndarray, shape (replies,)
        Tokens of the reply alone.
    rewards : dict of ndarray, shape (replies,)
        By run and under `all`.
    """

    prompts: Codes
    tokens: Codes
    rewards: dict[str, NDArray[Any]]


def read_replies(pairs: Path, tokens: Path, scores: dict[str, Path]) -> Replies:
    """Read every reply's prompt, length and rewards.

    Raises
    ------
    UserError
        If a run did not score exactly the pairs of `tokens`, or if `pairs` lacks one of them.
    """
    lengths = _lengths(artifact.read(tokens, tables.TOKENIZED, [*_LENGTHS, "pair_id"]))
    prompts = _prompts(artifact.read(pairs, tables.PAIRS, ["pair_id", "prompt"]))
    known = lengths.join(prompts, on="pair_id", how="left", maintain_order="left")
    for pair_id in known.filter(pl.col("prompt").is_null())["pair_id"].head(1):
        raise UserError(
            str(pairs), f"pair {pair_id!r} of {tokens.name} is not there", hint="run tokenize again"
        )
    codes = known["prompt"].rank("dense").cast(pl.Int64).to_numpy() - 1
    rewards = {run: _rewards(path, lengths.select("pair_id"), tokens.name) for run, path in scores.items()}
    return Replies(np.tile(codes, 2), _both(lengths, "chosen", "rejected"), with_mean(rewards))


_LENGTHS = ("prefix_ids", "chosen_ids", "rejected_ids", "n_prompt")


def _lengths(tokens: pl.DataFrame) -> pl.DataFrame:
    shared = pl.col("prefix_ids").list.len().cast(pl.Int64) - pl.col("n_prompt")
    replies = {
        name: shared + pl.col(f"{name}_ids").list.len().cast(pl.Int64) for name in ("chosen", "rejected")
    }
    return tokens.select("pair_id", **replies)


def _prompts(pairs: pl.DataFrame) -> pl.DataFrame:
    """Name each prompt by its digest: several pairs may answer the same one."""
    digests = [text_digest(canonical_json(prompt)) for prompt in pairs["prompt"].to_list()]
    return pairs.select("pair_id", prompt=pl.Series(digests, dtype=pl.String))


def _rewards(path: Path, expected: pl.DataFrame, reference: str) -> NDArray[np.float32]:
    frame = artifact.read(path, tables.SCORES)
    check_same(expected, frame.select("pair_id"), str(path), reference)
    return _both(frame, "reward_chosen", "reward_rejected")


def _both(frame: pl.DataFrame, chosen: str, rejected: str) -> NDArray[Any]:
    return np.concatenate([frame[chosen].to_numpy(), frame[rejected].to_numpy()])


def panel_rows(panel: PanelRewards, resamples: int, seed: int) -> list[dict[str, Any]]:
    """Give the rows of stratum ``panel``: every run with intervals."""
    prompts = panel.answers["item_id"].rank("dense").cast(pl.Int64).to_numpy() - 1
    lengths = panel.answers["n_tokens"].to_numpy()
    rows = []
    for run, rewards in panel.rewards.items():
        estimates = associations(prompts, lengths, rewards, resamples, seed)
        rows += audit_rows(run, "panel", estimates, len(lengths), int(prompts.max()) + 1)
    return rows


def pair_rows(replies: Replies, resamples: int, seed: int) -> list[dict[str, Any]]:
    """Give the rows of stratum ``pairs``: intervals for `all` only, which large data sets afford."""
    rows = []
    for run, rewards in replies.rewards.items():
        drawn = resamples if run == ALL else None
        estimates = associations(replies.prompts, replies.tokens, rewards, drawn, seed)
        rows += audit_rows(run, "pairs", estimates, len(rewards), int(replies.prompts.max()) + 1)
    return rows


def associations(
    prompts: Codes, tokens: Codes, rewards: NDArray[Any], resamples: int | None, seed: int
) -> dict[str, Estimate]:
    """Measure how reward goes with length.

    Parameters
    ----------
    prompts : ndarray, shape (answers,)
        Number of each answer's prompt, 0, 1, ... without gaps.
    tokens : ndarray, shape (answers,)
        Tokens of the answer alone.
    rewards : ndarray, shape (answers,)
        Rewards.
    resamples
        Of the bootstrap over prompts; without it, intervals are null with the reason ``not_resampled``.
    seed
        Of the bootstrap.

    Returns
    -------
    dict of Estimate
        ``pearson``, ``slope_per_100_tokens`` (least squares) and ``spearman``, each in two views. ``pooled`` takes all
        answers together, so that it also holds how prompts differ. ``within_prompt`` takes deviations from the prompt's
        mean, of tokens and of rewards; its ``spearman`` takes ranks within the prompt, centred there, and correlates
        them over all answers. Where all tokens of a view are equal, everything of it is null with the reason
        ``constant_length``, where all rewards are, with ``constant_reward``.
    """
    order = np.lexsort((rewards, tokens, prompts))  # sums of floats depend on the order of the rows
    prompts, x, y = prompts[order], tokens[order].astype(np.float64), rewards[order].astype(np.float64)
    groups = {"pooled": np.zeros_like(prompts), "within_prompt": prompts}
    views = {view: (_centred(x, group), _centred(y, group)) for view, group in groups.items()}
    statistic, clusters = _statistic(prompts, x, y, views), int(prompts[-1]) + 1
    if resamples is None:
        estimates = [
            replace(point, reason=point.reason or "not_resampled")
            for point in point_estimates(statistic, clusters)
        ]
    else:
        estimates = cluster_bootstrap(statistic, clusters, resamples, seed)
    reasons = [_why_constant(*views[view]) for view in VIEWS for _ in MEASURES]
    explained = [_explained(estimate, why) for estimate, why in zip(estimates, reasons, strict=True)]
    return dict(zip(METRICS, explained, strict=True))


def _why_constant(x: Array, y: Array) -> str | None:
    if not x.any():
        return "constant_length"
    return None if y.any() else "constant_reward"


def _explained(estimate: Estimate, reason: str | None) -> Estimate:
    return Estimate(None, None, None, reason) if reason else estimate


def _centred(values: Array, groups: Codes) -> Array:
    """Take each group's mean from its values; rows stand by group. Equal values give exact zeros."""
    first = np.searchsorted(groups, np.arange(groups[-1] + 1))
    shifted = values - values[first][groups]
    return shifted - (np.bincount(groups, shifted) / np.bincount(groups))[groups]


def _statistic(prompts: Codes, x: Array, y: Array, views: dict[str, tuple[Array, Array]]) -> Statistic:
    """Give all metrics in the order of METRICS as a function of how often each prompt is drawn."""
    pooled, within = (_moments(prompts, *views[view]) for view in VIEWS)
    ranks = _moments(prompts, _ranks_within(prompts, x), _ranks_within(prompts, y))
    spearman = _pooled_spearman(prompts, x, y)

    def statistic(drawn: Array) -> Array:
        rank_correlation = _pearson_and_slope(drawn @ ranks)[0]
        return np.column_stack(
            [
                *_pearson_and_slope(drawn @ pooled),
                spearman(drawn),
                *_pearson_and_slope(drawn @ within),
                rank_correlation,
            ]
        )

    return statistic


def _moments(prompts: Codes, x: Array, y: Array) -> Array:
    """Sum 1, x, y, x², y², xy by prompt: what a correlation and a slope need of it."""
    return np.column_stack(
        [np.bincount(prompts, values) for values in (np.ones_like(x), x, y, x * x, y * y, x * y)]
    )


def _pearson_and_slope(totals: Array) -> Sequence[Array]:
    """Give correlation and slope per 100 tokens of each row of totals; NaN where tokens or rewards do not vary."""
    n, x, y, xx, yy, xy = totals.T
    varying_x, varying_y, together = xx - x * x / n, yy - y * y / n, xy - x * y / n
    undefined = (varying_x <= ROUNDING * xx) | (varying_y <= ROUNDING * yy)
    varying_x, varying_y = np.where(undefined, np.nan, varying_x), np.where(undefined, np.nan, varying_y)
    return together / np.sqrt(varying_x * varying_y), 100 * together / varying_x


def _ranks_within(prompts: Codes, values: Array) -> Array:
    """Rank within the prompt, ties sharing their mean rank, and centre the ranks there."""
    frame = pl.DataFrame({"prompt": prompts, "value": values})
    ranks = frame.select(pl.col("value").rank("average").over("prompt"))["value"].to_numpy()
    return _centred(ranks, prompts)


def _pooled_spearman(prompts: Codes, x: Array, y: Array) -> Statistic:
    """Give Spearman's correlation; in a resample the answers are ranked anew, as often as they were drawn."""
    (x_values, x_codes), (y_values, y_codes) = (np.unique(values, return_inverse=True) for values in (x, y))

    def one(drawn: Array) -> float:
        weights = drawn[prompts]
        x_mass, x_ranks = _centred_ranks(x_codes, weights, len(x_values))
        y_mass, y_ranks = _centred_ranks(y_codes, weights, len(y_values))
        together = float(weights @ (x_ranks[x_codes] * y_ranks[y_codes]))
        product = float(x_mass @ x_ranks**2) * float(y_mass @ y_ranks**2)
        return together / float(np.sqrt(product)) if product else np.nan

    return lambda drawn: np.array([one(row) for row in drawn])


def _centred_ranks(codes: Codes, weights: Array, values: int) -> tuple[Array, Array]:
    """Give how often each value is drawn, and its mid-rank less the mean rank."""
    mass = np.bincount(codes, weights, minlength=values).astype(np.float64)
    return mass, np.cumsum(mass) - mass / 2 - mass.sum() / 2
