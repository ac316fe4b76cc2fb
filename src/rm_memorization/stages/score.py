"""score: every pair, held out or not, under one run's reward model."""

from pathlib import Path
from typing import Annotated

import typer

from .. import artifact, options, tables
from ..record import recorded

Weights = Annotated[Path, typer.Option(help="Weights table.")]
BatchTokens = Annotated[int, typer.Option(min=1, help="Tokens in a batch, padding included.")]
Log = Annotated[Path, typer.Option(help="Log of the reward training, with its check scores.")]


def score(
    tokens: options.Tokens,
    backbone: options.Backbone,
    sft: Weights,
    train_rm: Weights,
    training_log: Log,
    scores: options.Out,
    batch_tokens: BatchTokens,
    threads: options.Threads,
    device: options.Device,
    record: options.Record = None,
) -> None:
    """Write the scores of all pairs."""
    from ..scoring import Scorer

    with recorded("score", record, batch_tokens=batch_tokens, threads=threads, device=device):
        pairs = artifact.read(tokens, tables.TOKENIZED)
        scorer = Scorer(backbone, sft, train_rm, device, threads, batch_tokens)
        scorer.check_reload(pairs, training_log)
        artifact.write(scorer.pairs(pairs), tables.SCORES, scores)
