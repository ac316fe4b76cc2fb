"""What both trainings share."""

import math
import re
from pathlib import Path
from types import SimpleNamespace

import polars as pl
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, LlamaModel
from trl import RewardConfig, SFTConfig

from rm_memorization import artifact, tables, training
from rm_memorization.errors import UserError
from rm_memorization.recipe import RECIPE, Lora, RewardTraining, Training
from rm_memorization.reward_model import RewardModel

SIZES = {
    "vocab_size": 20,
    "hidden_size": 8,
    "intermediate_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
}
LORA = Lora(rank=2, alpha=4, target_modules=["q_proj", "down_proj"])
ADAPTED = [
    f"layers.{layer}.{module}.lora_{side}.weight"
    for layer in (0, 1)
    for module in ("mlp.down_proj", "self_attn.q_proj")
    for side in "AB"
]


def language_model(**changes):
    return LlamaForCausalLM(LlamaConfig(**SIZES | changes))


def reward_model():
    return RewardModel(LlamaModel(LlamaConfig(**SIZES)), 0.02)


def test_adapters_of_a_language_model_have_canonical_names():
    model = training.adapt(language_model(), LORA, head=False)
    assert sorted(training.trained_tensors(model, LORA)) == ADAPTED
    assert {name.rpartition(".lora_")[1] for name, p in model.named_parameters() if p.requires_grad} == {
        ".lora_"
    }


def test_adapters_and_head_of_a_reward_model_are_all_that_is_trained_and_stored():
    model = training.adapt(reward_model(), LORA, head=True)
    tensors = training.trained_tensors(model, LORA)
    assert sorted(tensors) == sorted([*ADAPTED, "score.weight"])
    assert sum(t.numel() for t in tensors.values()) == sum(
        p.numel() for p in model.parameters() if p.requires_grad
    )
    head = model.get_base_model().score.modules_to_save["default"].weight
    assert torch.equal(tensors["score.weight"], head)
    assert (head.requires_grad, head.dtype) == (True, torch.float32)


@pytest.mark.parametrize("tie_word_embeddings", [True, False])
def test_all_weights_are_the_decoders_without_the_language_models_head(tie_word_embeddings):
    model = language_model(tie_word_embeddings=tie_word_embeddings)
    assert training.adapt(model, None, head=False) is model
    expected = {name: p.detach() for name, p in model.model.named_parameters()}
    found = training.trained_tensors(model, None)
    assert sorted(found) == sorted(expected)
    assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())
    names = {name for name, _ in reward_model().decoder.named_parameters()}
    assert set(training.trained_tensors(reward_model(), None)) == names | {"score.weight"}


@pytest.mark.parametrize("target", ["c_attn", "lm_head", "score", "proj", "self_attn", "embed_tokens"])
@pytest.mark.parametrize("head", [True, False])
def test_a_target_that_is_no_linear_layer_of_the_decoder(target, head):
    model = reward_model() if head else language_model()
    message = (
        f"config: lora.target_modules: {target!r} is no linear layer of this backbone's decoder. "
        "Hint: it has down_proj, gate_proj, k_proj, o_proj, q_proj, up_proj, v_proj"
    )
    with pytest.raises(UserError, match=f"^{re.escape(message)}$"):
        training.adapt(model, Lora(target_modules=["q_proj", target]), head=head)


def test_a_weight_that_is_not_finite_is_not_given_out():
    model = reward_model()
    model.decoder.norm.weight.data[3] = math.inf
    with pytest.raises(UserError, match=r"the last training step: tensor 'norm.weight' is not finite"):
        training.trained_tensors(model, None)


def test_a_broken_value_stops_the_training_with_its_step():
    stop, state = training.StopIfDiverged(), SimpleNamespace(global_step=17)
    stop.on_log(None, state, None, logs={"loss": 0.5, "grad_norm": 1.0, "note": "nan"})
    for value in (math.nan, math.inf, -math.inf):
        with pytest.raises(
            UserError, match=r"^training step 17: grad_norm is not finite\. Nothing is written"
        ):
            stop.on_log(None, state, None, logs={"loss": 0.5, "grad_norm": value})


def test_log_table(tmp_path):
    history = [
        {"loss": 0.7, "learning_rate": 0.1, "epoch": 0.5, "step": 1},
        {"loss": 0.6, "learning_rate": 0.0, "epoch": 1.0, "step": 2},
        {"train_runtime": 12.5, "train_loss": 0.65, "epoch": 1.0, "step": 2},
    ]
    checks = pl.DataFrame(
        {"pair_id": ["b", "a"], "reward_chosen": [1.5, -2.0], "reward_rejected": [0.1, 0.0]},
        schema_overrides={"reward_chosen": pl.Float32, "reward_rejected": pl.Float32},
    )
    artifact.write(training.log_table(history, checks), tables.TRAINING_LOG, tmp_path / "log.parquet")
    assert artifact.read(tmp_path / "log.parquet", tables.TRAINING_LOG).rows() == [
        (1, "epoch", "", 0.5),
        (1, "learning_rate", "", 0.1),
        (1, "loss", "", 0.7),
        (2, "epoch", "", 1.0),
        (2, "learning_rate", "", 0.0),
        (2, "loss", "", 0.6),
        (2, "reward_chosen", "a", -2.0),
        (2, "reward_chosen", "b", 1.5),
        (2, "reward_rejected", "a", 0.0),
        (2, "reward_rejected", "b", 0.10000000149011612),
    ]


@pytest.mark.parametrize("config", [SFTConfig, RewardConfig])
def test_arguments_are_the_recipes_and_leave_nothing_behind(config):
    recipe = Training(
        epochs=7, batch_size=3, accumulation=5, learning_rate=0.25, schedule="cosine", warmup_ratio=0.1,
        weight_decay=0.02, max_grad_norm=0.5, init_seed=11, data_seed=13,
    )  # fmt: skip
    with training.arguments(config, recipe, "cpu") as args:
        assert Path(args.output_dir).is_dir()
    assert not Path(args.output_dir).exists()
    found = (args.num_train_epochs, args.per_device_train_batch_size, args.gradient_accumulation_steps)
    assert found == (7, 3, 5)
    assert (args.learning_rate, args.lr_scheduler_type, args.get_warmup_steps(50)) == (0.25, "cosine", 5)
    assert (args.weight_decay, args.max_grad_norm, args.seed, args.data_seed) == (0.02, 0.5, 11, 13)
    assert (args.bf16, args.fp16, args.gradient_checkpointing, args.max_length) == (False, False, False, None)
    assert (args.report_to, args.push_to_hub, args.logging_nan_inf_filter) == ([], False, False)
    assert (args.train_batch_size, args.device.type, args.dataloader_drop_last) == (3, "cpu", False)


def test_properties_say_how_and_on_what(tmp_path):
    origin = tmp_path / "trained.parquet"
    digest = artifact.write(pl.DataFrame({"pair_id": ["a"], "seen": [1]}), tables.TRAINED, origin)
    assert training.properties(RewardTraining(lora=None, precision="bfloat16"), sft=origin) == {
        "recipe": RECIPE,
        "lora": None,
        "precision": "bfloat16",
        "sft": digest,
    }
    assert training.properties(Training(lora=LORA))["lora"] == {
        "rank": 2,
        "alpha": 4,
        "target_modules": ["q_proj", "down_proj"],
    }
