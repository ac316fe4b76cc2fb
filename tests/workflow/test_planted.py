"""The embedded default, exactly as `make run` runs it, finds what was planted."""

import polars as pl
import pytest
from checkout import Checkout

from rm_memorization import artifact, tables

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def default(tmp_path_factory):
    checkout = Checkout(tmp_path_factory.mktemp("default"))
    done = checkout.call("snakemake", "all", "--cores", "2")
    assert done.returncode == 0, done.stdout + done.stderr
    return checkout


def summary(default) -> pl.DataFrame:
    folder = default.folder / "results" / "planted" / "aggregate_cm"
    return artifact.read(folder / "summary.parquet", tables.SUMMARY).filter(pl.col("metric") == "cm")


@pytest.mark.parametrize("stratum", ["flipped", "arbitrary"])
def test_labels_that_do_not_follow_the_rule_are_memorized_more(default, stratum):
    rows = {row["stratum"]: row for row in summary(default).iter_rows(named=True)}
    difference = rows[f"{stratum} - rule"]
    assert difference["low"] > 0
    assert difference["estimate"] == pytest.approx(rows[stratum]["estimate"] - rows["rule"]["estimate"])


def test_what_follows_the_rule_is_generalised(default):
    rows = {row["stratum"]: row["estimate"] for row in summary(default).iter_rows(named=True)}
    assert rows["rule"] <= rows["flipped"] / 3


def test_every_pair_has_a_cm(default):
    folder = default.folder / "results" / "planted" / "aggregate_cm"
    pairs = artifact.read(folder / "memorization.parquet", tables.MEMORIZATION)
    assert pairs.height == 1440
    assert pairs["cm"].null_count() == 0
    assert (pairs["n_in"] == 8).all()
    assert (pairs["n_out"] == 2).all()
    assert pairs["cm"].min() < 0, "negative values are kept"


def test_the_screen_at_the_end_names_the_results(default):
    done = default.call("rm-memorization", "overview", "results/planted")
    assert done.returncode == 0, done.stderr
    assert "results/planted/report/index.html" in done.stdout
    assert "flipped - rule" in done.stdout
    assert "slowest steps" in done.stdout
