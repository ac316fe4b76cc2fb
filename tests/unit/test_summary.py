"""What the whole experiment and each stratum say."""

import numpy as np
import polars as pl
import pytest

from rm_memorization import artifact, tables
from rm_memorization.errors import UserError
from rm_memorization.estimators import Membership, membership, memorization
from rm_memorization.summary import counts, summarise

RUNS, RESAMPLES, SEED = 6, 300, 9


def experiment(strata, sizes, seed=1, effect=0.0):
    """Make up pairs: each unit has a stratum or a list of them for its pairs, and a size.

    Returns
    -------
    pairs, p, membership
    """
    rng = np.random.default_rng(seed)
    unit = np.repeat([f"u{at}" for at in range(len(sizes))], sizes)
    held = np.array([rng.permutation(RUNS) < 2 for _ in sizes])
    trained = ~np.repeat(held, sizes, axis=0)
    of_unit = np.repeat(rng.normal(0.5, 0.1, (len(sizes), 1)), sizes, axis=0)
    p = np.clip(of_unit + effect * trained + rng.normal(0, 0.1, trained.shape), 0, 1)
    names = [
        s[k % len(s)] if isinstance(s, list) else s
        for s, n in zip(strata, sizes, strict=True)
        for k in range(n)
    ]
    member = membership(pl.Series(unit), trained)
    pairs = pl.DataFrame(
        {"pair_id": [f"p{at:03d}" for at in rng.permutation(len(unit))], "unit_id": unit, "stratum": names},
        schema_overrides={"stratum": pl.String},
    )
    return pl.concat([pairs, memorization(p, member)], how="horizontal"), p, member


DISJOINT = experiment(["a"] * 5 + ["b"] * 4, [3, 1, 4, 2, 5, 2, 2, 6, 1])
SHARED = experiment([["a", "b"], ["b", "a"], ["a"], ["b"], ["a", "b"]] * 2, [4, 3, 2, 3, 5] * 2)


def table(case, resamples=RESAMPLES):
    """Give the summary's rows by stratum and metric."""
    rows = summarise(*case, resamples, SEED)
    return {(row["stratum"], row["metric"]): row for row in rows.iter_rows(named=True)}


def naive_bootstrap(groups, metric):
    """Draw units and copy their rows; a difference of two groups draws the units of both at once."""
    units = sorted(set().union(*(group["unit_id"] for group in groups)))
    rows = [{unit: group.filter(unit_id=unit)[metric].to_list() for unit in units} for group in groups]
    rng, means = np.random.default_rng(SEED), []
    for _ in range(RESAMPLES):
        draw = rng.integers(len(units), size=len(units))
        each = [np.mean([x for at in draw for x in group[units[at]]]) for group in rows]
        means.append(each[0] - each[1] if len(each) > 1 else each[0])
    return np.std(means, ddof=1)


def naive_jackknife(case, metric, weights):
    """Leave each run out, compute anew, and take the contrast that the weights give."""
    _, p, member = case
    left_out = []
    for run in range(RUNS):
        kept = [at for at in range(RUNS) if at != run]
        found = memorization(p[:, kept], Membership(member.trained[:, kept], member.held_out[:, kept]))
        values = found["tm"] - found["tg"] if metric == "cm" else found[metric]
        left_out.append(sum(weight * values.filter(rows).mean() for rows, weight in weights))
    centre = np.mean(left_out)
    return np.sqrt((RUNS - 1) / RUNS * sum((value - centre) ** 2 for value in left_out))


@pytest.mark.parametrize("case", [DISJOINT, SHARED])
@pytest.mark.parametrize("metric", ["tm", "tg", "cm"])
@pytest.mark.parametrize("stratum", ["all", "a", "b"])
def test_means_against_naive_resampling(case, metric, stratum):
    pairs = case[0]
    inside = (
        pl.repeat(value=True, n=pairs.height, eager=True) if stratum == "all" else pairs["stratum"] == stratum
    )
    row, group = table(case)[stratum, metric], pairs.filter(inside)
    assert row["estimate"] == pytest.approx(group[metric].mean(), abs=1e-12)
    assert (row["pairs"], row["units"], row["reason"]) == (group.height, group["unit_id"].n_unique(), None)
    se = np.hypot(naive_bootstrap([group], metric), naive_jackknife(case, metric, [(inside, 1)]))
    assert row["se"] == pytest.approx(se, rel=1e-9)
    half = 1.959963984540054 * se
    assert (row["low"], row["high"]) == pytest.approx((row["estimate"] - half, row["estimate"] + half))


@pytest.mark.parametrize("case", [DISJOINT, SHARED])
def test_a_difference_shares_the_runs_and_the_units_that_both_have(case):
    pairs = case[0]
    a, b = (pairs.filter(stratum=name) for name in "ab")
    row = table(case)["a - b", "cm"]
    assert row["estimate"] == pytest.approx(a["cm"].mean() - b["cm"].mean(), abs=1e-12)
    assert (row["pairs"], row["units"]) == (pairs.height, pairs["unit_id"].n_unique())
    run_se = naive_jackknife(case, "cm", [(pairs["stratum"] == "a", 1), (pairs["stratum"] == "b", -1)])
    apart = np.hypot(naive_bootstrap([a], "cm"), naive_bootstrap([b], "cm"))
    together = naive_bootstrap([a, b], "cm") if case is SHARED else apart
    assert row["se"] == pytest.approx(np.hypot(together, run_se), rel=1e-9)
    assert case is DISJOINT or abs(together - apart) > 1e-3


def test_rows_of_the_table():
    found = summarise(*DISJOINT, RESAMPLES, SEED)
    keys = [("all", "tm"), ("all", "tg"), ("all", "cm"), ("a", "tm"), ("a", "tg"), ("a", "cm")]
    keys += [("b", "tm"), ("b", "tg"), ("b", "cm"), ("a - b", "cm")]
    assert found.select("stratum", "metric").rows() == keys


def test_the_order_of_the_pairs_changes_not_one_bit():
    pairs, p, member = SHARED
    expected = summarise(*SHARED, RESAMPLES, SEED)
    for seed in range(5):
        order = np.random.default_rng(seed).permutation(pairs.height)
        moved = Membership(member.trained[order], member.held_out[order])
        assert summarise(pairs[order], p[order], moved, RESAMPLES, SEED).equals(expected)


def test_the_seed_decides():
    first, again, other = (summarise(*DISJOINT, RESAMPLES, seed) for seed in (1, 1, 2))
    assert first.equals(again)
    assert not first["se"].equals(other["se"])
    assert first["estimate"].equals(other["estimate"])


def test_pairs_without_a_cm_are_left_out_of_every_mean():
    pairs, p, member = DISJOINT
    gone = pairs["pair_id"] < "p010"
    partly = pairs.with_columns(cm=pl.when(gone).then(None).otherwise("cm"))
    kept = ~gone.to_numpy()
    expected = summarise(
        pairs.filter(kept), p[kept], Membership(member.trained[kept], member.held_out[kept]), 200, 1
    )
    assert summarise(partly, p, member, 200, 1).equals(expected)


def test_a_stratum_without_any_cm_is_named_and_null():
    pairs, p, member = DISJOINT
    partly = pairs.with_columns(cm=pl.when(pl.col("stratum") == "b").then(None).otherwise("cm"))
    rows = table((partly, p, member))
    for key in (("b", "tm"), ("b", "tg"), ("b", "cm"), ("a - b", "cm")):
        assert [rows[key][name] for name in ("estimate", "se", "low", "high")] == [None] * 4
        assert rows[key]["reason"] == "no_pairs"
    assert (rows["b", "cm"]["pairs"], rows["b", "cm"]["units"]) == (0, 0)
    assert rows["all", "cm"]["reason"] is None
    none = table((pairs.with_columns(cm=pl.lit(None, pl.Float64)), p, member))
    assert {row["reason"] for row in none.values()} == {"no_pairs"}
    assert {row["estimate"] for row in none.values()} == {None}


def test_one_unit_has_a_mean_and_no_interval():
    rows = table(experiment(["a", "b", "b"], [4, 2, 3]))
    for key in (("a", "cm"), ("a - b", "cm")):
        assert rows[key]["estimate"] is not None
        assert [rows[key][name] for name in ("se", "low", "high")] == [None] * 3
        assert rows[key]["reason"] == "one_unit"
    assert rows["b", "cm"]["reason"] is None


def test_equal_values_have_no_interval():
    pairs, p, member = experiment([None] * 6, [2] * 6)
    p = np.where(member.trained, 0.7, 0.1)
    case = (
        pl.concat([pairs.select("pair_id", "unit_id", "stratum"), memorization(p, member)], how="horizontal"),
        p,
        member,
    )
    rows = table(case)
    assert set(rows) == {("all", "tm"), ("all", "tg"), ("all", "cm")}
    assert {row["reason"] for row in rows.values()} == {"zero_standard_error"}
    assert rows["all", "cm"]["estimate"] == pytest.approx(0.6)
    assert rows["all", "cm"]["low"] is None


def test_a_resample_may_miss_one_of_two_strata_that_share_a_unit():
    rows = table(experiment([["a", "b"], "a", "b", "b", "b"], [2, 1, 2, 2, 2]))
    assert rows["a - b", "cm"]["reason"] == "undefined_resamples"
    assert rows["a - b", "cm"]["estimate"] is not None
    assert rows["a", "cm"]["reason"] is None


@pytest.mark.parametrize(
    ("strata", "name"),
    [(["all", "b"], "all"), (["a", "b", "a - b"], "a - b"), (["x - y", "z", "x", "y - z"], "x - y - z")],
)
def test_a_stratum_whose_name_is_taken_is_refused(strata, name):
    with pytest.raises(UserError, match=f"column 'stratum': the name '{name}' would stand for 2 things"):
        summarise(*experiment(strata, [2] * len(strata)), RESAMPLES, SEED)


def test_a_dash_in_a_name_alone_is_no_harm():
    rows = table(experiment(["x - y", "z", "x - y", "z"], [2] * 4))
    assert ("x - y - z", "cm") in rows


def test_standard_error_against_a_simulation():
    """The error of the mean CM over repeated experiments, users and runs drawn anew, is what the summary says."""
    rng = np.random.default_rng(2)
    users, each, runs, held_out = 45, 3, 10, 2
    found, said = [], []
    for _ in range(300):
        held = np.array([rng.permutation(runs) < held_out for _ in range(users)])
        trained = ~np.repeat(held, each, axis=0)
        of_user = np.repeat(rng.normal(0.1, 0.15, (users, 1)), each, axis=0)
        # A run's own deviation hits all pairs alike and cancels only in part, for each user holds out other runs.
        p = 0.4 + of_user * trained + 0.1 * rng.normal(size=(1, runs)) + 0.1 * rng.normal(size=trained.shape)
        unit = pl.Series(np.repeat([f"u{at:02d}" for at in range(users)], each))
        member = membership(unit, trained)
        pairs = pl.DataFrame(
            {"pair_id": [f"{at:03d}" for at in range(len(unit))], "unit_id": unit, "stratum": None}
        )
        pairs = pairs.with_columns(pl.col("stratum").cast(pl.String))
        case = pl.concat([pairs, memorization(p, member)], how="horizontal"), p, member
        row = table(case, resamples=100)["all", "cm"]
        found.append(row["estimate"])
        said.append(row["se"])
    assert np.mean(found) == pytest.approx(0.1, abs=0.01)
    assert 0.9 < np.mean(said) / np.std(found) < 1.4


def test_counts(tmp_path):
    memorized = pl.DataFrame(
        {
            "unit_id": ["u", "u", "v", "w"],
            "cm": [0.1, None, None, None],
            "reason": [
                "zero_standard_error",
                "fewer_than_2_runs_out",
                "fewer_than_2_runs_in",
                "fewer_than_2_runs_out",
            ],
        }
    )
    dropped = pl.DataFrame({"reason": ["overlong", "same_reply", "overlong"]})
    found = counts(memorized, dropped)
    assert dict(found.select("metric", "estimate").iter_rows()) == {
        "pairs": 4.0,
        "units": 3.0,
        "without_cm:fewer_than_2_runs_in": 1.0,
        "without_cm:fewer_than_2_runs_out": 2.0,
        "dropped:overlong": 2.0,
        "dropped:same_reply": 1.0,
    }
    assert set(found["reason"]) == {"count"}
    assert found.select("pairs", "units").unique().rows() == [(4, 3)]
    both = pl.concat([summarise(*DISJOINT, 100, 1), found])
    artifact.write(both, tables.SUMMARY, tmp_path / "summary.parquet")
    assert artifact.read(tmp_path / "summary.parquet", tables.SUMMARY).height == both.height
