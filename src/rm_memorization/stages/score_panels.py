"""score_panels: the audit panels' answers under one run's reward model."""

from typing import Any

import polars as pl

from .. import artifact, options, tables
from ..panels import read_panels
from ..record import recorded
from .score import BatchTokens, Weights


def score_panels(
    panel: options.Panel,
    backbone: options.Backbone,
    sft: Weights,
    train_rm: Weights,
    panel_scores: options.Out,
    batch_tokens: BatchTokens,
    threads: options.Threads,
    device: options.Device,
    record: options.Record = None,
) -> None:
    """Write the rewards of all panel answers."""
    from ..scoring import Scorer

    with recorded("score_panels", record, batch_tokens=batch_tokens, threads=threads, device=device):
        panels = read_panels(panel)
        scorer = Scorer(backbone, sft, train_rm, device, threads, batch_tokens)
        artifact.write(score_answers(panels, scorer), tables.PANEL_SCORES, panel_scores)


def score_answers(panels: pl.DataFrame, scorer: Any) -> pl.DataFrame:
    """Score answers; gives a table of the panel_scores contract.

    Parameters
    ----------
    panels
        A table of the panel contract.
    scorer
        A `scoring.Scorer`.
    """
    prompts = [[{"role": "user", "content": text}] for text in panels["prompt"]]
    names = [f"{panel} item {item}" for panel, item in zip(panels["panel"], panels["item_id"], strict=True)]
    answers = scorer.formatter.answers(prompts, panels["response"].to_list(), names)
    return panels.select("panel", "item_id", "stratum", "cell").with_columns(
        n_tokens=pl.Series([len(answer.ids) - answer.n_prompt for answer in answers], dtype=pl.Int64),
        reward=pl.Series(scorer.rewards([answer.ids for answer in answers]), dtype=pl.Float32),
    )
