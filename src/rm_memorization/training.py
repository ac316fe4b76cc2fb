"""What both trainings share: TRL's arguments, the adapters, the log, the trained tensors."""

import math
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import peft
import polars as pl
import torch
from peft import LoraConfig
from torch import nn
from transformers import TrainerCallback

from . import artifact
from .batching import LengthGrouped
from .errors import UserError
from .recipe import RECIPE, Lora, Training
from .reward_model import HEAD
from .weights import Tensors


@contextmanager
def arguments(config: type, settings: Training, device: str, **more: Any) -> Iterator[Any]:
    """Give TRL's arguments, every one that matters stated, with a working folder that is removed afterwards.

    Parameters
    ----------
    config
        ``SFTConfig`` or ``RewardConfig``.
    settings
        The recipe.
    device
        ``cpu`` or ``cuda``.
    **more
        Arguments of one of the two alone.
    """
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    with tempfile.TemporaryDirectory(prefix="rm-memorization-") as folder:
        yield config(
            output_dir=folder, report_to=[], save_strategy="no", eval_strategy="no", push_to_hub=False, disable_tqdm=True,
            logging_strategy="steps", logging_steps=1, logging_nan_inf_filter=False, use_cpu=device == "cpu",
            dataloader_num_workers=0, dataloader_pin_memory=device == "cuda", dataloader_drop_last=False, max_length=None,
            num_train_epochs=settings.epochs, per_device_train_batch_size=settings.batch_size,
            gradient_accumulation_steps=settings.accumulation,
            optim="adamw_torch", adam_beta1=0.9, adam_beta2=0.999, adam_epsilon=1e-8, weight_decay=settings.weight_decay,
            learning_rate=settings.learning_rate, lr_scheduler_type=settings.schedule, warmup_steps=settings.warmup_ratio,
            max_grad_norm=settings.max_grad_norm, bf16=settings.precision == "bfloat16", fp16=False,
            gradient_checkpointing=settings.gradient_checkpointing, seed=settings.init_seed, data_seed=settings.data_seed,
            **more,
        )  # fmt: skip


class LengthGroupedBatches:
    """Trains in the order of `batching.LengthGrouped`; to be mixed into a TRL trainer whose data has a `length`."""

    train_dataset: Any
    args: Any

    def _get_train_sampler(self, *_: Any) -> LengthGrouped:
        batch = self.args.train_batch_size * self.args.gradient_accumulation_steps
        return LengthGrouped(self.train_dataset["length"], batch, self.args.data_seed)


def adapt(model: Any, lora: Lora | None, *, head: bool) -> Any:
    """Give the model adapters, or leave all its weights trainable.

    Parameters
    ----------
    model
        A causal language model or a `RewardModel`.
    lora
        Adapter settings or None.
    head
        Whether ``score`` is trained in full.

    Raises
    ------
    UserError
        If a target module is no linear layer of the decoder.
    """
    if lora is None:
        return model
    linear = [
        f".{name}" for name, module in model.base_model.named_modules() if isinstance(module, nn.Linear)
    ]
    for target in lora.target_modules:
        if not any(name.endswith(f".{target}") for name in linear):
            raise UserError(
                "config: lora.target_modules",
                f"{target!r} is no linear layer of this backbone's decoder",
                hint=f"it has {', '.join(sorted({name.rpartition('.')[2] for name in linear}))}",
            )
    config = LoraConfig(
        r=lora.rank, lora_alpha=lora.alpha, lora_dropout=0.0, bias="none",
        target_modules=list(lora.target_modules), modules_to_save=["score"] if head else None,
    )  # fmt: skip
    return peft.get_peft_model(model, config)


def trained_tensors(model: Any, lora: Lora | None) -> Tensors:
    """Collect what was trained of the decoder and the reward head, named relative to the decoder.

    Parameters
    ----------
    model
        After training.
    lora
        As given to `adapt`.

    Raises
    ------
    UserError
        If a value is not finite: the last step has no loss after it that would show this.
    """
    base = model.get_base_model() if lora else model
    state = (
        peft.get_peft_model_state_dict(model, save_embedding_layers=False)
        if lora
        else dict(model.named_parameters())
    )
    whole = {
        name.removeprefix("base_model.model."): tensor.detach().float() for name, tensor in state.items()
    }
    decoder = f"{base.base_model_prefix}."
    tensors = {
        name.removeprefix(decoder): tensor
        for name, tensor in whole.items()
        if name == HEAD or name.startswith(decoder)
    }
    for name, tensor in tensors.items():
        if not torch.isfinite(tensor).all():
            raise _diverged("the last training step", f"tensor {name!r}")
    return tensors


def properties(settings: Training, **origins: Path) -> dict[str, Any]:
    """Say in a weights table's footer how to put the tensors to use, and on top of what.

    Parameters
    ----------
    settings
        The recipe.
    **origins
        Tables that the training started from; their content hashes go into the footer, see `weights.load`.
    """
    lora = settings.lora.model_dump() if settings.lora else None
    hashes = {name: artifact.footer(path)["content_hash"] for name, path in origins.items()}
    return {"recipe": RECIPE, "lora": lora, "precision": settings.precision, **hashes}


class StopIfDiverged(TrainerCallback):  # type: ignore[misc]
    """Stops a training at its first logged value that is not finite.

    Raises
    ------
    UserError
        With the step.
    """

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:  # noqa: ARG002
        """Look at what was logged."""
        for name, value in logs.items():
            if isinstance(value, float) and not math.isfinite(value):
                raise _diverged(f"training step {state.global_step}", name)


def _diverged(where: str, what: str) -> UserError:
    return UserError(
        where,
        f"{what} is not finite",
        "Nothing is written: nothing learned after it can be trusted",
        "lower the learning rate",
    )


def log_table(history: list[dict[str, Any]], checks: pl.DataFrame | None = None) -> pl.DataFrame:
    """Give a trainer's history, and check scores after its last step, as a table of the training_log contract.

    Parameters
    ----------
    history
        ``trainer.state.log_history``.
    checks
        A table of scores.

    Raises
    ------
    UserError
        If no step had a learning rate above 0: a short training can be all warm-up.

    Examples
    --------
    >>> log_table([{"loss": 0.5, "step": 1}, {"train_runtime": 3.0, "step": 1}]).rows()
    [(1, 'loss', '', 0.5)]
    """
    steps = [entry for entry in history if "loss" in entry]  # the last entry sums up, times among it
    if not any(entry.get("learning_rate", 1.0) for entry in steps):
        raise UserError(
            "training",
            f"no step had a learning rate above 0 (steps: {len(steps)})",
            "nothing was learned, and every estimate would be 0",
            "lower batch_size, raise epochs, or set warmup_ratio to 0",
        )
    rows = [
        (int(entry["step"]), name, "", float(value))
        for entry in steps
        for name, value in entry.items()
        if name != "step"
    ]
    if checks is not None:
        last = max(step for step, *_ in rows)
        sides = ("reward_chosen", "reward_rejected")
        rows += [
            (last, side, row["pair_id"], float(row[side]))
            for row in checks.iter_rows(named=True)
            for side in sides
        ]
    return pl.DataFrame(rows, schema=["step", "metric", "pair_id", "value"], orient="row")
