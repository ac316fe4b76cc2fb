"""The 2×2 audit."""

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rm_memorization import artifact, tables
from rm_memorization.errors import UserError
from rm_memorization.panels import CELLS, panel_rewards
from rm_memorization.stages.audit_factorial import audit_factorial, contrasts, factorial

NAMES = CELLS["factorial"]


def scores(*prompts, strata=None):
    """Score prompts, each by its rewards cc, ce, ic, ie."""
    ids = [f"f-{number:02d}" for number in range(len(prompts))]
    return pl.DataFrame(
        {
            "panel": "factorial",
            "item_id": [item for item in ids for _ in NAMES],
            "stratum": [stratum for stratum in strata or ["facts"] * len(ids) for _ in NAMES],
            "cell": list(NAMES) * len(ids),
            "n_tokens": [5, 20, 5, 20] * len(ids),
            "reward": np.array(prompts, dtype=np.float32).ravel(),
        }
    )


def audit(*prompts, strata=None):
    return factorial(panel_rewards({"r1": scores(*prompts, strata=strata)}, "factorial"), 200, seed=1)


def value(table, metric, run="r1", stratum="all", column="estimate"):
    return table.row(by_predicate=(pl.col("run") == run) & (pl.col("stratum") == stratum) & (pl.col("metric") == metric), named=True)[column]  # fmt: skip


def test_contrasts_by_hand():
    found = contrasts(*np.array([[5.0, 2.0], [7.0, 2.0], [4.0, 1.0], [5.5, 2.0]], dtype=np.float32))
    assert {name: values.tolist() for name, values in found.items()} == {
        "correctness": [1.25, 0.5],
        "expansion": [1.75, 0.5],
        "interaction": [0.5, -1.0],
        "correctness_when_concise": [1.0, 1.0],
        "trap": [-0.5, 0.0],
        "share_trap_won": [0.0, 0.0],
        "share_tied": [0.0, 1.0],
        "mean_reward_correct_concise": [-0.375, 0.25],
        "mean_reward_correct_expanded": [1.625, 0.25],
        "mean_reward_incorrect_concise": [-1.375, -0.75],
        "mean_reward_incorrect_expanded": [0.125, 0.25],
    }
    assert {values.dtype for values in found.values()} == {np.dtype("float64")}


def test_rewards_are_subtracted_as_float32():
    cells = np.array([[0.1], [0.2], [0.3], [0.7]], dtype=np.float32)
    assert contrasts(*cells)["trap"][0] == float(np.float32(0.1) - np.float32(0.7))


def test_means_over_prompts():
    table = audit([5, 7, 4, 5.5], [2, 2, 1, 2], [3, 0, 0, 0])
    assert value(table, "correctness") == pytest.approx((1.25 + 0.5 + 1.5) / 3)
    assert value(table, "trap") == pytest.approx((-0.5 + 0 + 3) / 3)
    assert value(table, "share_trap_won") == pytest.approx(1 / 3)
    assert value(table, "share_tied") == pytest.approx(1 / 3)
    assert (value(table, "trap", column="n"), value(table, "trap", column="clusters")) == (3, 3)
    assert -0.5 <= value(table, "trap", column="low") < value(table, "trap", column="high") <= 3


def test_cell_means_give_the_contrasts_back():
    table = audit(*np.random.default_rng(0).normal(size=(9, 4)))
    cc, ce, ic, ie = (value(table, f"mean_reward_{cell}") for cell in NAMES)
    assert cc + ce + ic + ie == pytest.approx(0, abs=1e-7)
    assert value(table, "correctness") == pytest.approx((cc + ce - ic - ie) / 2, abs=1e-6)
    assert value(table, "interaction") == pytest.approx(ce - ie - cc + ic, abs=1e-6)


@settings(max_examples=20)
@given(st.integers(-1000, 1000), st.lists(st.integers(-1000, 1000), min_size=3, max_size=3))
def test_a_shift_of_a_run_or_a_prompt_changes_nothing(of_run, of_prompts):
    rewards = np.array([[5, 7, 4, 5.5], [2, 2, 1, 2], [3, 0, 0.25, 0]])
    shifted = rewards + of_run + np.array(of_prompts)[:, None]
    assert audit(*shifted).equals(audit(*rewards))


def test_rows_may_stand_in_any_order():
    frame = scores(*np.random.default_rng(0).normal(size=(9, 4)), strata=["a", "b", "b"] * 3)
    expected = factorial(panel_rewards({"r1": frame}, "factorial"), 200, seed=1)
    for seed in range(3):
        shuffled = frame.sample(fraction=1, shuffle=True, seed=seed)
        assert factorial(panel_rewards({"r1": shuffled}, "factorial"), 200, seed=1).equals(expected)


def test_each_stratum_and_all():
    table = audit([1, 0, 0, 0], [2, 0, 0, 0], [6, 0, 0, 0], strata=["b", "a", "b"])
    assert table["stratum"].unique().sort().to_list() == ["a", "all", "b"]
    assert [value(table, "trap", stratum=stratum) for stratum in ("a", "all", "b")] == [2.0, 3.0, 3.5]
    assert value(table, "trap", stratum="a", column="reason") == "one_cluster"
    assert audit([1, 0, 0, 0], [2, 0, 0, 0])["stratum"].unique().to_list() == ["all"]


def test_all_is_the_mean_reward_and_not_the_mean_share():
    runs = {"r1": scores([4, 0, 0, 0], [1, 0, 0, 0]), "r2": scores([-1, 0, 0, 0], [-1, 0, 0, 0])}
    table = factorial(panel_rewards(runs, "factorial"), 200, seed=1)
    assert [value(table, "trap", run=run) for run in ("r1", "r2", "all")] == [2.5, -1.0, 0.75]
    assert [value(table, "share_trap_won", run=run) for run in ("r1", "r2", "all")] == [1.0, 0.0, 0.5]
    assert value(table, "share_tied", run="all") == 0.5


def test_constant_rewards_are_ties_without_an_interval():
    table = audit([1, 1, 1, 1], [2, 2, 2, 2])
    assert value(table, "share_tied") == 1.0
    assert table["reason"].unique().to_list() == ["no_variation"]
    assert table["low"].is_null().all()
    assert table["high"].is_null().all()


def test_stage_writes_the_table_and_refuses_missing_cells(tmp_path):
    frame = scores([5, 7, 4, 5.5], [2, 2, 1, 2])
    out = tmp_path / "audit.parquet"
    artifact.write(frame, tables.PANEL_SCORES, tmp_path / "scores.parquet")
    audit_factorial([tmp_path / "scores.parquet"], ["r1"], out, resamples=200, seed=1)
    assert artifact.read(out, tables.AUDIT).equals(
        factorial(panel_rewards({"r1": frame}, "factorial"), 200, 1)
    )
    artifact.write(frame[:-1], tables.PANEL_SCORES, tmp_path / "broken.parquet")
    with pytest.raises(UserError, match=r"'f-01'.*no cell 'incorrect_expanded'"):
        audit_factorial([tmp_path / "broken.parquet"], ["r1"], out, resamples=200, seed=1)
