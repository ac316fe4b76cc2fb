"""What both trainings share: TRL's arguments, the adapters, the log, the trained tensors."""

import math
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import peft
import polars as pl
from peft import LoraConfig
from torch import nn

from .errors import UserError
from .recipe import RECIPE, Lora, Training
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
            output_dir=folder, report_to=[], save_strategy="no", eval_strategy="no", logging_strategy="steps", logging_steps=1,
            disable_tqdm=True, push_to_hub=False, use_cpu=device == "cpu", dataloader_num_workers=0, dataloader_pin_memory=device == "cuda",
            num_train_epochs=settings.epochs, per_device_train_batch_size=settings.batch_size,
            gradient_accumulation_steps=settings.accumulation, optim="adamw_torch", learning_rate=settings.learning_rate,
            lr_scheduler_type=settings.schedule, warmup_steps=settings.warmup_ratio, weight_decay=settings.weight_decay,
            max_grad_norm=settings.max_grad_norm, bf16=settings.precision == "bfloat16", fp16=False,
            gradient_checkpointing=settings.gradient_checkpointing, seed=settings.init_seed, data_seed=settings.data_seed,
            logging_nan_inf_filter=False, max_length=None, **more,
        )  # fmt: skip


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
    """
    if lora is None:
        return model
    absent = [name for name in lora.target_modules if not any(n.endswith(f".{name}") for n, m in model.named_modules() if isinstance(m, nn.Linear))]
    if absent:
        raise UserError("config: lora.target_modules", f"{absent[0]!r} is no linear layer of this backbone", hint="name the architecture's own projections")
    config = LoraConfig(
        r=lora.rank, lora_alpha=lora.alpha, lora_dropout=0.0, bias="none",
        target_modules=list(lora.target_modules), modules_to_save=["score"] if head else None,
    )  # fmt: skip
    return peft.get_peft_model(model, config)


def trained_tensors(model: Any, lora: Lora | None, decoder_name: str) -> Tensors:
    """Collect what was trained, named relative to the decoder.

    Parameters
    ----------
    model
        After training.
    lora
        As given to `adapt`.
    decoder_name
        Name of the decoder in the model, such as ``model`` or ``decoder``; tensors outside it keep their name.
    """
    state = peft.get_peft_model_state_dict(model) if lora else dict(model.named_parameters())
    plain = {name.removeprefix("base_model.model."): tensor for name, tensor in state.items()}
    return {name.removeprefix(f"{decoder_name}."): tensor.detach().float() for name, tensor in plain.items() if not name.startswith("lm_head")}


def properties(settings: Training) -> dict[str, Any]:
    """What the footer of a weights table says: how to put the tensors to use."""
    lora = settings.lora.model_dump() if settings.lora else None
    return {"recipe": RECIPE, "lora": lora, "precision": settings.precision}


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
        If a loss is not finite.
    """
    steps = [entry for entry in history if "loss" in entry]
    rows = [(int(entry["step"]), name, "", float(value)) for entry in steps for name, value in entry.items() if name != "step"]
    broken = [(step, name) for step, name, _, value in rows if not math.isfinite(value)]
    if broken:
        raise UserError(f"training step {broken[0][0]}", f"{broken[0][1]} is not finite", "nothing that was learned after it can be trusted", "lower the learning rate")
    last = max(step for step, *_ in rows)
    if checks is not None:
        sides = ("reward_chosen", "reward_rejected")
        rows += [(last, side, row["pair_id"], float(row[side])) for row in checks.iter_rows(named=True) for side in sides]
    return pl.DataFrame(rows, schema=["step", "metric", "pair_id", "value"], orient="row")
