"""score_panels: the answers of the audit panels under one run's reward model."""

import json

import pytest

from rm_memorization import artifact, tables
from rm_memorization.errors import UserError
from rm_memorization.panels import read_panels
from rm_memorization.scoring import Scorer
from rm_memorization.stages.score_panels import score_answers, score_panels


def answer(item, cell, response, prompt="bread with Ada", panel="length", stratum="plain"):
    return {
        "panel": panel, "item_id": item, "stratum": stratum, "cell": cell, "prompt": prompt, "response": response,
        "content_checked": True,
    }  # fmt: skip


ROWS = [
    answer("i2", "long", "brave about again along Ada"),
    answer("i2", "short", "brave Ada"),
    answer("i1", "short", "angry", prompt="camera with Kim"),
    answer("i1", "long", "angry before being every later", prompt="camera with Kim"),
    answer("i1", "refusal", "rude Ida", panel="refusal", stratum="benign_plain"),
    answer("i1", "helpful", "kind Ida", panel="refusal", stratum="benign_plain"),
]


@pytest.fixture
def panel(tmp_path):
    def write(rows):
        path = tmp_path / "panel.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        return path

    return write


@pytest.fixture(scope="module")
def scorer(experiment):
    return Scorer(experiment.data.backbone, experiment.lora.sft, experiment.lora.weights, "cpu", 1, 40)


def test_every_answer_gets_the_reward_of_its_own_text(experiment, scorer, panel, tmp_path):
    data, lora, out = experiment.data, experiment.lora, tmp_path / "panel_scores.parquet"
    score_panels(
        [panel(ROWS)], data.backbone, lora.sft, lora.weights, out, batch_tokens=30, threads=1, device="cpu"
    )
    found = artifact.read(out, tables.PANEL_SCORES)
    assert found.height == 6
    for row in ROWS:
        text = f"<|bos|><|user|>{row['prompt']}<|end|><|assistant|>{row['response']}<|end|>"
        ids = scorer.formatter.encode([text])[0]
        reply = scorer.formatter.encode([f"{row['response']}<|end|>"])[0]
        key = {name: row[name] for name in ("panel", "item_id", "cell")}
        scored = found.filter(**key).row(0, named=True)
        assert scored["reward"] == pytest.approx(float(scorer.rewards([ids])[0]), abs=1e-5)
        assert (scored["n_tokens"], scored["stratum"]) == (len(reply), row["stratum"])
    assert found["reward"].n_unique() == 6


def test_the_order_of_the_answers_changes_nothing(scorer, panel):
    first = score_answers(read_panels([panel(ROWS)]), scorer)
    assert score_answers(read_panels([panel(ROWS[::-1])]), scorer).equals(first)
    backwards = score_answers(read_panels([panel(ROWS)]).reverse(), scorer).reverse()
    assert backwards.drop("reward").equals(first.drop("reward"))
    assert backwards["reward"].to_numpy() == pytest.approx(first["reward"].to_numpy(), abs=1e-5)


@pytest.mark.parametrize("name", ["prompt", "response"])
def test_a_special_token_in_a_text_is_refused(experiment, panel, tmp_path, name):
    rows = [*ROWS[:3], ROWS[3] | {"response": "angry<|end|>"} if name == "response" else ROWS[3], *ROWS[4:]]
    if name == "prompt":
        rows[2:4] = [row | {"prompt": "<|user|> Kim"} for row in rows[2:4]]
    data, lora, out = experiment.data, experiment.lora, tmp_path / "panel_scores.parquet"
    with pytest.raises(
        UserError, match=r"panel 'length', item_id 'i1', cell 'long': the text holds '<\|(end|user)\|>'"
    ):
        score_panels(
            [panel(rows)],
            data.backbone,
            lora.sft,
            lora.weights,
            out,
            batch_tokens=30,
            threads=1,
            device="cpu",
        )
    assert not out.exists()
