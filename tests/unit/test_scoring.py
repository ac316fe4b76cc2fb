"""Rewards under a rebuilt reward model."""

import polars as pl
import pytest
import torch
from transformers.modeling_outputs import SequenceClassifierOutput

from rm_memorization import artifact, tables, weights
from rm_memorization.errors import UserError
from rm_memorization.scoring import Scorer, check_scores, rewards, score_pairs, use


@pytest.fixture(scope="module", params=["lora", "full"])
def trained(request, experiment):
    return getattr(experiment, request.param)


@pytest.fixture(scope="module")
def scorer(experiment, trained):
    return Scorer(experiment.data.backbone, trained.sft, trained.weights, "cpu", 1, batch_tokens=200)


@pytest.fixture(scope="module")
def tokens(experiment):
    return artifact.read(experiment.data.tokens, tables.TOKENIZED)


def test_batches_change_no_reward(scorer, tokens):
    together, alone = scorer.pairs(tokens), score_pairs(scorer.model, tokens, 0, "float32", batch_tokens=1)
    for side in ("reward_chosen", "reward_rejected"):
        assert together[side].to_numpy() == pytest.approx(alone[side].to_numpy(), abs=1e-5)
        assert together[side].std() > 1e-3


def test_scores_stand_in_the_order_of_the_tokens(scorer, tokens):
    shuffled = tokens.sample(fraction=1.0, shuffle=True, seed=3)
    scores = scorer.pairs(shuffled)
    assert scores["pair_id"].equals(shuffled["pair_id"])
    assert scores.schema == {"pair_id": pl.String, "reward_chosen": pl.Float32, "reward_rejected": pl.Float32}
    expected = scorer.pairs(tokens).sort("pair_id")
    for side in ("reward_chosen", "reward_rejected"):
        assert scores.sort("pair_id")[side].to_numpy() == pytest.approx(expected[side].to_numpy(), abs=1e-5)


def test_a_score_is_the_reward_of_prefix_and_remainder(scorer, tokens):
    row = tokens.row(5, named=True)
    whole = [row["prefix_ids"] + row[side] for side in ("chosen_ids", "rejected_ids")]
    scores = scorer.pairs(tokens[5:6]).row(0)[1:]
    assert scores == pytest.approx(scorer.rewards(whole).tolist(), abs=1e-6)
    with torch.no_grad():
        hidden = [
            scorer.model.decoder(input_ids=torch.tensor([ids])).last_hidden_state[0, -1] for ids in whole
        ]
        by_hand = [(state @ scorer.model.score.weight[0]).item() for state in hidden]
    assert scores == pytest.approx(by_hand, abs=1e-5)


def test_the_rebuilt_model_is_in_evaluation_mode(scorer):
    assert not any(module.training for module in scorer.model.modules())


def test_rewards_of_nothing(scorer):
    assert scorer.rewards([]).shape == (0,)


def test_rewards_that_are_not_finite_are_refused():
    class Model(torch.nn.Linear):
        def forward(self, input_ids, attention_mask):
            first = input_ids[:, :1].float()
            return SequenceClassifierOutput(logits=torch.where(first == 7, torch.nan, first))

    model = Model(1, 1)
    assert rewards(model, [[4, 7], [3]], 0, "float32", 10).tolist() == [4.0, 3.0]
    with pytest.raises(UserError, match="rewards: 2 of 3 are not finite"):
        rewards(model, [[7], [4], [7, 1]], 0, "float32", 10)


def test_the_trained_scores_are_reproduced(scorer, tokens, trained):
    scorer.check_reload(tokens, trained.log)
    checks = check_scores(artifact.read(trained.log, tables.TRAINING_LOG))
    assert checks.height == 4
    scores = scorer.pairs(tokens).join(checks, on="pair_id", suffix="_trained")
    for side in ("reward_chosen", "reward_rejected"):
        assert scores[side].to_numpy() == pytest.approx(scores[f"{side}_trained"].to_numpy(), abs=1e-6)


def test_check_scores():
    rows = [
        (9, "reward_rejected", "b", 4.0),
        (9, "reward_chosen", "b", 3.0),
        (9, "loss", "", 0.5),
        (9, "reward_chosen", "a", 1.0),
        (9, "reward_rejected", "a", 2.0),
    ]
    log = pl.DataFrame(rows, schema=["step", "metric", "pair_id", "value"], orient="row")
    assert check_scores(log).rows() == [("a", 1.0, 2.0), ("b", 3.0, 4.0)]


def changed(log, tmp_path, change):
    """Write a log with its reward_chosen changed."""
    frame = artifact.read(log, tables.TRAINING_LOG)
    value = pl.when(pl.col("metric") == "reward_chosen").then(change(pl.col("value"))).otherwise("value")
    artifact.write(frame.with_columns(value=value), tables.TRAINING_LOG, tmp_path / "log.parquet")
    return tmp_path / "log.parquet"


def test_another_model_is_noticed(scorer, tokens, trained, tmp_path):
    scorer.check_reload(tokens, changed(trained.log, tmp_path, lambda value: value + 5e-5))
    with pytest.raises(
        UserError, match=r"reward_chosen of a check pair differs by 0\.0002.*run train_rm again"
    ):
        scorer.check_reload(tokens, changed(trained.log, tmp_path, lambda value: value + 2e-4))


def test_a_check_pair_that_is_gone(scorer, tokens, trained):
    gone = check_scores(artifact.read(trained.log, tables.TRAINING_LOG))["pair_id"][0]
    with pytest.raises(UserError, match="1 of 4 check pairs are not among the tokens"):
        scorer.check_reload(tokens.filter(pl.col("pair_id") != gone), trained.log)


def test_a_log_without_check_scores(scorer, tokens, trained):
    with pytest.raises(
        UserError, match=r"sft_log.parquet: no check scores in it. Hint: give the log of train_rm"
    ):
        scorer.check_reload(tokens, trained.sft_log)


def test_another_backbone_is_refused(experiment, trained):
    with pytest.raises(
        UserError, match=r"sft.parquet: not trained on top of .*other_backbone.*run sft again"
    ):
        Scorer(experiment.other_backbone, trained.sft, trained.weights, "cpu", 1, 100)


def test_weights_of_another_sft_are_refused(experiment):
    data, lora, full = experiment.data, experiment.lora, experiment.full
    with pytest.raises(
        UserError, match=r"lora/weights.parquet: not trained on top of .*full/sft.parquet.*run train_rm again"
    ):
        Scorer(data.backbone, full.sft, lora.weights, "cpu", 1, 100)
    with pytest.raises(UserError, match=r"sft.parquet: not trained on top of .*sft.parquet"):
        Scorer(data.backbone, lora.sft, lora.sft, "cpu", 1, 100)


def test_weights_from_before_the_check_are_refused(experiment, tmp_path):
    tensors, properties = weights.load(experiment.lora.sft, "sft")
    weights.save(tensors, tmp_path / "sft.parquet", {k: v for k, v in properties.items() if k != "backbone"})
    with pytest.raises(UserError, match="The backbone it was trained on has None"):
        Scorer(experiment.data.backbone, tmp_path / "sft.parquet", experiment.lora.weights, "cpu", 1, 100)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_cuda_without_a_gpu():
    with pytest.raises(UserError, match="'cuda', but torch sees no GPU"):
        use("cuda", 1)


def test_use_pins_threads():
    before = torch.get_num_threads()
    use("cpu", 2)
    assert torch.get_num_threads() == 2
    use("cpu", before)
