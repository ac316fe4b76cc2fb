"""TM, TG and CM."""

import math
from statistics import fmean, variance

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from rm_memorization.estimators import (
    Membership,
    estimate,
    jackknife_se,
    means,
    membership,
    memorization,
    probabilities,
    sums_by_unit,
)

IN, OUT, NEITHER = "in", "out", "neither"


def one_pair(inside, outside, others=()):
    """Estimate one pair from its probabilities in the runs on either side, and in runs on neither."""
    p = np.array([[*inside, *outside, *others]], dtype=float)
    sides = np.array([[IN] * len(inside) + [OUT] * len(outside) + [NEITHER] * len(others)])
    return memorization(p, Membership(sides == IN, sides == OUT)).row(0, named=True)


def test_by_hand():
    found = one_pair([0.9, 0.7, 0.8], [0.5, 0.3], others=[0.0, 1.0])
    assert (found["n_in"], found["n_out"], found["reason"]) == (3, 2, None)
    assert (found["tm"], found["tg"], found["cm"]) == pytest.approx((0.8, 0.4, 0.4))
    # Variances 0.01 and 0.02: standard error √(0.01/3 + 0.02/2) = √(4/300), df (4/300)² / ((1/300)²/2 + (1/100)²/1).
    assert found["se"] == pytest.approx(math.sqrt(4 / 300))
    assert found["df"] == pytest.approx(16 / 9.5)
    half = stats.t.isf(0.025, 16 / 9.5) * math.sqrt(4 / 300)
    assert (found["low"], found["high"]) == pytest.approx((0.4 - half, 0.4 + half))


def test_a_negative_cm_stays_negative():
    found = one_pair([0.1, 0.2], [0.8, 0.9])
    assert found["cm"] == pytest.approx(-0.7)
    assert found["low"] < -0.7 < found["high"] < 0


def test_the_sigmoid_is_taken_before_the_mean():
    margins = np.array([[6.0, -1.0, 0.5, 2.0]], dtype=np.float32)
    p = probabilities(margins, np.zeros_like(margins))
    found = memorization(p, Membership(np.array([[1, 1, 0, 0]], bool), np.array([[0, 0, 1, 1]], bool)))
    assert found["tm"][0] == pytest.approx((1 / (1 + math.exp(-6)) + 1 / (1 + math.exp(1))) / 2)
    assert found["tm"][0] != pytest.approx(1 / (1 + math.exp(-2.5)), abs=0.2)


def test_probabilities_subtract_in_float32_and_go_on_in_float64():
    chosen, rejected = np.array([0.1], dtype=np.float32), np.array([0.7], dtype=np.float32)
    margin = float(np.float32(0.1) - np.float32(0.7))
    assert margin != float(np.float32(0.1)) - float(np.float32(0.7))
    found = probabilities(chosen, rejected)
    assert (found.dtype, found[0]) == (np.float64, pytest.approx(1 / (1 + math.exp(-margin)), rel=1e-15))
    extreme = probabilities(np.array([0, 100, -1e4], np.float32), np.array([0, 0, 0], np.float32))
    assert extreme.tolist() == [0.5, 1.0, 0.0]


@pytest.mark.parametrize(
    ("inside", "outside", "reason"),
    [
        ([], [0.5, 0.6], "fewer_than_2_runs_in"),
        ([0.7], [0.5, 0.6], "fewer_than_2_runs_in"),
        ([0.7, 0.8], [], "fewer_than_2_runs_out"),
        ([0.7, 0.8], [0.5], "fewer_than_2_runs_out"),
        ([0.7], [], "fewer_than_2_runs_in"),
    ],
)
def test_too_few_runs_give_null_and_a_reason(inside, outside, reason):
    found = one_pair(inside, outside, others=[0.1])
    assert found["reason"] == reason
    assert (found["tm"], found["tg"]) == (
        fmean(inside) if inside else None,
        fmean(outside) if outside else None,
    )
    assert [found[name] for name in ("cm", "se", "df", "low", "high")] == [None] * 5


@pytest.mark.parametrize("inside", [[1.0] * 3, [0.1] * 3, [0.7] * 20, [1 / 3] * 7])
@pytest.mark.parametrize("outside", [[0.0, 0.0], [0.1] * 5, [0.3] * 3])
def test_a_standard_error_of_zero_gives_no_interval(inside, outside):
    """Also where sums of equal numbers are rounded: three times 0.1 is not 0.3."""
    found = one_pair(inside, outside)
    assert (found["se"], found["reason"]) == (0.0, "zero_standard_error")
    assert [found[name] for name in ("df", "low", "high")] == [None] * 3
    assert found["cm"] == inside[0] - outside[0]


def test_a_saturated_side_leaves_the_other_sides_degrees_of_freedom():
    found = one_pair([1.0] * 20, [0.2, 0.5, 0.3, 0.9, 0.6])
    assert found["df"] == pytest.approx(4)
    assert found["se"] == pytest.approx(math.sqrt(variance([0.2, 0.5, 0.3, 0.9, 0.6]) / 5))


SIDES = st.sampled_from([IN, OUT, NEITHER])
VALUES = st.floats(0, 1)


@st.composite
def cases(draw):
    """Give probabilities and sides of a few pairs in a few runs."""
    runs = draw(st.integers(1, 8))
    rows = draw(
        st.lists(st.lists(st.tuples(VALUES, SIDES), min_size=runs, max_size=runs), min_size=1, max_size=5)
    )
    return np.array([[p for p, _ in row] for row in rows]), np.array(
        [[side for _, side in row] for row in rows]
    )


@given(cases())
def test_against_brute_force(case):
    p, sides = case
    found = memorization(p, Membership(sides == IN, sides == OUT))
    for at, row in enumerate(found.iter_rows(named=True)):
        inside, outside = (
            [float(x) for x, s in zip(p[at], sides[at], strict=True) if s == side] for side in (IN, OUT)
        )
        assert (row["n_in"], row["n_out"]) == (len(inside), len(outside))
        for name, values in (("tm", inside), ("tg", outside)):
            assert row[name] == (pytest.approx(fmean(values), abs=1e-12) if values else None)
            assert row[name] is None or 0 <= row[name] <= 1
        if min(len(inside), len(outside)) < 2:
            assert row["cm"] is None
            continue
        assert row["cm"] == pytest.approx(fmean(inside) - fmean(outside), abs=1e-12)
        se = math.sqrt(variance(inside) / len(inside) + variance(outside) / len(outside))
        assert row["se"] == pytest.approx(se, rel=1e-9, abs=1e-15)
        assert (row["low"] is None) == (row["se"] == 0) == (row["reason"] is not None)


@given(
    st.lists(VALUES, min_size=2, max_size=20, unique=True),
    st.lists(VALUES, min_size=2, max_size=20, unique=True),
)
def test_interval_is_scipys_welch(inside, outside):
    found = one_pair(inside, outside)
    if found["se"] < 1e-9:
        return
    theirs = stats.ttest_ind(inside, outside, equal_var=False)
    interval = theirs.confidence_interval(0.95)
    assert found["df"] == pytest.approx(theirs.df, rel=1e-6)
    assert found["se"] == pytest.approx(
        (found["cm"] / theirs.statistic) if theirs.statistic else found["se"], rel=1e-6
    )
    assert (found["low"], found["high"]) == pytest.approx((interval.low, interval.high), abs=1e-9)


def test_coverage_of_the_interval():
    """20 runs in, 5 out, noise on the scale of margins: the 95 % interval covers the true CM about as often."""
    rng = np.random.default_rng(17)
    sides = np.array([IN] * 20 + [OUT] * 5)
    centre, gain, noise = rng.normal(0.3, 1.0, (4000, 1)), rng.uniform(0.0, 1.5, (4000, 1)), 0.6
    drawn = centre + gain * (sides == IN) + noise * rng.normal(size=(4000, 25))
    member = Membership(*(np.broadcast_to(sides == side, drawn.shape) for side in (IN, OUT)))
    found = memorization(1 / (1 + np.exp(-drawn)), member)
    nodes, weight = np.polynomial.hermite_e.hermegauss(40)
    mean = lambda middle: (1 / (1 + np.exp(-(middle + noise * nodes)))) @ weight / weight.sum()  # noqa: E731
    truth = mean(centre + gain) - mean(centre)
    covered = (found["low"].to_numpy() <= truth) & (truth <= found["high"].to_numpy())
    assert 0.88 <= covered.mean() <= 0.98


@given(cases(), st.randoms(use_true_random=False))
def test_the_order_of_the_pairs_changes_nothing(case, random):
    p, sides = case
    order = random.sample(range(len(p)), len(p))
    plain = memorization(p, Membership(sides == IN, sides == OUT))
    moved = memorization(p[order], Membership(sides[order] == IN, sides[order] == OUT))
    assert moved.equals(plain[order])


def test_the_matrix_may_lie_in_memory_as_it_likes():
    rng = np.random.default_rng(3)
    p, sides = rng.random((40, 25)), rng.choice([IN, OUT, NEITHER], (40, 25))
    member = Membership(sides == IN, sides == OUT)
    assert memorization(np.asfortranarray(p), member).equals(memorization(p, member))


@given(cases(), st.randoms(use_true_random=False))
def test_the_order_of_the_runs_changes_no_more_than_rounding(case, random):
    p, sides = case
    order = random.sample(range(p.shape[1]), p.shape[1])
    plain = memorization(p, Membership(sides == IN, sides == OUT))
    moved = memorization(p[:, order], Membership(sides[:, order] == IN, sides[:, order] == OUT))
    for name in ("n_in", "n_out", "reason"):
        assert moved[name].equals(plain[name])
    for name in ("tm", "tg", "cm", "se"):
        assert moved[name].is_null().equals(plain[name].is_null())
        assert moved[name].drop_nulls().to_numpy() == pytest.approx(
            plain[name].drop_nulls().to_numpy(), abs=1e-12
        )


@given(
    st.lists(
        st.tuples(st.sampled_from("uvw"), st.lists(st.booleans(), min_size=3, max_size=3)),
        min_size=1,
        max_size=8,
    )
)
def test_a_run_holds_a_pair_out_if_it_trained_on_nothing_of_its_unit(rows):
    unit, trained = [name for name, _ in rows], np.array([flags for _, flags in rows])
    found = membership(pl.Series(unit), trained)
    assert np.array_equal(found.trained, trained)
    for at, name in enumerate(unit):
        for run in range(3):
            touched = any(trained[other, run] for other, owner in enumerate(unit) if owner == name)
            assert found.held_out[at, run] == (not touched)


@given(cases())
def test_means_are_those_of_the_table(case):
    p, sides = case
    member = Membership(sides == IN, sides == OUT)
    table = memorization(p, member)
    tm, tg, cm = means(p, member)
    assert pl.Series(tm).fill_nan(None).equals(table["tm"].rename(""))
    assert pl.Series(tg).fill_nan(None).equals(table["tg"].rename(""))
    assert np.array_equal(np.isnan(cm), (table["n_in"] == 0).to_numpy() | (table["n_out"] == 0).to_numpy())


def test_without_leaves_one_run_out():
    member = Membership(np.array([[True, False, True]]), np.array([[False, True, False]]))
    found = member.without(0)
    assert (found.trained.tolist(), found.held_out.tolist()) == ([[False, True]], [[True, False]])


@given(st.lists(st.floats(-10, 10), min_size=2, max_size=12))
def test_jackknife_of_a_mean_is_its_standard_error(values):
    x = np.array(values)
    left_out = np.array([np.delete(x, at).mean() for at in range(len(x))])
    assert jackknife_se(left_out) == pytest.approx(x.std(ddof=1) / math.sqrt(len(x)), abs=1e-9)


def test_jackknife_against_the_formula():
    left_out = [0.2, 0.5, 0.1, 0.4]
    centre = fmean(left_out)
    assert jackknife_se(np.array(left_out)) == pytest.approx(
        math.sqrt(3 / 4 * sum((value - centre) ** 2 for value in left_out))
    )


def test_both_sources_of_error_add_up_as_variances():
    found = estimate(0.3, 0.03, 0.04)
    assert (found.value, found.se) == (0.3, pytest.approx(0.05))
    assert (found.low, found.high) == pytest.approx((0.3 - 1.959964 * 0.05, 0.3 + 1.959964 * 0.05), abs=1e-6)


@given(st.lists(st.tuples(st.integers(0, 4), st.floats(-5, 5)), max_size=20))
def test_sums_by_unit(rows):
    unit, values = (
        np.array([u for u, _ in rows], dtype=np.int64),
        np.array([[x, 1.0] for _, x in rows]).reshape(-1, 2),
    )
    expected = [[math.fsum(x for u, x in rows if u == k), sum(u == k for u, _ in rows)] for k in range(5)]
    assert sums_by_unit(unit, values, 5) == pytest.approx(np.array(expected), abs=1e-12)
