"""score_panels: the audit panels' answers under one run's reward model."""

from typing import Any

import polars as pl

from .. import artifact, options, tables
from ..errors import UserError
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

    Raises
    ------
    UserError
        If a text holds one of the tokenizer's special tokens.
    """
    prompts, responses = panels["prompt"].to_list(), panels["response"].to_list()
    names = [
        f"panel {panel!r}, item_id {item!r}, cell {cell!r}"
        for panel, item, cell in panels.select(tables.PANEL.key).rows()
    ]
    for name, prompt, response in zip(names, prompts, responses, strict=True):
        if token := scorer.formatter.special_token_in(prompt, response):
            raise UserError(
                name,
                f"the text holds {token!r}",
                "The model would take it for the real one",
                "write it otherwise",
            )
    messages = [[{"role": "user", "content": prompt}] for prompt in prompts]
    answers = scorer.formatter.answers(messages, responses, names)
    return panels.select("panel", "item_id", "stratum", "cell").with_columns(
        n_tokens=pl.Series([len(answer.ids) - answer.n_prompt for answer in answers], dtype=pl.Int64),
        reward=pl.Series(scorer.rewards([answer.ids for answer in answers]), dtype=pl.Float32),
    )
