"""train_rm: the Bradley–Terry reward model of one run, on top of the run's SFT."""

from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import polars as pl
import typer

from .. import artifact, options, tables
from ..recipe import RewardTraining
from ..record import recorded
from ..settings import checked
from .sft import LogOut, ManifestTable, SettingsJson, WeightsOut, included_tokens

CHECK_PAIRS = 4


def train_rm(
    manifest: ManifestTable,
    tokens: options.Tokens,
    backbone: options.Backbone,
    sft: Annotated[Path, typer.Option(help="Weights table of the run's SFT.")],
    settings: SettingsJson,
    weights: WeightsOut,
    training_log: LogOut,
    trained: Annotated[Path, typer.Option(help="Table of the pairs that the trainer was fed, to write.")],
    threads: options.Threads,
    device: options.Device,
    record: options.Record = None,
) -> None:
    """Write the trained weights, the log and what the trainer was fed."""
    from .. import training
    from ..weights import save

    recipe = checked(RewardTraining, settings, "--settings")
    with recorded("train_rm", record, settings=recipe.model_dump(), threads=threads, device=device):
        pairs = included_tokens(manifest, tokens)
        model, tokenizer = _model(backbone, sft, recipe, threads, device)
        fed, history = _train(model, tokenizer, pairs, recipe, device)
        checks = _check_scores(model, tokenizer.pad_token_id, pairs[:CHECK_PAIRS], recipe.precision)
        # The log ends with the scores of a few pairs, which `score` must reproduce.
        artifact.write(training.log_table(history, checks), tables.TRAINING_LOG, training_log)
        properties = training.properties(recipe, backbone=backbone, sft=sft)
        save(training.trained_tensors(model, recipe.lora), weights, properties)
        artifact.write(fed, tables.TRAINED, trained)


def _model(backbone: Path, sft: Path, recipe: RewardTraining, threads: int, device: str) -> tuple[Any, Any]:
    """Build backbone + SFT + adapters + head on the device, with its tokenizer, and check the pooling."""
    import torch

    from .. import training, weights
    from ..backbone_files import checked_files
    from ..formatting import Formatter
    from ..reward_model import RewardModel, check_pooling, load_decoder, merge
    from ..scoring import use

    use(device, threads)
    folder = checked_files(backbone)
    formatter = Formatter(folder)
    decoder = load_decoder(folder)
    merge(decoder, *weights.load(sft, "sft", backbone=backbone))
    torch.manual_seed(recipe.init_seed)
    model = RewardModel(decoder, recipe.head_std)
    check_pooling(model.to(device), formatter.pad_id)
    return training.adapt(model, recipe.lora, head=True).to(device), formatter.tokenizer


def _train(
    model: Any, tokenizer: Any, pairs: pl.DataFrame, recipe: RewardTraining, device: str
) -> tuple[pl.DataFrame, list[dict[str, Any]]]:
    """Train the model; give the pairs that the trainer was fed and its log."""
    from datasets import Dataset
    from trl import RewardConfig, RewardTrainer
    from trl.trainer.reward_trainer import DataCollatorForPreference

    from .. import training

    class Trainer(training.LengthGroupedBatches, RewardTrainer):  # type: ignore[misc]
        pass

    fed: Counter[str] = Counter()
    collate = DataCollatorForPreference(pad_token_id=tokenizer.pad_token_id)

    def feed(examples: list[dict[str, Any]]) -> dict[str, Any]:
        fed.update(example["pair_id"] for example in examples)
        return dict(collate(examples))

    data = Dataset.from_list([_example(row) for row in pairs.iter_rows(named=True)])
    options_ = {"remove_unused_columns": False, "disable_dropout": True, "center_rewards_coefficient": None}
    with training.arguments(RewardConfig, recipe, device, **options_) as args:
        stop = training.StopIfDiverged()
        trainer = Trainer(
            model=model,
            args=args,
            train_dataset=data,
            processing_class=tokenizer,
            data_collator=feed,
            callbacks=[stop],
        )
        trainer.train()
    if fed != Counter(dict.fromkeys(pairs["pair_id"], recipe.epochs)):
        raise RuntimeError(
            f"RewardTrainer was fed {len(fed)} pairs, not the {pairs.height} of the manifest {recipe.epochs} times each"
        )
    typer.echo(f"{pairs.height} pairs, {trainer.state.global_step} steps")
    return pl.DataFrame({"pair_id": list(fed), "seen": list(fed.values())}), trainer.state.log_history


def _example(row: dict[str, Any]) -> dict[str, Any]:
    prefix = row["prefix_ids"]
    chosen, rejected = prefix + row["chosen_ids"], prefix + row["rejected_ids"]
    length = max(len(chosen), len(rejected))
    return {"pair_id": row["pair_id"], "length": length, "chosen_ids": chosen, "rejected_ids": rejected}


def _check_scores(model: Any, pad_id: int, pairs: pl.DataFrame, precision: str) -> pl.DataFrame:
    """Score a few pairs with the model as it was trained, adapters unmerged."""
    from ..scoring import score_pairs

    return score_pairs(model.eval(), pairs, pad_id, precision, batch_tokens=1)
