"""The refusal audit."""

import numpy as np
import polars as pl
import pytest

from rm_memorization import artifact, tables
from rm_memorization.errors import UserError
from rm_memorization.panels import panel_rewards
from rm_memorization.stages.audit_refusal import audit_refusal, preferences, refusal


def scores(**strata):
    """Score prompts, each by its rewards of the refusal and of the helpful answer."""
    rows = [
        {"item_id": f"{stratum}-{number}", "stratum": stratum, "cell": cell, "reward": reward}
        for stratum, prompts in strata.items()
        for number, rewards in enumerate(prompts)
        for cell, reward in zip(("refusal", "helpful"), rewards, strict=True)
    ]
    frame = pl.DataFrame(rows, schema_overrides={"reward": pl.Float32})
    return frame.with_columns(panel=pl.lit("refusal"), n_tokens=pl.lit(7, dtype=pl.Int64))


def estimates(table, run):
    rows = table.filter(pl.col("run") == run)
    return {
        (stratum, metric): value
        for stratum, metric, value in rows.select("stratum", "metric", "estimate").rows()
    }


SCORES = scores(benign_plain=[(1, 3), (2, 2), (5, 1), (0, 2)], unsafe_control=[(4, 1), (3, 1)])


def test_by_hand():
    table = refusal(panel_rewards({"r1": SCORES}, "refusal"), 200, seed=1)
    assert estimates(table, "r1") == {
        ("benign_plain", "mean_difference"): 0.0,
        ("benign_plain", "share_refusal_preferred"): 0.25,
        ("benign_plain", "share_tied"): 0.25,
        ("unsafe_control", "mean_difference"): 2.5,
        ("unsafe_control", "share_refusal_preferred"): 1.0,
        ("unsafe_control", "share_tied"): 0.0,
    }
    assert estimates(table, "all") == estimates(table, "r1")
    assert table.filter(stratum="benign_plain")["clusters"].unique().to_list() == [4]
    assert table.filter(stratum="unsafe_control")["n"].unique().to_list() == [2]
    reasons = table.filter(run="r1", stratum="unsafe_control").select("metric", "reason").rows()
    assert dict(reasons) == {
        "mean_difference": None,
        "share_refusal_preferred": "no_variation",
        "share_tied": "no_variation",
    }


def test_a_tie_is_neither_won_nor_lost():
    found = preferences(*np.array([[1.0, 2.0], [1.0, 3.0]], dtype=np.float32))
    assert found["share_tied"].tolist() == [1.0, 0.0]
    assert found["share_refusal_preferred"].tolist() == [0.0, 0.0]
    assert found["mean_difference"].dtype == np.float64


def test_rewards_are_subtracted_as_float32():
    found = preferences(*np.array([[0.1], [0.7]], dtype=np.float32))["mean_difference"][0]
    assert (
        found == float(np.float32(0.1) - np.float32(0.7)) != float(np.float32(0.1)) - float(np.float32(0.7))
    )


def test_all_averages_rewards_over_runs():
    other = SCORES.with_columns(reward=pl.col("reward") * pl.when(cell="refusal").then(3).otherwise(1))
    table = refusal(
        panel_rewards({"r1": SCORES, "r2": other.cast({"reward": pl.Float32})}, "refusal"), 200, 1
    )
    assert estimates(table, "r2")["benign_plain", "mean_difference"] == 4.0
    assert estimates(table, "all")["benign_plain", "mean_difference"] == 2.0


def test_rows_may_stand_in_any_order_and_other_panels_are_left_aside(tmp_path):
    expected = refusal(panel_rewards({"r1": SCORES}, "refusal"), 200, seed=1)
    assert refusal(panel_rewards({"r1": SCORES.reverse()}, "refusal"), 200, seed=1).equals(expected)
    both = pl.concat([SCORES, SCORES.with_columns(panel=pl.lit("length"))])
    artifact.write(both, tables.PANEL_SCORES, tmp_path / "scores.parquet")
    audit_refusal([tmp_path / "scores.parquet"], ["r1"], tmp_path / "audit.parquet", resamples=200, seed=1)
    assert artifact.read(tmp_path / "audit.parquet", tables.AUDIT).equals(expected)


def test_missing_cell(tmp_path):
    artifact.write(SCORES[1:], tables.PANEL_SCORES, tmp_path / "scores.parquet")
    with pytest.raises(UserError, match=r"'benign_plain-0'.*no cell 'refusal'"):
        audit_refusal(
            [tmp_path / "scores.parquet"], ["r1"], tmp_path / "audit.parquet", resamples=200, seed=1
        )
