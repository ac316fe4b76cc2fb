"""sft: supervised fine-tuning on the chosen replies of the run's included units, and on nothing else."""

from pathlib import Path
from typing import Annotated, Any

import polars as pl
import typer

from .. import artifact, options, tables
from ..errors import UserError
from ..recipe import Training
from ..record import recorded
from ..settings import checked

ManifestTable = Annotated[Path, typer.Option(help="Manifest of the run.")]
SettingsJson = Annotated[str, typer.Option(help="The config's section of this stage, as JSON.")]
WeightsOut = Annotated[Path, typer.Option(help="Weights table to write.")]
LogOut = Annotated[Path, typer.Option(help="Training log to write.")]


def sft(
    manifest: ManifestTable,
    tokens: options.Tokens,
    backbone: options.Backbone,
    settings: SettingsJson,
    weights: WeightsOut,
    training_log: LogOut,
    threads: options.Threads,
    device: options.Device,
    record: options.Record = None,
) -> None:
    """Write the trained weights and the log."""
    recipe = checked(Training, settings, "--settings")
    with recorded("sft", record, settings=recipe.model_dump(), threads=threads, device=device):
        rows = replies(included_tokens(manifest, tokens))
        _train(rows, backbone, recipe, weights, training_log, threads=threads, device=device)


def included_tokens(manifest: Path, tokens: Path) -> pl.DataFrame:
    """Give the token ids of a manifest's pairs.

    Raises
    ------
    UserError
        If a pair of the manifest is not among the tokens, or not with these tokens.
    """
    wanted = artifact.read(manifest, tables.MANIFEST)
    found = artifact.read(tokens, tables.TOKENIZED).join(
        wanted, on=["pair_id", "unit_id", "token_hash"], how="semi"
    )
    if found.height != wanted.height:
        raise UserError(
            str(manifest),
            f"{wanted.height - found.height} of {wanted.height} pairs are not among the tokens as the manifest has them",
            hint="run split again",
        )
    return found.sort("pair_id")


def replies(tokens: pl.DataFrame) -> pl.DataFrame:
    """Give the distinct (prompt, chosen) sequences.

    Parameters
    ----------
    tokens
        A table of tokens.

    Returns
    -------
    pl.DataFrame
        ``input_ids`` (list) and ``n_prompt``, in the order of their first pair.
    """
    whole = tokens.select(input_ids=pl.concat_list("prefix_ids", "chosen_ids"), n_prompt="n_prompt")
    # Another rejected reply can move the border by a token; the later one leaves no prompt in the loss.
    return whole.group_by("input_ids", maintain_order=True).agg(pl.col("n_prompt").max())


def _train(
    rows: pl.DataFrame,
    backbone: Path,
    recipe: Training,
    weights: Path,
    training_log: Path,
    *,
    threads: int,
    device: str,
) -> None:
    from datasets import Dataset
    from trl import SFTConfig, SFTTrainer

    from .. import training
    from ..backbone_files import checked_files
    from ..formatting import Formatter
    from ..scoring import use
    from ..weights import save

    class Trainer(training.LengthGroupedBatches, SFTTrainer):  # type: ignore[misc]
        pass

    use(device, threads)
    folder = checked_files(backbone)
    model = _model(folder, recipe)
    data = Dataset.from_list([_example(row) for row in rows.iter_rows(named=True)])
    with training.arguments(
        SFTConfig, recipe, device, packing=False, completion_only_loss=True, loss_type="nll"
    ) as args:
        tokenizer, stop = Formatter(folder).tokenizer, training.StopIfDiverged()
        trainer = Trainer(
            model=model, args=args, train_dataset=data, processing_class=tokenizer, callbacks=[stop]
        )
        if list(trainer.train_dataset["input_ids"]) != list(data["input_ids"]):
            raise RuntimeError("SFTTrainer dropped, cut or moved sequences")
        trainer.train()
    artifact.write(training.log_table(trainer.state.log_history), tables.TRAINING_LOG, training_log)
    save(
        training.trained_tensors(model, recipe.lora), weights, training.properties(recipe, backbone=backbone)
    )
    typer.echo(f"{rows.height} sequences, {trainer.state.global_step} steps")


def _model(folder: Path, recipe: Training) -> Any:
    import torch
    from transformers import AutoModelForCausalLM

    from .. import training
    from ..reward_model import load_decoder

    torch.manual_seed(recipe.init_seed)
    return training.adapt(load_decoder(folder, AutoModelForCausalLM), recipe.lora, head=False)


def _example(row: dict[str, Any]) -> dict[str, Any]:
    n_prompt, ids = row["n_prompt"], row["input_ids"]
    return {
        "length": len(ids),
        "input_ids": ids,
        "completion_mask": [0] * n_prompt + [1] * (len(ids) - n_prompt),
    }
