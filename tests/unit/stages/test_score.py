"""score: every pair under one run's reward model."""

import polars as pl
import pytest
from tiny_experiment import scored

from rm_memorization import artifact, tables
from rm_memorization.errors import UserError
from rm_memorization.scoring import Scorer
from rm_memorization.stages.score import score

BOTH = pytest.mark.parametrize("way", ["lora", "full"])


@BOTH
def test_every_pair_is_scored_held_out_or_not(experiment, tmp_path, way):
    scored(experiment, getattr(experiment, way), tmp_path / "scores.parquet")
    scores = artifact.read(tmp_path / "scores.parquet", tables.SCORES)
    tokens = artifact.read(experiment.data.tokens, tables.TOKENIZED)
    assert scores["pair_id"].equals(tokens["pair_id"])
    assert scores.height == 32 > artifact.read(experiment.data.manifest, tables.MANIFEST).height


@BOTH
def test_the_batch_plan_and_the_order_of_the_tokens_change_no_score(experiment, tmp_path, way):
    given, data = getattr(experiment, way), experiment.data
    frames = []
    for batch_tokens in (1, 100, 10_000):
        path = tmp_path / f"{batch_tokens}.parquet"
        paths = (data.tokens, data.backbone, given.sft, given.weights, given.log, path)
        score(*paths, batch_tokens=batch_tokens, threads=1, device="cpu")
        frames.append(artifact.read(path, tables.SCORES))
    for frame in frames[1:]:
        for side in ("reward_chosen", "reward_rejected"):
            assert frame[side].to_numpy() == pytest.approx(frames[0][side].to_numpy(), abs=1e-5)


def test_equal_scores_give_equal_bytes(experiment, tmp_path):
    for name in ("a", "b"):
        scored(experiment, experiment.lora, tmp_path / f"{name}.parquet")
    assert (tmp_path / "a.parquet").read_bytes() == (tmp_path / "b.parquet").read_bytes()


def test_a_model_rebuilt_without_its_sft_writes_nothing(experiment, tmp_path, monkeypatch):
    from rm_memorization import scoring

    merge = scoring.merge
    monkeypatch.setattr(scoring, "merge", lambda *args: "sft" in args[2] and merge(*args))
    with pytest.raises(
        UserError, match=r"of a check pair differs by .* the weights do not rebuild the model"
    ):
        scored(experiment, experiment.lora, tmp_path / "scores.parquet")
    assert not (tmp_path / "scores.parquet").exists()


def test_the_log_of_another_training_is_noticed(experiment, tmp_path):
    data, lora, full = experiment.data, experiment.lora, experiment.full
    paths = (data.tokens, data.backbone, lora.sft, lora.weights, full.log, tmp_path / "scores.parquet")
    with pytest.raises(UserError, match=r"full/log.parquet: reward_chosen of a check pair differs"):
        score(*paths, batch_tokens=100, threads=1, device="cpu")


def test_training_moves_pairs_that_were_trained_on(experiment):
    """With enough steps the included pairs are fitted: what is scored is what was trained."""
    scorer = Scorer(experiment.data.backbone, experiment.full.sft, experiment.full.weights, "cpu", 1, 1000)
    tokens = artifact.read(experiment.data.tokens, tables.TOKENIZED)
    included = artifact.read(experiment.data.manifest, tables.MANIFEST)["pair_id"].implode()
    scores = scorer.pairs(tokens).with_columns(margin=pl.col("reward_chosen") - pl.col("reward_rejected"))
    assert scores.filter(pl.col("pair_id").is_in(included))["margin"].mean() > 0.02
