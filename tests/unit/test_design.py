"""The subset design: exact where it promises, even where it can be, and certified by measurement."""

from collections import Counter
from itertools import combinations
from math import ceil, comb, floor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rm_memorization import artifact, tables
from rm_memorization import design as module
from rm_memorization.design import certify, design, matrix
from rm_memorization.errors import UserError


def needed(runs: int, held_out: int) -> int:
    """Count the units below which some run holds out nobody or trains on nobody."""
    return max(2, ceil(runs / held_out), ceil(runs / (runs - held_out)))


@st.composite
def sizes(draw):
    runs = draw(st.integers(2, 9))
    held_out = draw(st.integers(1, runs - 1))
    units = draw(st.integers(needed(runs, held_out), 40))
    weights = draw(st.lists(st.integers(1, 1000), min_size=units, max_size=units))
    return (
        {f"u{number}": weight for number, weight in enumerate(weights)},
        runs,
        held_out,
        draw(st.integers(0, 5)),
    )


@settings(deadline=None)
@given(sizes())
def test_what_every_design_keeps(size):
    weights, runs, held_out, seed = size
    held = design(weights, runs, held_out, seed)
    assert set(held) == set(weights)
    assert all(len(row) == held_out == len(set(row)) for row in held.values())
    assert all(row == sorted(row) and set(row) <= set(range(runs)) for row in held.values())
    per_run = Counter(run for row in held.values() for run in row)
    counts = [per_run[run] for run in range(runs)]
    assert max(counts) - min(counts) <= 2
    assert min(counts) > 0
    assert max(counts) < len(weights)
    rows = Counter(map(tuple, held.values()))
    assert max(rows.values()) == ceil(len(weights) / comb(runs, held_out))


@settings(deadline=None)
@given(sizes(), st.randoms())
def test_the_order_of_the_units_does_not_matter(size, random):
    weights, *rest = size
    shuffled = list(weights.items())
    random.shuffle(shuffled)
    assert design(dict(shuffled), *rest) == design(weights, *rest)


def test_the_seed_decides():
    weights = {f"u{number}": 1 for number in range(30)}
    assert design(weights, 10, 2, 1) == design(weights, 10, 2, 1)
    assert design(weights, 10, 2, 1) != design(weights, 10, 2, 2)


def test_as_many_units_as_rows_use_each_once():
    held = design({f"u{number}": 1 + number for number in range(45)}, runs=10, held_out=2, seed=42)
    assert sorted(map(tuple, held.values())) == list(combinations(range(10), 2))


@pytest.mark.parametrize(
    ("runs", "held_out", "units"), [(10, 2, 120), (25, 5, 300), (5, 2, 45), (4, 1, 8), (4, 3, 8)]
)
def test_pairs_of_runs_and_shares_of_pairs_are_even(runs, held_out, units):
    weights = {f"u{number}": 5 + number % 40 for number in range(units)}
    rows = certify(design(weights, runs, held_out, 42), weights, runs)
    achieved = dict(rows.select("property", "achieved").iter_rows())
    assert achieved["held_out_units_per_run_pair_max"] - achieved["held_out_units_per_run_pair_min"] <= 3
    assert achieved["held_out_pairs_worst_deviation"] < 0.05


def test_a_few_heavy_units_are_spread():
    """Four units hold nearly all pairs; each of four runs must get one of them."""
    weights = {f"u{number:02d}": 1000 if number < 4 else 1 for number in range(16)}
    held = design(weights, runs=4, held_out=1, seed=1)
    assert sorted(held[f"u{number:02d}"][0] for number in range(4)) == [0, 1, 2, 3]


@pytest.mark.parametrize(("runs", "held_out"), [(10, 2), (5, 4), (2, 1), (10, 9), (7, 3)])
def test_fewer_units_than_needed(runs, held_out):
    count = needed(runs, held_out)
    design({f"u{number}": 1 for number in range(count)}, runs, held_out, 1)
    with pytest.raises(UserError) as caught:
        design({f"u{number}": 1 for number in range(count - 1)}, runs, held_out, 1)
    assert str(caught.value).startswith(
        f"split: {count - 1} units, but {runs} runs with {held_out} held out need {count}"
    )


@pytest.mark.parametrize("held_out", [0, 4, 5])
def test_designs_that_do_not_exist(held_out):
    with pytest.raises(
        UserError, match=f"4 runs cannot hold out a unit {held_out} times and train on it too"
    ):
        design({f"u{number}": 1 for number in range(9)}, 4, held_out, 1)


def test_more_rows_than_can_be_listed(monkeypatch):
    monkeypatch.setattr(module, "MAX_ROWS", 100)
    assert comb(12, 5) > 100
    weights = {f"u{number}": 1 + number % 3 for number in range(60)}
    held = design(weights, runs=12, held_out=5, seed=1)
    assert all(len(set(row)) == 5 for row in held.values())
    assert len(set(map(tuple, held.values()))) == 60
    counts = Counter(run for row in held.values() for run in row)
    assert max(counts.values()) - min(counts.values()) <= 4
    assert held == design(weights, runs=12, held_out=5, seed=1)


def test_the_matrix():
    assert matrix({"b": [0, 2], "a": [1, 2]}, 4).tolist() == [
        [False, True, True, False],
        [True, False, True, False],
    ]


def measured(held, weights, runs, held_out) -> dict[str, tuple[float | None, float]]:
    """Count by hand what the certificate computes with matrices."""
    units = [sum(run in row for row in held.values()) for run in range(runs)]
    both = [sum(a in row and b in row for row in held.values()) for a, b in combinations(range(runs), 2)]
    pairs = [sum(weights[unit] for unit, row in held.items() if run in row) for run in range(runs)]
    fair = sum(pairs) / runs
    rows = Counter(map(tuple, held.values()))
    count = len(held)
    per_run, per_pair = count * held_out / runs, count * comb(held_out, 2) / comb(runs, 2)
    return {
        "held_out_runs_per_unit_max": (None, max(map(len, held.values()))),
        "held_out_runs_per_unit_min": (None, min(map(len, held.values()))),
        "held_out_units_per_run_max": (ceil(per_run), max(units)),
        "held_out_units_per_run_min": (floor(per_run), min(units)),
        "held_out_units_per_run_pair_max": (ceil(per_pair), max(both)),
        "held_out_units_per_run_pair_min": (floor(per_pair), min(both)),
        "held_out_pairs_worst_deviation": (0.0, max(abs(share / fair - 1) for share in pairs)),
        "units_with_the_same_runs_max": (ceil(count / comb(runs, held_out)), max(rows.values())),
    }


@settings(deadline=None)
@given(sizes(), st.booleans())
def test_the_certificate_is_what_one_counts_by_hand(size, careless):
    weights, runs, held_out, seed = size
    held = design(weights, runs, held_out, seed)
    if careless:  # a user's own design may be uneven
        held = {unit: list(range(held_out)) for unit in held}
    rows = certify(held, weights, runs)
    expected = measured(held, weights, runs, held_out)
    found = {name: (bound, achieved) for name, bound, achieved in rows.iter_rows()}
    assert set(found) == set(expected)
    for name, (bound, achieved) in expected.items():
        assert found[name] == (bound, pytest.approx(achieved, abs=1e-12)), name


@settings(deadline=None)
@given(sizes())
def test_no_design_beats_its_bounds(size):
    weights, runs, held_out, seed = size
    for name, bound, achieved in certify(design(weights, runs, held_out, seed), weights, runs).iter_rows():
        if bound is not None:
            assert achieved <= bound if name.endswith("min") else achieved >= bound


def test_the_certificate_keeps_its_contract(tmp_path):
    weights = {f"u{number}": 1 for number in range(6)}
    artifact.write(certify(design(weights, 3, 1, 1), weights, 3), tables.CERTIFICATE, tmp_path / "c.parquet")
    assert artifact.read(tmp_path / "c.parquet", tables.CERTIFICATE).height == 8
