"""The length audit."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from rm_memorization import artifact, tables
from rm_memorization.errors import UserError
from rm_memorization.panels import by_run, panel_rewards
from rm_memorization.resampling import Estimate
from rm_memorization.stages.audit_length import (
    METRICS,
    Replies,
    associations,
    audit_length,
    pair_rows,
    panel_rows,
    read_replies,
)


def measure(prompts, tokens, rewards, resamples=100):
    rewards = np.array(rewards, dtype=np.float32)
    return associations(np.array(prompts), np.array(tokens), rewards, resamples, seed=1)


def made_up(seed, prompts=12, answers=40):
    """Make answers of which many share a length and some a reward."""
    rng = np.random.default_rng(seed)
    of = np.concatenate([np.arange(prompts), rng.integers(prompts, size=answers - prompts)])
    tokens = rng.integers(1, 9, size=answers)
    return of, tokens, (tokens + rng.integers(-3, 4, size=answers) + of % 3).astype(np.float32)


def naive(of, x, y):
    """Compute all metrics by scipy and loops."""
    x, y = x.astype(float), y.astype(float)
    within = {}
    for name, values in (("x", x), ("y", y)):
        within[name], within[f"rank_{name}"] = np.empty_like(values), np.empty_like(values)
        for prompt in np.unique(of):
            mine, ranks = values[of == prompt], scipy.stats.rankdata(values[of == prompt])
            within[name][of == prompt] = mine - mine.mean()
            within[f"rank_{name}"][of == prompt] = ranks - ranks.mean()
    return {
        "pooled_pearson": scipy.stats.pearsonr(x, y).statistic,
        "pooled_slope_per_100_tokens": 100 * scipy.stats.linregress(x, y).slope,
        "pooled_spearman": scipy.stats.spearmanr(x, y).statistic,
        "within_prompt_pearson": scipy.stats.pearsonr(within["x"], within["y"]).statistic,
        "within_prompt_slope_per_100_tokens": 100 * scipy.stats.linregress(within["x"], within["y"]).slope,
        "within_prompt_spearman": scipy.stats.pearsonr(within["rank_x"], within["rank_y"]).statistic,
    }


def test_by_hand():
    """Two prompts: in each, reward rises by 1 for 100 tokens; the prompt with longer answers has lower rewards."""
    found = measure([0, 0, 1, 1], [100, 200, 300, 400], [5, 6, 1, 2])
    estimates = {name: one.estimate for name, one in found.items()}
    # x − 250 = −150, −50, 50, 150 and y − 3.5 = 1.5, 2.5, −2.5, −1.5: Σxy = −700, Σx² = 50,000, Σy² = 17.
    assert estimates == pytest.approx(
        {
            "pooled_pearson": -700 / np.sqrt(50_000 * 17),
            "pooled_slope_per_100_tokens": -1.4,
            "pooled_spearman": -0.6,  # ranks 1 2 3 4 and 3 4 1 2: 1 − 6·16 / (4·15)
            "within_prompt_pearson": 1.0,
            "within_prompt_slope_per_100_tokens": 1.0,
            "within_prompt_spearman": 1.0,
        }
    )


@pytest.mark.parametrize("seed", range(5))
def test_point_estimates_as_by_scipy(seed):
    found = measure(*made_up(seed))
    assert {name: one.estimate for name, one in found.items()} == pytest.approx(naive(*made_up(seed)))


def test_intervals_as_by_copying_rows():
    of, x, y = made_up(0)
    rng = np.random.default_rng(1)
    drawn = []
    for _ in range(100):
        prompts = rng.integers(12, size=12)
        rows = [np.flatnonzero(of == prompt) for prompt in prompts]
        fresh = np.concatenate([np.full(len(mine), place) for place, mine in enumerate(rows)])
        drawn.append(naive(fresh, x[np.concatenate(rows)], y[np.concatenate(rows)]))
    found = measure(of, x, y, resamples=100)
    for name in METRICS:
        low, high = np.quantile([one[name] for one in drawn], [0.025, 0.975])
        assert (found[name].low, found[name].high) == pytest.approx((low, high)), name


@settings(max_examples=20)
@given(st.permutations(range(40)))
def test_rows_may_stand_in_any_order(order):
    of, x, y = made_up(3)
    assert measure(of[list(order)], x[list(order)], y[list(order)]) == measure(of, x, y)


@settings(max_examples=20)
@given(st.integers(-500, 500), st.lists(st.integers(-50, 50), min_size=12, max_size=12))
def test_a_shift_leaves_pooled_and_shifts_of_prompts_leave_within(of_run, of_prompts):
    of, x, y = made_up(4)
    plain = measure(of, x, y)
    moved, tilted = measure(of, x, y + of_run), measure(of, x, y + np.array(of_prompts)[of])
    for name, one in plain.items():
        assert moved[name].estimate == pytest.approx(one.estimate, abs=1e-9)
        if name.startswith("within"):
            assert tilted[name].estimate == pytest.approx(one.estimate, abs=1e-9)


def reasons(found):
    assert all(one.estimate is None for one in found.values() if str(one.reason).startswith("constant"))
    return {name.removesuffix("_pearson"): one.reason for name, one in found.items() if "pearson" in name}


def test_constant_data_have_no_value():
    of, x, y = made_up(0)
    assert reasons(measure(of, np.full_like(x, 7), y)) == dict.fromkeys(
        ["pooled", "within_prompt"], "constant_length"
    )
    assert reasons(measure(of, x, np.full_like(y, 0.1))) == dict.fromkeys(
        ["pooled", "within_prompt"], "constant_reward"
    )
    assert reasons(measure(of, of + 1, y)) == {"pooled": None, "within_prompt": "constant_length"}
    assert reasons(measure(of, x, of / 10)) == {"pooled": None, "within_prompt": "constant_reward"}
    assert measure([0, 0], [3, 3], [0.1, 0.2])["pooled_spearman"] == Estimate(
        None, None, None, "constant_length"
    )


def test_one_prompt_has_no_interval():
    found = measure([0, 0, 0], [1, 2, 4], [1, 2, 4])
    assert found["pooled_pearson"] == Estimate(pytest.approx(1.0), None, None, "one_cluster")


def test_a_resample_without_value_leaves_no_interval():
    found = measure([0, 0, 1, 1], [1, 2, 5, 5], [1, 3, 4, 4])
    assert found["within_prompt_slope_per_100_tokens"] == Estimate(200.0, None, None, "undefined_resamples")
    assert found["pooled_pearson"].reason == found["pooled_spearman"].reason == "undefined_resamples"


def test_without_resamples():
    of, x, y = made_up(0)
    found, full = measure(of, x, y, resamples=None), measure(of, x, y)
    assert {name: one.estimate for name, one in found.items()} == {
        name: one.estimate for name, one in full.items()
    }
    assert {(one.low, one.high, one.reason) for one in found.values()} == {(None, None, "not_resampled")}


def test_single_runs_are_resampled_on_the_panel_but_not_on_pairs():
    of, x, y = made_up(0)
    rewards = {"r1": y, "r2": y[::-1].copy(), "all": y.astype(np.float64)}
    pairs = pl.DataFrame(pair_rows(Replies(of, x, rewards), 100, seed=1))
    assert set(pairs.filter(pl.col("run") != "all")["reason"]) == {"not_resampled"}
    assert pairs.filter(run="all")["low"].null_count() == 0
    assert pairs.select("n", "clusters").unique().rows() == [(40, 12)]
    panel = pl.DataFrame(
        {"item_id": [f"l-{prompt:02d}" for prompt in of], "cell": [str(row) for row in range(40)], "n_tokens": x, "reward": y}
    ).with_columns(stratum=pl.lit("everyday"))  # fmt: skip
    panel = panel.filter(pl.len().over("item_id") > 1)
    rows = pl.DataFrame(panel_rows(panel_rewards({"r1": panel}, "length"), 100, seed=1))
    assert rows["low"].null_count() == 0
    assert rows.height == 2 * len(METRICS)


PROMPTS = ["One?", "Two?", "One?"]
REPLIES = {"p1": (5, 3), "p2": (2, 4), "p3": (7, 2)}  # tokens of the chosen and the rejected reply
REWARDS = {"p1": (1.0, 0.5), "p2": (0.25, 0.75), "p3": (2.0, 0.0)}


@pytest.fixture
def folder(tmp_path):
    ids = list(REPLIES)
    messages = [[{"role": "user", "content": text}] for text in PROMPTS]
    pairs = {
        "prompt": messages,
        "unit_id": "u",
        "user_id": "u",
        "stratum": None,
        "chosen": "a",
        "rejected": "b",
    }
    rest = {"source_file": "f", "source_row": [1, 2, 3], "extra": "{}"}
    frame = pl.DataFrame(
        {"pair_id": ids, **pairs, **rest}, schema_overrides={"stratum": pl.String, "prompt": tables.MESSAGES}
    )
    artifact.write(frame, tables.PAIRS, tmp_path / "pairs.parquet")
    tokens = pl.DataFrame(
        {
            "pair_id": ids,
            "unit_id": "u",
            "prefix_ids": [[1] * 11] * 3,  # 10 of the prompt, and the first token of both replies
            "chosen_ids": [[2] * (chosen - 1) for chosen, _ in REPLIES.values()],
            "rejected_ids": [[3] * (rejected - 1) for _, rejected in REPLIES.values()],
            "n_prompt": [10] * 3,
            "token_hash": "h",
        },
        schema_overrides=dict.fromkeys(["prefix_ids", "chosen_ids", "rejected_ids"], tables.TOKENS),
    )
    artifact.write(tokens, tables.TOKENIZED, tmp_path / "tokens.parquet")
    artifact.write(scores(), tables.SCORES, tmp_path / "scores.parquet")
    panel = pl.DataFrame(
        {
            "panel": "length",
            "item_id": ["l-1", "l-1", "l-2", "l-2"],
            "stratum": "everyday",
            "cell": ["long", "short"] * 2,
            "n_tokens": [9, 3, 8, 2],
            "reward": [0.5, 1.0, 0.25, 2.0],
        },
        schema_overrides={"reward": pl.Float32},
    )
    artifact.write(panel, tables.PANEL_SCORES, tmp_path / "panel_scores.parquet")
    return tmp_path


def scores():
    chosen, rejected = zip(*REWARDS.values(), strict=True)
    return pl.DataFrame(
        {"pair_id": list(REWARDS), "reward_chosen": chosen, "reward_rejected": rejected},
        schema_overrides=dict.fromkeys(["reward_chosen", "reward_rejected"], pl.Float32),
    )


def test_replies_have_their_own_length_and_their_prompt(folder):
    runs = by_run(["r1"], [folder / "scores.parquet"], "scores")
    found = read_replies(folder / "pairs.parquet", folder / "tokens.parquet", runs)
    assert found.tokens.tolist() == [5, 2, 7, 3, 4, 2]
    assert found.rewards["r1"].tolist() == [1.0, 0.25, 2.0, 0.5, 0.75, 0.0]
    assert found.rewards["r1"].dtype == np.float32
    first, second, third = found.prompts[:3]
    assert first == third != second
    assert found.prompts[3:].tolist() == found.prompts[:3].tolist()


def run_stage(folder: Path, *runs):
    audit_length(
        panel_scores=[folder / "panel_scores.parquet" for _ in runs],
        scores=[folder / "scores.parquet" for _ in runs],
        run=list(runs),
        pairs=folder / "pairs.parquet",
        tokens=folder / "tokens.parquet",
        audit=folder / "audit.parquet",
        resamples=100,
        seed=1,
    )
    return artifact.read(folder / "audit.parquet", tables.AUDIT)


def test_stage_writes_both_strata_for_every_run(folder):
    table = run_stage(folder, "r1", "r2")
    assert table.height == 2 * 3 * len(METRICS)
    assert set(table["run"]) == {"r1", "r2", "all"}
    assert set(table["stratum"]) == {"panel", "pairs"}
    assert table.filter(stratum="pairs").select("n", "clusters").unique().rows() == [(6, 2)]
    pooled = table.filter(run="r1", stratum="pairs", metric="pooled_spearman")["estimate"][0]
    expected = scipy.stats.spearmanr([5, 2, 7, 3, 4, 2], [1.0, 0.25, 2.0, 0.5, 0.75, 0.0]).statistic
    assert pooled == pytest.approx(expected)


def test_runs_must_score_all_pairs(folder):
    artifact.write(scores()[1:], tables.SCORES, folder / "scores.parquet")
    with pytest.raises(UserError, match=r"scores\.parquet: pair_id='p1' is only in tokens\.parquet"):
        run_stage(folder, "r1")


def test_pairs_must_hold_all_tokenized_pairs(folder):
    pairs = artifact.read(folder / "pairs.parquet", tables.PAIRS)
    artifact.write(pairs[:2], tables.PAIRS, folder / "pairs.parquet")
    with pytest.raises(UserError, match=r"pairs\.parquet: pair 'p3' of tokens\.parquet is not there"):
        run_stage(folder, "r1")
