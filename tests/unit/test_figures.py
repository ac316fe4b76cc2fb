"""The report's figures."""

import subprocess
import sys
from dataclasses import replace
from xml.etree import ElementTree as ET

import numpy as np
import polars as pl
import pytest
from fake_findings import RUNS, findings, table, without_cm
from hypothesis import given
from hypothesis import strategies as st

from rm_memorization import artifact, tables
from rm_memorization.figure_names import FIGURES
from rm_memorization.figures import PLOTS, groups, pairs, save, training

HOSTILE = [
    "</svg><script>alert(1)</script>",
    "$\\frac{1}{2}$ & 'quotes' \"",
    "_under\u202eover\x00\n😀",
    "$" + "x" * 300,
]
FOUND = findings()


def draw(name, found, tmp_path, file="figure.svg"):
    """Write a figure and give its SVG."""
    plot, path = PLOTS[name], tmp_path / file
    artifact.write(plot.data(found), plot.contract, tmp_path / f"{name}.parquet")
    save(plot, artifact.read(tmp_path / f"{name}.parquet", plot.contract), path)
    return path.read_text(encoding="utf-8")


def texts(svg):
    root = ET.fromstring(svg)  # noqa: S314 - our own file
    return ["".join(element.itertext()) for element in root.iter("{http://www.w3.org/2000/svg}text")]


def cm_of(*values, strata=None):
    """Give findings of pairs that have these CM, each of a unit of its own."""
    n = len(values)
    tg = [0.5 - value / 2 for value in values]
    columns = {
        "pair_id": [f"p{i}" for i in range(n)],
        "unit_id": [f"u{i}" for i in range(n)],
        "n_in": [8] * n,
        "n_out": [2] * n,
    }
    columns |= {"tm": [a + b for a, b in zip(tg, values, strict=True)], "tg": tg, "cm": list(values)} | (
        {"stratum": strata} if strata else {}
    )
    return replace(FOUND, memorization=table(columns, tables.MEMORIZATION))


def test_names_are_those_of_the_plots_and_cost_no_drawing_library():
    assert tuple(PLOTS) == FIGURES
    assert [plot.contract.name for plot in PLOTS.values()] == [f"figure_{name}" for name in FIGURES]
    code = "import sys, rm_memorization.figure_names; print([m for m in ('matplotlib', 'pandera', 'polars') if m in sys.modules])"
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
        == "[]\n"
    )


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("memorization_map", ["Training against generalisation, 400 pairs", "pairs in a bin"]),
        (
            "cm_histogram",
            ["CM: TM − TG", "with a rather long name of more than for… (+10): 100 pairs, mean 0.087"],
        ),
        ("cm_by_stratum", ["400 pairs, 40 units", "values guided"]),
        ("cm_by_unit_size", ["Counterfactual memorization by unit size, 40 units", "pairs of the unit"]),
        ("training_curves", ["Reward model training, 10 runs, means over 2 steps", "optimizer step"]),
        (
            "audit_length",
            ["Reward against length, 10 runs", "pairs, within the prompt", "120 answers, 40 prompts"],
        ),
        ("audit_factorial", ["Correctness and verbosity, 30 prompts, 10 runs", "expanded", "interaction"]),
        ("audit_refusal", ["Refusals, 10 runs", "benign_plain", "25 prompts"]),
    ],
)
def test_words_stand_in_the_figure(name, words, tmp_path):
    assert set(words) <= set(texts(draw(name, FOUND, tmp_path)))


def test_a_pair_falls_into_its_bin():
    found = cm_of(0.2, 0.2, -0.1, 1.0)
    data = pairs.map_data(found).sort("tg_low")
    assert data.rows() == [
        (0.0, 0.025, 0.975, 1.0, 1),
        (0.4, 0.425, 0.6, 0.625, 2),
        (0.55, 0.575, 0.45, 0.475, 1),
    ]


@given(st.lists(st.floats(-1, 1), min_size=1, max_size=60))
def test_a_histogram_counts_every_pair_once_and_has_an_edge_at_zero(values):
    data = pairs.histogram_data(cm_of(*values))
    assert data["pairs"].sum() == len(values)
    assert data["mean"].to_numpy() == pytest.approx(np.mean(values))
    assert ((data["low"] >= -1e-9) | (data["high"] <= 1e-9)).all()
    for row in data.iter_rows(named=True):
        inside = [value for value in values if row["low"] - 1e-12 <= value <= row["high"] + 1e-12]
        assert row["pairs"] <= len(inside)


def test_a_histogram_shows_few_strata_and_not_many(tmp_path):
    few = cm_of(0.1, 0.3, 0.2, strata=["a", "a", "b"])
    data = (
        pairs.histogram_data(few)
        .group_by("stratum")
        .agg(pl.col("pairs").sum(), pl.col("mean").first())
        .sort("stratum")
    )
    assert data.rows() == [("a", 2, 0.2), ("all", 3, pytest.approx(0.2)), ("b", 1, 0.2)]
    many = cm_of(*np.linspace(0, 0.3, 7), strata=list("abcdefg"))
    assert pairs.histogram_data(many)["stratum"].unique().to_list() == ["all"]
    assert "all: 7 pairs, mean 0.150" in texts(draw("cm_histogram", many, tmp_path))


def test_a_stratum_holds_the_means_of_its_own_pairs_of_each_unit():
    found = cm_of(0.1, 0.3, -0.2, strata=["a", "b", "b"])
    found = replace(found, memorization=found.memorization.with_columns(unit_id=pl.Series(["u", "u", "v"])))
    units = groups.stratum_data(found).filter(pl.col("unit_id") != "").sort("stratum", "unit_id")
    assert units.select("stratum", "unit_id", "cm", "pairs").rows() == [
        ("a", "u", 0.1, 1), ("all", "u", 0.2, 2), ("all", "v", -0.2, 1), ("b", "u", 0.3, 1), ("b", "v", -0.2, 1),
    ]  # fmt: skip


def test_long_trainings_are_averaged_over_windows():
    steps = list(range(1, 251))
    log = table(
        {
            "step": steps,
            "metric": ["loss"] * 250,
            "pair_id": [""] * 250,
            "value": [float(step) for step in steps],
        },
        tables.TRAINING_LOG,
    )
    data = training.curve_data(replace(FOUND, training_logs={"r01": log}))
    assert data["step"].to_list() == [*range(3, 250, 3), 250]
    assert data["steps"].to_list() == [3] * 83 + [1]
    assert data["value"].to_list() == [*np.arange(2.0, 249.0, 3), 250.0]


def test_only_loss_and_accuracy_are_drawn():
    assert set(training.curve_data(FOUND)["metric"]) == {"loss", "accuracy"}
    assert set(training.curve_data(FOUND)["run"]) == set(RUNS)


def test_no_strata(tmp_path):
    found = findings(strata=None)
    assert "all: 400 pairs, mean 0.080" in texts(draw("cm_histogram", found, tmp_path))
    assert "400 pairs, 40 units" in texts(draw("cm_by_stratum", found, tmp_path))


@pytest.mark.parametrize("name", ["memorization_map", "cm_histogram", "cm_by_unit_size"])
def test_no_pair_has_a_cm(name, tmp_path):
    assert texts(draw(name, without_cm(FOUND, pl.lit(value=True)), tmp_path)) == ["No pair has a CM."]


def test_a_stratum_without_value_says_why(tmp_path):
    assert "no value: no_pairs" in texts(
        draw("cm_by_stratum", without_cm(FOUND, pl.lit(value=True)), tmp_path)
    )


def test_pairs_without_cm_are_not_counted(tmp_path):
    some = without_cm(FOUND, pl.col("unit_id") == "user001")
    assert "Training against generalisation, 390 pairs" in texts(draw("memorization_map", some, tmp_path))
    assert "Counterfactual memorization by unit size, 39 units" in texts(
        draw("cm_by_unit_size", some, tmp_path)
    )


@pytest.mark.parametrize("name", ["audit_length", "audit_factorial", "audit_refusal"])
def test_audits_without_values_say_why(name, tmp_path):
    nulls = {column: pl.lit(None, pl.Float64) for column in ("estimate", "low", "high")}
    nothing = getattr(FOUND, name).with_columns(**nulls, reason=pl.lit("constant_length"))
    assert "no value: constant_length" in texts(draw(name, replace(FOUND, **{name: nothing}), tmp_path))
    empty = getattr(FOUND, name).clear()
    assert texts(draw(name, replace(FOUND, **{name: empty}), tmp_path)) == ["The audit has no rows."]


def test_an_audit_without_interval_says_why(tmp_path):
    pointless = FOUND.audit_refusal.with_columns(
        low=pl.lit(None, pl.Float64), high=pl.lit(None, pl.Float64), reason=pl.lit("one_cluster")
    )
    assert "no interval: one_cluster" in texts(
        draw("audit_refusal", replace(FOUND, audit_refusal=pointless), tmp_path)
    )


def test_hostile_names_are_text_and_no_more(tmp_path):
    found = findings(strata=HOSTILE)
    for name in ("cm_histogram", "cm_by_stratum"):
        svg = draw(name, found, tmp_path)
        drawn = " ".join(texts(svg))
        assert "<script" not in svg
        assert "</svg><script>alert(1)</script>" in drawn
        assert "$\\frac{1}{2}$ & 'quotes' \"" in drawn
        assert "_under⟨U+202E⟩over⟨U+0000⟩⟨U+000A⟩😀" in drawn
        assert "$" + "x" * 39 + "… (+261)" in drawn


def test_hostile_strata_of_an_audit(tmp_path):
    renamed = FOUND.audit_refusal.with_columns(
        pl.col("stratum").replace({"benign_plain": HOSTILE[0], "unsafe_control": HOSTILE[1]})
    )
    drawn = texts(draw("audit_refusal", replace(FOUND, audit_refusal=renamed), tmp_path))
    assert set(HOSTILE[:2]) <= set(drawn)


def test_units_of_very_different_size_have_a_logarithmic_axis(tmp_path):
    sizes = FOUND.memorization_users.with_columns(pairs=pl.Series([1, 1000] * 20))
    assert {"1", "10", "100", "1,000"} <= set(
        texts(draw("cm_by_unit_size", replace(FOUND, memorization_users=sizes), tmp_path))
    )


def test_many_dots_become_pixels(tmp_path):
    n = 4000
    users = table(
        {"unit_id": [f"u{i}" for i in range(n)], "pairs": [1] * n, "cm": np.linspace(-0.1, 0.3, n)},
        tables.MEMORIZATION_USERS,
    )
    svg = draw("cm_by_unit_size", replace(FOUND, memorization_users=users), tmp_path)
    assert 'href="data:image/png;base64,' in svg
    assert len(svg) < 300_000
