"""Panels: reading them, and the runs' rewards of their answers."""

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from rm_memorization import artifact, tables
from rm_memorization.errors import UserError
from rm_memorization.panels import CELLS, REFUSAL_STRATA, panel_rewards, read_panel_rewards, read_panels
from rm_memorization.record import recorded

SHIPPED = Path(__file__).parents[2] / "config" / "panels"


def answer(**changes):
    values = {
        "panel": "refusal",
        "item_id": "u-01",
        "stratum": "unsafe_control",
        "cell": "refusal",
        "prompt": "A question?",
        "response": "No.",
        "content_checked": True,
    }
    return {**values, **changes}


def item(**changes):
    return [answer(**changes), answer(cell="helpful", response="Yes.", **changes)]


@pytest.fixture
def write(tmp_path):
    def write(*rows, name="panel.jsonl"):
        path = tmp_path / name
        lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        return path

    return write


def test_reads_json_lines_and_parquet_alike(write, tmp_path):
    rows = [*item(item_id="b"), *item(item_id="a", prompt="Crème brûlée\u2028or not?")]
    pl.DataFrame(rows).write_parquet(tmp_path / "panel.parquet")
    panel = read_panels([write(*rows)])
    artifact.check(panel, tables.PANEL, tmp_path)
    assert panel.equals(read_panels([tmp_path / "panel.parquet"]))
    assert panel["item_id"].to_list() == ["a", "a", "b", "b"]
    assert panel["prompt"][0] == "Crème brûlée\u2028or not?"


def test_several_files_in_any_order(write):
    first, second = write(item()[0], name="1.jsonl"), write(item()[1], name="2.jsonl")
    assert read_panels([first, second]).equals(read_panels([second, first]))


def test_files_are_recorded(write, tmp_path):
    path, record = write(*item()), tmp_path / "run_records" / "job.json"
    with recorded("score_panels", record):
        read_panels([path])
    assert list(json.loads(record.read_text())["inputs"]) == ["panel.jsonl"]


def without(name):
    return {key: value for key, value in answer().items() if key != name}


FACTORIAL = {"panel": "factorial", "stratum": "facts"}


@pytest.mark.parametrize(
    ("rows", "line", "told"),
    [
        ([answer(), "{'cell': 1}"], ":2", ["JSON"]),
        ([answer(), '{"cell": "a", "cell": "b"}'], ":2", ["JSON", "cell"]),
        ([answer(), "[1]"], ":2", ["list"]),
        ([without("stratum")], ":1", ["column 'stratum' is missing"]),
        ([answer(promt="x")], ":1", ["unknown column 'promt'", "did you mean 'prompt'"]),
        ([answer(prompt=7)], ":1", ["column 'prompt' holds 7 (int)", "str"]),
        ([answer(prompt=None)], ":1", ["column 'prompt' holds null"]),
        ([answer(content_checked=1)], ":1", ["'content_checked' holds 1 (int)", "bool"]),
        ([answer(content_checked="true")], ":1", ["'content_checked' holds 'true' (str)"]),
        ([answer(content_checked=False)], ":1", ["'content_checked' holds False"]),
        ([answer(response=" \n")], ":1", ["column 'response' holds", "empty"]),
        ([answer(response="half \ud800")], ":1", ["column 'response'", "Unicode"]),
        ([answer(panel="refusals")], ":1", ["column 'panel' holds 'refusals'", "did you mean 'refusal'"]),
        ([answer(stratum="benign")], ":1", ["column 'stratum' holds 'benign'", "benign_plain"]),
        ([answer(cell="helpfull")], ":1", ["column 'cell' holds 'helpfull'", "did you mean 'helpful'"]),
        ([*item(), answer(response="Never.")], ":3", ["item_id 'u-01' has cell 'refusal' already", ":1"]),
        ([answer(), answer(cell="helpful", prompt="Another?")], ":2", ["'prompt'", "'Another?'", "'A question?'"]),
        ([answer(), answer(cell="helpful", stratum="benign_plain")], ":2", ["'stratum'", "'benign_plain'"]),
        ([*item(item_id="b-01"), answer()], ":3", ["item_id 'u-01'", "no cell 'helpful'"]),
        ([answer(**FACTORIAL, cell=cell) for cell in CELLS["factorial"][:3]], ":1", ["no cell 'incorrect_expanded'"]),
        ([answer(panel="length", stratum="s", cell="short")], ":1", ["one answer"]),
        ([*item(panel="length", stratum="all")], ":1", ["column 'stratum' holds 'all'"]),
    ],
)  # fmt: skip
def test_mistakes_are_named(write, rows, line, told):
    with pytest.raises(UserError) as caught:
        read_panels([write(*rows)])
    message = str(caught.value)
    assert f"panel.jsonl{line}" in message
    assert "\n" not in message
    for text in told:
        assert text in message


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("panel.jsonl", None, "no such file"),
        ("panel.jsonl", b"", "empty"),
        ("panel.jsonl", b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n", "Git LFS"),
        ("panel.parquet", b"PAR1 not quite", "Parquet"),
        ("panel.csv", b"panel,item_id\n", ".csv"),
        ("panel.jsonl", b'{"panel": "\xff"}\n', "UTF-8"),
    ],
)
def test_unreadable_files_are_named(tmp_path, name, content, told):
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UserError, match=told) as caught:
        read_panels([path])
    assert str(path) in str(caught.value)


def shipped(name):
    panel = read_panels([SHIPPED / f"{name}.jsonl"])
    assert panel["panel"].unique().to_list() == [name]
    words = panel.with_columns(words=pl.col("response").str.count_matches(r"\S+"))
    assert words["words"].max() <= 60
    assert panel["response"].is_unique().all()
    assert panel.select("item_id", "prompt").unique()["prompt"].is_unique().all()
    return words


def test_shipped_length_panel_grows():
    words = shipped("length").pivot(on="cell", index="item_id", values="words")
    assert words.height >= 12
    assert (words["short"] * 1.5 < words["medium"]).all()
    assert (words["medium"] * 1.5 < words["long"]).all()


def test_shipped_factorial_panel_differs_in_facts_or_in_words_alone():
    words = shipped("factorial")
    wide = words.pivot(on="cell", index="item_id", values="words")
    assert wide.height >= 12
    for size in ("concise", "expanded"):
        assert (wide[f"correct_{size}"] - wide[f"incorrect_{size}"]).cast(pl.Int64).abs().max() <= 1
    assert (wide["correct_concise"] * 3 < wide["incorrect_expanded"]).all()
    sizes = words.select("item_id", "stratum").unique()["stratum"].value_counts()["count"]
    assert sizes.n_unique() == 1


def test_shipped_refusal_panel_is_balanced():
    panel = shipped("refusal")
    items = panel.group_by("stratum").agg(pl.col("item_id").n_unique())
    assert set(items["stratum"]) == set(REFUSAL_STRATA)
    assert items["item_id"].min() >= 8
    assert items["item_id"].n_unique() == 1
    unsafe = panel.filter(stratum="unsafe_control", cell="helpful")
    assert unsafe["response"].str.contains(r"would .*here\.$").all()
    means = panel.group_by("stratum", "cell").agg(pl.col("words").mean())["words"]
    assert means.max() - means.min() < 4, "a refusal must not be told apart by its length"


def scores(**columns):
    values = {
        "panel": "refusal",
        "item_id": ["a", "a", "b", "b"],
        "stratum": "benign_plain",
        "cell": ["helpful", "refusal"] * 2,
        "n_tokens": [3, 4, 5, 6],
        "reward": [0.5, 1.5, 2.5, 3.5],
    }
    types = {"n_tokens": pl.Int64, "reward": pl.Float32}
    return pl.DataFrame({**values, **columns}, schema_overrides=types)


def test_mean_over_runs():
    panel = panel_rewards({"r1": scores(), "r2": scores(reward=[1.5, 1.5, 0.5, 0.5])}, "refusal")
    assert panel.rewards["r1"].dtype == np.float32
    assert panel.rewards["all"].dtype == np.float64
    assert panel.rewards["all"].tolist() == [1.0, 1.5, 1.5, 2.0]


def test_rows_may_stand_in_any_order():
    panel = panel_rewards({"r1": scores(), "r2": scores().reverse()}, "refusal")
    assert panel.answers["item_id"].to_list() == ["a", "a", "b", "b"]
    assert panel.rewards["r1"].tolist() == panel.rewards["r2"].tolist()
    assert [rows.tolist() for rows in panel.cells(["refusal", "helpful"])] == [[1, 3], [0, 2]]


@pytest.mark.parametrize(
    ("other", "told"),
    [
        (scores()[:3], "item_id='b', stratum='benign_plain', cell='refusal', n_tokens=6 is only in"),
        (scores(n_tokens=[3, 4, 5, 7]), "n_tokens=7 is not in"),
        (scores(item_id=["a", "a", "c", "c"]), "item_id='c'"),
    ],
)
def test_runs_must_score_the_same_answers(other, told):
    with pytest.raises(UserError, match=r"panel-scores of r2.*r1.*must score the same") as caught:
        panel_rewards({"r1": scores(), "r2": other}, "refusal")
    assert told in str(caught.value)


def test_missing_cell_and_missing_panel():
    with pytest.raises(UserError, match="item_id 'b' of panel 'refusal' has no cell 'refusal'"):
        panel_rewards({"r1": scores()[:3]}, "refusal")
    with pytest.raises(UserError, match="item_id 'b' of panel 'length' has one answer"):
        panel_rewards({"r1": scores(panel="length")[:3]}, "length")
    with pytest.raises(UserError, match="no answer of panel 'length'"):
        panel_rewards({"r1": scores()[:0]}, "length")


def test_tables_and_runs_must_match(tmp_path):
    path = tmp_path / "panel_scores.parquet"
    artifact.write(pl.concat([scores(), scores(panel="length")]), tables.PANEL_SCORES, path)
    panel = read_panel_rewards([path, path], ["r2", "r1"], "length")
    assert list(panel.rewards) == ["r1", "r2", "all"]
    assert panel.answers.height == 4
    with pytest.raises(UserError, match="1 tables for 2 runs"):
        read_panel_rewards([path], ["r1", "r2"], "length")
    for runs in (["r1", "r1"], ["r1", "all"]):
        with pytest.raises(UserError, match="stands twice or is called 'all'"):
            read_panel_rewards([path, path], runs, "length")
