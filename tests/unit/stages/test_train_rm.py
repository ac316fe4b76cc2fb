"""train_rm: what the reward model is fed, what is stored, and that it can be rebuilt."""

import json
from collections import Counter

import pytest
import torch
from tiny_experiment import EPOCHS, LORA, Trained
from trainings import content_hash, distance, in_fresh_process, losses, overlong, spy
from trl.trainer.reward_trainer import DataCollatorForPreference

from rm_memorization import artifact, tables, weights
from rm_memorization.batching import LengthGrouped
from rm_memorization.errors import UserError
from rm_memorization.scoring import Scorer, check_scores
from rm_memorization.stages.sft import included_tokens

BOTH = pytest.mark.parametrize("way", ["lora", "full"])


@pytest.fixture
def out(tmp_path):
    return Trained(tmp_path, LORA)


@pytest.fixture
def trainers(monkeypatch):
    return spy(monkeypatch, "RewardTrainer")


def sequences(batch):
    """Give a batch's pairs as (chosen, rejected) token ids without padding."""
    rows = [
        tuple(ids[: sum(mask)]) for ids, mask in zip(batch["input_ids"], batch["attention_mask"], strict=True)
    ]
    return list(zip(rows[: len(rows) // 2], rows[len(rows) // 2 :], strict=True))


def pairs_of(data):
    rows = included_tokens(data.manifest, data.tokens).iter_rows(named=True)
    return {
        row["pair_id"]: (
            tuple(row["prefix_ids"] + row["chosen_ids"]),
            tuple(row["prefix_ids"] + row["rejected_ids"]),
        )
        for row in rows
    }


@BOTH
def test_the_trainer_is_fed_the_manifests_pairs_epochs_times(experiment, way):
    manifest = artifact.read(experiment.data.manifest, tables.MANIFEST)
    trained = artifact.read(getattr(experiment, way).trained, tables.TRAINED)
    assert set(trained["pair_id"]) == set(manifest["pair_id"])
    assert trained["seen"].to_list() == [EPOCHS] * 24


def test_the_model_sees_exactly_these_sequences(experiment, out, trainers):
    out.train_rm(experiment.data, experiment.lora.sft, epochs=3)
    seen = Counter(pair for batch in trainers[0].batches for pair in sequences(batch))
    assert seen == Counter(dict.fromkeys(pairs_of(experiment.data).values(), 3))
    assert "pair_id" in trainers[0].train_dataset.column_names
    assert trainers[0].modes == {True}


def test_the_batches_are_those_of_the_plan_epoch_by_epoch(experiment, out, trainers):
    out.train_rm(experiment.data, experiment.lora.sft, epochs=3, batch_size=8, data_seed=5)
    rows = list(pairs_of(experiment.data).values())
    order = LengthGrouped([max(map(len, row)) for row in rows], batch=8, seed=5)
    planned = []
    for epoch in range(3):
        order.set_epoch(epoch)
        planned += list(order)
    assert [pair for batch in trainers[0].batches for pair in sequences(batch)] == [rows[i] for i in planned]


def test_long_pairs_are_neither_dropped_nor_cut(experiment, out, trainers, tmp_path):
    data = overlong(experiment.data, tmp_path)
    out.train_rm(data, experiment.lora.sft, epochs=1)
    assert len(trainers[0].train_dataset) == 24
    lengths = [len(pair[0]) for batch in trainers[0].batches for pair in sequences(batch)]
    assert (len(lengths), max(lengths) > 1100) == (24, True)
    assert artifact.read(out.trained, tables.TRAINED).height == 24


def test_trl_would_drop_long_pairs_by_default(experiment, out, trainers, tmp_path, monkeypatch):
    """The reason why the number of pairs is checked."""
    import trl

    config = trl.RewardConfig
    monkeypatch.setattr(trl, "RewardConfig", lambda **options: config(**options | {"max_length": 1024}))
    with pytest.raises(RuntimeError, match="RewardTrainer was fed 23 pairs, not the 24"):
        out.train_rm(overlong(experiment.data, tmp_path), experiment.lora.sft, epochs=1)
    assert not out.weights.exists()


@pytest.mark.parametrize("size", [8, 5])
@BOTH
def test_batches_and_accumulation_give_the_same(experiment, tmp_path, way, size):
    given = getattr(experiment, way)
    whole, parts = Trained(tmp_path / "whole", given.lora), Trained(tmp_path / "parts", given.lora)
    whole.train_rm(experiment.data, given.sft, batch_size=size)
    parts.train_rm(experiment.data, given.sft, batch_size=1, accumulation=size)
    assert len(losses(whole.log)) == EPOCHS * -(-24 // size)
    assert losses(parts.log) == pytest.approx(losses(whole.log), abs=1e-5)
    assert distance(parts.weights, whole.weights) < 1e-4


def test_a_training_that_is_all_warm_up_is_refused(experiment, out):
    """One step alone is the warm-up's first, at learning rate 0: the weights would be those it began with."""
    with pytest.raises(UserError, match=r"no step had a learning rate above 0 \(steps: 1\)"):
        out.train_rm(experiment.data, experiment.lora.sft, epochs=1, batch_size=24)
    assert not out.log.exists()
    assert not out.weights.exists()


def test_the_loss_is_that_of_bradley_and_terry(experiment, out):
    """One batch of everything: the loss before the only step, from the scores of the model as it starts."""
    out.train_rm(
        experiment.data, experiment.lora.sft, epochs=1, batch_size=24, learning_rate=1e-12, warmup_ratio=0
    )
    scorer = Scorer(experiment.data.backbone, experiment.lora.sft, out.weights, "cpu", 1, 256)
    scores = scorer.pairs(included_tokens(experiment.data.manifest, experiment.data.tokens))
    margin = (scores["reward_chosen"] - scores["reward_rejected"]).to_torch().double()
    assert margin.std() > 1e-3
    assert losses(out.log) == pytest.approx([torch.nn.functional.softplus(-margin).mean().item()], abs=1e-6)
    values = dict(
        artifact.read(out.log, tables.TRAINING_LOG).filter(pair_id="").select("metric", "value").rows()
    )
    assert values["margin"] == pytest.approx(margin.mean().item(), abs=1e-6)
    assert values["accuracy"] == pytest.approx((margin > 0).double().mean().item(), abs=1e-6)


def test_a_head_of_zeros_starts_at_log_2(experiment, out):
    out.train_rm(experiment.data, experiment.lora.sft, epochs=1, head_std=0.0)
    assert losses(out.log)[0] == pytest.approx(0.6931471805599453, abs=1e-7)
    tensors, _ = weights.load(out.weights, "train_rm")
    assert tensors["score.weight"].abs().max() > 1e-4


@BOTH
def test_only_what_was_trained_is_stored_and_all_of_it_moved(experiment, way):
    given = getattr(experiment, way)
    tensors, properties = weights.load(given.weights, "train_rm")
    assert properties["backbone"] == content_hash(experiment.data.backbone)
    assert properties["sft"] == content_hash(given.sft)
    before = weights.load(given.sft, "sft")[0]
    assert set(tensors) == {*before, "score.weight"}
    assert tensors["score.weight"].shape == (1, 32)
    moved = {name for name in before if (tensors[name] != before[name]).any()}
    assert moved == set(before)


FRESH = """
from pathlib import Path
from tiny_experiment import Experiment, Trained, scored
made, folder = Experiment(Path({made!r})), Path({folder!r})
for given in (made.lora, made.full):
    again = Trained(folder / given.folder.name, given.lora)
    again.train_sft(made.data)
    again.train_rm(made.data)
    scored(made, given, folder / f"{{given.folder.name}}_scores.parquet")
"""


def test_a_fresh_process_trains_the_same_weights_and_rebuilds_the_scores(experiment, tmp_path):
    in_fresh_process(FRESH.format(made=str(experiment.folder), folder=str(tmp_path)))
    for given in (experiment.lora, experiment.full):
        again = Trained(tmp_path / given.folder.name, given.lora)
        for name in ("sft", "sft_log", "weights", "log", "trained"):
            assert content_hash(getattr(again, name)) == content_hash(getattr(given, name)), name
        scores = artifact.read(tmp_path / f"{given.folder.name}_scores.parquet", tables.SCORES)
        checks = check_scores(artifact.read(given.log, tables.TRAINING_LOG))
        both = scores.join(checks, on="pair_id", suffix="_trained")
        assert both.height == 4
        for side in ("reward_chosen", "reward_rejected"):
            assert both[side].to_numpy() == pytest.approx(both[f"{side}_trained"].to_numpy(), abs=1e-5)


def order_of(trainers):
    return [pair for batch in trainers[-1].batches for pair in sequences(batch)]


def test_the_data_seed_decides_the_order_and_the_init_seed_the_weights(experiment, out, trainers):
    orders, hashes = {}, {}
    for name, seeds in {
        "plain": {},
        "again": {},
        "other_data": {"data_seed": 6},
        "other_init": {"init_seed": 4},
    }.items():
        out.train_rm(experiment.data, experiment.lora.sft, epochs=2, **seeds)
        orders[name], hashes[name] = order_of(trainers), content_hash(out.weights)
    assert orders["plain"] == orders["again"] == orders["other_init"] != orders["other_data"]
    assert orders["plain"][:24] != orders["plain"][24:]
    assert hashes["plain"] == hashes["again"]
    assert len(set(hashes.values())) == 3


def test_gradient_checkpointing_changes_nothing(experiment, out):
    out.train_rm(experiment.data, experiment.lora.sft, gradient_checkpointing=True)
    assert losses(out.log) == pytest.approx(losses(experiment.lora.log), abs=1e-6)
    assert distance(out.weights, experiment.lora.weights) < 1e-5


@BOTH
def test_bfloat16_keeps_weights_head_and_rewards_in_float32(experiment, tmp_path, way):
    given = getattr(experiment, way)
    half = Trained(tmp_path, given.lora)
    half.train_rm(experiment.data, given.sft, precision="bfloat16")
    frame = artifact.read(half.weights, tables.WEIGHTS)
    assert frame["dtype"].unique().to_list() == ["float32"]
    scorer = Scorer(experiment.data.backbone, given.sft, half.weights, "cpu", 1, 256)
    tokens = artifact.read(experiment.data.tokens, tables.TOKENIZED)
    scorer.check_reload(tokens, half.log)
    rewards = scorer.pairs(tokens)["reward_chosen"]
    assert scorer.precision == "bfloat16"
    assert (rewards.to_torch() != rewards.to_torch().bfloat16().float()).any()
    assert losses(half.log) == pytest.approx(losses(given.log), abs=0.01)
    assert losses(half.log) != losses(given.log)


def test_trls_collator_pads_on_the_right_puts_chosen_first_and_ignores_other_columns():
    collate = DataCollatorForPreference(pad_token_id=9)
    rows = [
        {"pair_id": "a", "chosen_ids": [1, 2, 3], "rejected_ids": [4]},
        {"pair_id": "b", "chosen_ids": [5], "rejected_ids": [9, 6]},
    ]
    found = {key: value.tolist() for key, value in collate(rows).items()}
    assert found == {
        "input_ids": [[1, 2, 3], [5, 9, 9], [4, 9, 9], [9, 6, 9]],
        "attention_mask": [[1, 1, 1], [1, 0, 0], [1, 0, 0], [1, 1, 0]],
    }


def test_a_loss_that_is_not_finite_writes_nothing(experiment, out):
    with pytest.raises(
        UserError, match=r"^training step 3: \w+ is not finite.*Hint: lower the learning rate"
    ):
        out.train_rm(experiment.data, experiment.lora.sft, learning_rate=1e30)
    assert list(out.folder.iterdir()) == []


@BOTH
def test_sft_weights_of_another_backbone_are_refused(experiment, tmp_path, way):
    given = getattr(experiment, way)
    out, data = Trained(tmp_path, given.lora), experiment.data.change(backbone=experiment.other_backbone)
    with pytest.raises(
        UserError, match=r"sft.parquet: not trained on top of .*other_backbone.*run sft again"
    ):
        out.train_rm(data, given.sft)
    assert list(out.folder.iterdir()) == []


def test_a_target_module_that_the_backbone_lacks(experiment, out):
    lora = LORA | {"target_modules": ["q_proj", "c_attn"]}
    for train in (out.train_sft, lambda data, **changes: out.train_rm(data, experiment.full.sft, **changes)):
        with pytest.raises(
            UserError, match=r"^config: lora.target_modules: 'c_attn' is no linear layer"
        ) as error:
            train(experiment.data, lora=lora)
        assert "\n" not in str(error.value)
    assert list(out.folder.iterdir()) == []


def test_the_settings_are_in_the_record(experiment, tmp_path):
    from rm_memorization.stages.train_rm import train_rm

    data, record = experiment.data, tmp_path / "run_records" / "train_rm.r01.json"
    settings = json.dumps({"lora": LORA, "epochs": 1, "batch_size": 24, "warmup_ratio": 0})
    names = ("weights", "log", "trained")
    paths = [tmp_path / f"{name}.parquet" for name in names]
    train_rm(
        data.manifest,
        data.tokens,
        data.backbone,
        experiment.lora.sft,
        settings,
        *paths,
        threads=1,
        device="cpu",
        record=record,
    )
    content = json.loads(record.read_text())
    assert content["params"]["settings"]["batch_size"] == 24
    assert content["params"]["settings"]["head_std"] == 0.02
    assert set(content["outputs"]) == {f"{name}.parquet" for name in names}
    assert sorted(content["inputs"].values()) == sorted(
        content_hash(path) for path in (data.manifest, data.tokens, data.backbone, experiment.lora.sft)
    )
