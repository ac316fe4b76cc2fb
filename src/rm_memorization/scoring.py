"""Rewards of token sequences under a rebuilt reward model."""

from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl
import torch
from torch import nn

from . import artifact, tables, weights
from .backbone_files import checked_files
from .batching import plan
from .errors import UserError
from .formatting import Formatter
from .record import note_device
from .reward_model import HEAD, RewardModel, check_pooling, empty_decoder, load_decoder, merge, pad

# A reload may reorder sums; more than this, relative to rewards above 1, is another model.
RELOAD_TOLERANCE = {"float32": 1e-4, "bfloat16": 0.25}


class Scorer:
    """A reward model rebuilt from its artifacts.

    Parameters
    ----------
    backbone
        Table of the backbone.
    sft, train_rm
        Weights tables of both trainings.
    device
        ``cpu`` or ``cuda``.
    threads
        CPU threads.
    batch_tokens
        Tokens in a batch, padding included.
    """

    def __init__(
        self, backbone: Path, sft: Path, train_rm: Path, device: str, threads: int, batch_tokens: int
    ) -> None:
        use(device, threads)
        folder = checked_files(backbone)
        self.formatter = Formatter(folder)
        sft_tensors, sft_properties = weights.load(sft, "sft", backbone=backbone)
        rm_tensors, rm_properties = weights.load(train_rm, "train_rm", backbone=backbone, sft=sft)
        # All weights trained means all weights stored: the backbone's own need not be read.
        decoder = load_decoder(folder) if rm_properties["lora"] else empty_decoder(folder)
        if rm_properties["lora"]:
            merge(decoder, sft_tensors, sft_properties)
        merge(decoder, rm_tensors, rm_properties)
        model = RewardModel(decoder, 0.0)
        with torch.no_grad():
            model.score.weight.copy_(rm_tensors[HEAD])
        self.precision: str = rm_properties["precision"]
        self.model, self.batch_tokens = model.to(device).eval(), batch_tokens
        check_pooling(model, self.formatter.pad_id)

    def rewards(self, sequences: list[list[int]]) -> npt.NDArray[np.float32]:
        """Score sequences; see `rewards`."""
        return rewards(self.model, sequences, self.formatter.pad_id, self.precision, self.batch_tokens)

    def check_reload(self, tokens: pl.DataFrame, training_log: Path) -> None:
        """Check that this model gives the scores that the trained one left in its log.

        Raises
        ------
        UserError
            If it does not: the rebuilt model is not the trained one.
        """
        checks = check_scores(artifact.read(training_log, tables.TRAINING_LOG))
        if checks.is_empty():
            raise UserError(str(training_log), "no check scores in it", hint="give the log of train_rm")
        pairs = tokens.join(checks, on="pair_id", how="semi")
        if pairs.height != checks.height:
            raise UserError(
                str(training_log),
                f"{checks.height - pairs.height} of {checks.height} check pairs are not among the tokens",
                hint="the pairs changed: run train_rm again",
            )
        scores = self.pairs(pairs).join(checks, on="pair_id", suffix="_trained")
        for side in ("reward_chosen", "reward_rejected"):
            trained = scores[f"{side}_trained"].to_numpy()
            differences = np.abs(scores[side].to_numpy().astype(np.float64) - trained)
            if (differences > RELOAD_TOLERANCE[self.precision] * np.maximum(1, np.abs(trained))).any():
                raise UserError(
                    str(training_log),
                    f"{side} of a check pair differs by {differences.max():.3g} from the trained model's",
                    "the weights do not rebuild the model",
                    "run train_rm again",
                )

    def pairs(self, tokens: pl.DataFrame) -> pl.DataFrame:
        """Score pairs; see `score_pairs`."""
        return score_pairs(self.model, tokens, self.formatter.pad_id, self.precision, self.batch_tokens)


@torch.no_grad()
def rewards(
    model: nn.Module, sequences: list[list[int]], pad_id: int, precision: str, batch_tokens: int
) -> npt.NDArray[np.float32]:
    """Score sequences.

    Parameters
    ----------
    model
        A reward model in evaluation mode.
    sequences
        Token ids, N of them.
    pad_id
        The pad token.
    precision
        ``float32`` or ``bfloat16``.
    batch_tokens
        Tokens in a batch, padding included.

    Returns
    -------
    ndarray
        Shape (N,), float32, in their order.

    Raises
    ------
    UserError
        If a reward is not finite.
    """
    device = next(model.parameters()).device
    result = np.empty(len(sequences), dtype=np.float32)
    for batch in plan([len(sequence) for sequence in sequences], batch_tokens):
        ids, mask = pad([sequences[index] for index in batch], pad_id)
        with torch.autocast(device_type=device.type, dtype=torch.bfloat16, enabled=precision == "bfloat16"):
            logits = model(input_ids=ids.to(device), attention_mask=mask.to(device)).logits
        result[batch] = logits[:, 0].float().cpu().numpy()
    if not np.isfinite(result).all():
        raise UserError(
            "rewards",
            f"{(~np.isfinite(result)).sum()} of {len(result)} are not finite",
            hint="the training diverged: lower train_rm.learning_rate",
        )
    return result


def score_pairs(
    model: nn.Module, tokens: pl.DataFrame, pad_id: int, precision: str, batch_tokens: int
) -> pl.DataFrame:
    """Score pairs.

    Parameters
    ----------
    model, pad_id, precision, batch_tokens
        As for `rewards`.
    tokens
        A table of tokens.

    Returns
    -------
    pl.DataFrame
        A table of the scores contract.
    """
    both = [pl.concat_list("prefix_ids", side) for side in ("chosen_ids", "rejected_ids")]
    chosen, rejected = (tokens.select(side).to_series().to_list() for side in both)
    scores = rewards(model, chosen + rejected, pad_id, precision, batch_tokens)
    return pl.DataFrame(
        {
            "pair_id": tokens["pair_id"],
            "reward_chosen": scores[: len(chosen)],
            "reward_rejected": scores[len(chosen) :],
        }
    )


def check_scores(training_log: pl.DataFrame) -> pl.DataFrame:
    """Take the check scores out of a training log: pair_id, reward_chosen, reward_rejected (float64)."""
    rows = training_log.filter(pl.col("pair_id") != "")
    sides = [
        pl.col("value").filter(pl.col("metric") == side).first().alias(side)
        for side in ("reward_chosen", "reward_rejected")
    ]
    return rows.group_by("pair_id").agg(sides).sort("pair_id")


def use(device: str, threads: int) -> None:
    """Pin threads, and see that the device is there.

    Raises
    ------
    UserError
        If CUDA is asked for and there is none.
    """
    torch.set_num_threads(threads)
    if device == "cuda" and not torch.cuda.is_available():
        raise UserError(
            "config: compute.device",
            "'cuda', but torch sees no GPU",
            hint="use cpu, install a CUDA build of torch, or submit with --profile a100",
        )
    note_device(torch.cuda.get_device_name() if device == "cuda" else "cpu")
