"""sft: the language model learns the chosen replies of the included units, and nothing else."""

import polars as pl
import pytest
import torch
from tiny_experiment import Trained
from trainings import content_hash, distance, losses, overlong, spy

from rm_memorization import artifact, tables
from rm_memorization.errors import UserError
from rm_memorization.formatting import Formatter
from rm_memorization.stages.sft import included_tokens, replies


@pytest.fixture
def out(tmp_path):
    return Trained(tmp_path, None)


@pytest.fixture
def trainers(monkeypatch):
    return spy(monkeypatch, "SFTTrainer")


@pytest.fixture(scope="module")
def included(experiment):
    return included_tokens(experiment.data.manifest, experiment.data.tokens)


def formatter(experiment):
    return Formatter(experiment.data.backbone.parent / "files")


def test_it_trains_on_every_included_chosen_reply_once_and_on_nothing_of_the_held_out(
    experiment, out, trainers, included
):
    out.train_sft(experiment.data)
    fed = [
        tuple(ids[: sum(mask)])
        for batch in trainers[0].batches
        for ids, mask in zip(batch["input_ids"], batch["attention_mask"], strict=True)
    ]
    chosen = [tuple(row["prefix_ids"] + row["chosen_ids"]) for row in included.iter_rows(named=True)]
    assert sorted(fed) == sorted(set(chosen))
    pairs = artifact.read(experiment.pairs, tables.PAIRS)
    held_out = pairs.filter(~pl.col("pair_id").is_in(included["pair_id"].implode()))
    assert (held_out["unit_id"].n_unique(), held_out.height) == (2, 8)
    assert set(held_out["unit_id"]).isdisjoint(included["unit_id"])
    seen = "\n".join(formatter(experiment).tokenizer.decode(ids) for ids in fed)
    assert all(text in seen for text in pairs.join(included, on="pair_id", how="semi")["chosen"])
    assert not any(text in seen for text in [*held_out["chosen"], *held_out["rejected"]])
    assert trainers[0].modes == {True}


def test_the_loss_covers_the_reply_and_its_end_and_not_the_prompt(experiment, out, trainers, included):
    out.train_sft(experiment.data)
    tokenizer = formatter(experiment).tokenizer
    rows = trainers[0].train_dataset
    learned = [tokenizer.decode([token for token in row["labels"] if token != -100]) for row in rows]
    pairs = artifact.read(experiment.pairs, tables.PAIRS)
    texts = dict(pairs.select("pair_id", "chosen").iter_rows())
    assert learned == [f"{texts[pair_id]}<|end|>" for pair_id in included["pair_id"]]
    assert all(
        label in (-100, token)
        for row in rows
        for token, label in zip(row["input_ids"], row["labels"], strict=True)
    )


def test_the_first_loss_is_the_mean_over_the_replies_tokens(experiment, out, trainers, included):
    out.train_sft(experiment.data, batch_size=24, warmup_ratio=0)
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(experiment.data.backbone.parent / "files").eval()
    sums, tokens = 0.0, 0
    for row in included.iter_rows(named=True):
        ids = torch.tensor([row["prefix_ids"] + row["chosen_ids"]])
        with torch.no_grad():
            log_p = model(input_ids=ids).logits[0].log_softmax(-1)
        reply = ids[0, row["n_prompt"] :]
        sums -= log_p[row["n_prompt"] - 1 : -1].gather(1, reply[:, None]).sum().item()
        tokens += len(reply)
    assert losses(out.sft_log) == pytest.approx([sums / tokens], abs=1e-5)


def test_a_long_sequence_is_neither_dropped_nor_cut(experiment, out, trainers, tmp_path):
    data = overlong(experiment.data, tmp_path)
    rows = replies(included_tokens(data.manifest, data.tokens))
    lengths = [len(ids) for ids in rows["input_ids"]]
    assert max(lengths) > 1100
    out.train_sft(data)
    assert [len(ids) for ids in trainers[0].train_dataset["input_ids"]] == lengths
    assert sum(sum(map(sum, batch["attention_mask"])) for batch in trainers[0].batches) == sum(lengths)


def test_a_trainer_that_drops_or_cuts_is_noticed(experiment, out, monkeypatch):
    import trl

    class Cutting(trl.SFTTrainer):
        def _prepare_dataset(self, dataset, *args, **options):
            prepared = super()._prepare_dataset(dataset, *args, **options)
            return prepared.map(
                lambda row: {"input_ids": row["input_ids"][:-1], "labels": row["labels"][:-1]}
            )

    monkeypatch.setattr(trl, "SFTTrainer", Cutting)
    with pytest.raises(RuntimeError, match="dropped, cut or moved"):
        out.train_sft(experiment.data)
    assert not out.sft.exists()


@pytest.mark.parametrize("size", [8, 5])
def test_batches_and_accumulation_give_the_same(experiment, tmp_path, size):
    whole, parts = Trained(tmp_path / "whole", None), Trained(tmp_path / "parts", None)
    whole.train_sft(experiment.data, batch_size=size)
    parts.train_sft(experiment.data, batch_size=1, accumulation=size)
    assert losses(parts.sft_log) == pytest.approx(losses(whole.sft_log), abs=1e-5)
    assert distance(parts.sft, whole.sft) < 1e-4
    assert distance(parts.sft, experiment.full.sft) < 1e-4 or size != 8


def test_the_same_seed_gives_the_same_weights_and_another_does_not(experiment, out, tmp_path):
    again, other = (
        Trained(tmp_path / "again", experiment.lora.lora),
        Trained(tmp_path / "other", experiment.lora.lora),
    )
    again.train_sft(experiment.data)
    other.train_sft(experiment.data, init_seed=4)
    assert content_hash(again.sft) == content_hash(experiment.lora.sft)
    assert again.sft.read_bytes() == experiment.lora.sft.read_bytes()
    assert again.sft_log.read_bytes() == experiment.lora.sft_log.read_bytes()
    assert content_hash(other.sft) != content_hash(experiment.lora.sft)


def test_the_training_moves_all_that_it_is_to_train(experiment, included):
    from rm_memorization.reward_model import load_decoder
    from rm_memorization.weights import load

    base = load_decoder(experiment.data.backbone.parent / "files")
    full = load(experiment.full.sft, "sft")[0]
    assert set(full) == {name for name, _ in base.named_parameters()}
    assert all((tensor != base.get_parameter(name)).any() for name, tensor in full.items())
    lora = load(experiment.lora.sft, "sft")[0]
    assert len(lora) == 14
    assert all(tensor.abs().max() > 0 for name, tensor in lora.items())


def test_a_loss_that_is_not_finite_writes_nothing(experiment, out):
    with pytest.raises(UserError, match=r"^training step 3: \w+ is not finite"):
        out.train_sft(experiment.data, learning_rate=1e30)
    assert list(out.folder.iterdir()) == []


def test_weights_say_what_they_were_trained_on(experiment):
    properties = artifact.footer(experiment.lora.sft)["properties"]
    assert properties["backbone"] == content_hash(experiment.data.backbone)
    assert "sft" not in properties


def test_replies_are_distinct_whatever_was_rejected():
    tokens = pl.DataFrame(
        {
            "prefix_ids": [[1, 2], [1, 2, 3], [1, 2], [1]],
            "chosen_ids": [[3, 4], [4], [5], [2, 3, 4]],
            "n_prompt": [2, 1, 2, 1],
        }
    )
    assert replies(tokens).rows() == [([1, 2, 3, 4], 2), ([1, 2, 5], 2)]


def test_tokens_that_are_not_the_manifests(experiment, tmp_path):
    frame = artifact.read(experiment.data.manifest, tables.MANIFEST)
    stale = frame.with_columns(
        token_hash=pl.when(pl.col("pair_id") == frame["pair_id"][0]).then(pl.lit("0")).otherwise("token_hash")
    )
    artifact.write(stale, tables.MANIFEST, tmp_path / "manifest.parquet")
    with pytest.raises(
        UserError, match=r"manifest.parquet: 1 of 24 pairs are not among the tokens.*run split again"
    ):
        included_tokens(tmp_path / "manifest.parquet", experiment.data.tokens)


def test_a_setting_that_is_unknown(experiment, out):
    for train in (out.train_sft, lambda data, **changes: out.train_rm(data, experiment.full.sft, **changes)):
        with pytest.raises(UserError, match=r"--settings: unknown key 'epoch'. Hint: did you mean 'epochs'"):
            train(experiment.data, epoch=3)
