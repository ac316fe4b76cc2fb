"""The bootstrap over clusters."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rm_memorization.resampling import CHUNK, Estimate, cluster_bootstrap, means, point_estimates, replicates


def column(*values):
    return np.array(values, dtype=np.float64)[:, None]


def test_percentiles_of_all_equally_likely_resamples():
    values = (0.0, 1.0, 10.0)
    every_mean = sorted(np.mean(draw) for draw in itertools.product(values, repeat=3))
    drawn = replicates(means(column(*values)), 3, 20_000, seed=3)[:, 0]
    for mean in set(every_mean):
        assert np.isclose(drawn, mean).mean() == pytest.approx(np.isclose(every_mean, mean).mean(), abs=0.015)


def test_mean_and_interval_by_the_rows_themselves():
    rng = np.random.default_rng(5)
    values = np.arange(7.0)
    naive = [values[rng.integers(7, size=7)].mean() for _ in range(500)]
    (found,) = cluster_bootstrap(means(values[:, None]), 7, 500, seed=5)
    low, high = np.quantile(naive, [0.025, 0.975])
    assert (found.estimate, found.reason) == (3.0, None)
    assert (found.low, found.high) == pytest.approx((low, high))


def test_seed_decides_and_metrics_share_resamples():
    values = np.random.default_rng(0).normal(size=(30, 2))
    both = replicates(means(values), 30, 200, seed=1)
    assert np.array_equal(both, replicates(means(values), 30, 200, seed=1))
    assert not np.array_equal(both, replicates(means(values), 30, 200, seed=2))
    assert np.allclose(both[:, 1:], replicates(means(values[:, 1:]), 30, 200, seed=1))


def test_chunks_do_not_change_the_draws(monkeypatch):
    statistic = means(np.random.default_rng(0).normal(size=(50, 1)))
    whole = replicates(statistic, 50, 101, seed=1)
    monkeypatch.setattr("rm_memorization.resampling.CHUNK", 350)
    assert CHUNK // 50 > 101
    assert np.allclose(whole, replicates(statistic, 50, 101, seed=1), rtol=1e-14)


def test_one_cluster_has_an_estimate_and_no_interval():
    assert cluster_bootstrap(means(column(4.0)), 1, 100, seed=1) == [Estimate(4.0, None, None, "one_cluster")]


def test_equal_clusters_have_no_interval():
    assert cluster_bootstrap(means(column(*[0.1] * 9)), 9, 100, seed=1)[0].reason == "no_variation"
    assert cluster_bootstrap(means(column(*[0.0] * 9)), 9, 100, seed=1) == [
        Estimate(0.0, None, None, "no_variation")
    ]


def test_undefined_value_and_undefined_resample():
    def ratio(drawn):
        with np.errstate(invalid="ignore"):
            return np.divide(drawn @ column(1.0, 2.0, 0.0), drawn @ column(1.0, 1.0, 0.0))

    assert cluster_bootstrap(ratio, 3, 200, seed=1) == [Estimate(1.5, None, None, "undefined_resamples")]
    nothing = cluster_bootstrap(lambda drawn: np.full((len(drawn), 1), np.nan), 3, 200, seed=1)
    assert nothing == [Estimate(None, None, None, "undefined")]


def test_point_estimates_alone():
    assert point_estimates(means(column(1.0, 2.0)), 2) == [Estimate(1.5, None, None, None)]


@settings(max_examples=30)
@given(st.floats(-100, 100), st.floats(0.1, 100))
def test_interval_of_a_mean_moves_and_scales_with_the_data(shift, scale):
    values = column(0.0, 1.0, 3.0, 4.0, 9.0)
    (plain,) = cluster_bootstrap(means(values), 5, 100, seed=1)
    (moved,) = cluster_bootstrap(means(values * scale + shift), 5, 100, seed=1)
    assert moved.low == pytest.approx(plain.low * scale + shift, abs=1e-9)
    assert moved.high == pytest.approx(plain.high * scale + shift, abs=1e-9)


def test_coverage_needs_clusters():
    """Rows of a prompt share a deviation: drawing prompts covers the truth about as often as promised, rows do not."""
    rng = np.random.default_rng(11)
    data = rng.normal(size=(40, 1, 1000)) + 0.5 * rng.normal(size=(40, 6, 1000))  # prompts, rows, data sets

    def coverage(values):
        found = cluster_bootstrap(means(values), len(values), 1000, seed=1)
        return np.mean([one.low <= 0 <= one.high for one in found])

    assert 0.92 <= coverage(data.mean(axis=1)) <= 0.965
    assert coverage(data.reshape(240, 1000)) < 0.75
