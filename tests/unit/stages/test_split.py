"""The stage that decides who is held out of which run."""

import json
from collections import Counter
from pathlib import Path

import polars as pl
import pytest
from typer.testing import CliRunner

from rm_memorization import artifact, tables
from rm_memorization.cli import app
from rm_memorization.errors import UserError
from rm_memorization.stages.split import split

RUNS = ["r01", "r02", "r03", "r04", "r05"]
UNITS = {f"u{number:02d}": 1 + number % 4 for number in range(12)} | {"--odd\nname": 2}


@pytest.fixture
def tokens(tmp_path) -> Path:
    units = [unit for unit, count in UNITS.items() for _ in range(count)]
    frame = pl.DataFrame(
        {
            "pair_id": [f"p{number:02d}" for number in range(len(units))],
            "unit_id": units,
            "prefix_ids": [[1]] * len(units),
            "chosen_ids": [[2]] * len(units),
            "rejected_ids": [[3]] * len(units),
            "n_prompt": [1] * len(units),
            "token_hash": [f"h{number}" for number in range(len(units))],
        },
        schema_overrides=dict.fromkeys(("prefix_ids", "chosen_ids", "rejected_ids"), tables.TOKENS),
    )
    artifact.write(frame, tables.TOKENIZED, tmp_path / "tokens.parquet")
    return tmp_path / "tokens.parquet"


def run(tokens: Path, name: str, **options) -> Path:
    """Split with two held out of five, and give the folder of what was written."""
    folder = tokens.parent / name
    options = {"run": RUNS, "held_out": 2, "seed": 42} | options
    assignments = [folder / one / "assignment.parquet" for one in options["run"]]
    split(
        tokens,
        assignment=assignments,
        design=folder / "design.parquet",
        certificate=folder / "certificate.parquet",
        **options,
    )
    return folder


def assignment(folder: Path, one: str) -> pl.DataFrame:
    return artifact.read(folder / one / "assignment.parquet", tables.ASSIGNMENT)


def test_a_run_includes_all_pairs_of_whom_it_does_not_hold_out(tokens):
    folder = run(tokens, "a")
    design = artifact.read(folder / "design.parquet", tables.DESIGN)
    everything = artifact.read(tokens, tables.TOKENIZED).select("unit_id", "pair_id", "token_hash")
    for one in RUNS:
        held_out = design.filter(held_out=one)["unit_id"]
        expected = everything.filter(~pl.col("unit_id").is_in(held_out.to_list())).sort("unit_id", "pair_id")
        assert assignment(folder, one).equals(expected)
        assert 0 < len(held_out) < len(UNITS)


def test_the_design_names_each_unit_with_its_runs_and_pairs(tokens):
    design = artifact.read(run(tokens, "a") / "design.parquet", tables.DESIGN)
    assert Counter(design["unit_id"]) == dict.fromkeys(UNITS, 2)
    assert dict(design.select("unit_id", "pairs").iter_rows()) == UNITS


def test_the_certificate(tokens):
    certificate = artifact.read(run(tokens, "a") / "certificate.parquet", tables.CERTIFICATE)
    achieved = dict(certificate.select("property", "achieved").iter_rows())
    assert achieved["held_out_runs_per_unit_min"] == achieved["held_out_runs_per_unit_max"] == 2


def test_the_same_again_and_another_seed(tokens):
    first, second, other = run(tokens, "a"), run(tokens, "b"), run(tokens, "c", seed=43)
    names = ["design.parquet", "certificate.parquet", *(f"{one}/assignment.parquet" for one in RUNS)]
    assert [(first / name).read_bytes() for name in names] == [(second / name).read_bytes() for name in names]
    assert (first / "design.parquet").read_bytes() != (other / "design.parquet").read_bytes()


def test_a_withdrawn_unit_leaves_every_run_and_changes_no_other(tokens):
    before = run(tokens, "a")
    design = artifact.read(before / "design.parquet", tables.DESIGN)
    withdrawn = "u03"
    had_trained = set(RUNS) - set(design.filter(unit_id=withdrawn)["held_out"])
    after = run(tokens, "b", exclude_user=[withdrawn])
    for name in ("design.parquet", "certificate.parquet"):
        assert (after / name).read_bytes() == (before / name).read_bytes()
    for one in RUNS:
        unchanged = (after / one / "assignment.parquet").read_bytes() == (
            before / one / "assignment.parquet"
        ).read_bytes()
        assert unchanged == (one not in had_trained)
        assert assignment(after, one).equals(assignment(before, one).filter(pl.col("unit_id") != withdrawn))
    assert len(had_trained) == 3


def test_all_units_of_a_run_may_be_withdrawn_here(tokens):
    """The stage `manifest` then says that nothing is left to train on."""
    folder = run(tokens, "a", exclude_user=list(UNITS))
    assert all(assignment(folder, one).is_empty() for one in RUNS)


def test_an_unknown_withdrawn_unit(tokens):
    with pytest.raises(UserError) as caught:
        run(tokens, "a", exclude_user=["u03", "zz", "yy"])
    assert str(caught.value).startswith(
        "config: split.exclude_users: 'yy' is not a unit of this data set, nor are 1 others that are named."
    )
    assert not (tokens.parent / "a").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"held_out": 5}, "5 runs cannot hold out a unit 5 times and train on it too"),
        (
            {"run": [f"r{n:02d}" for n in range(30)], "held_out": 1},
            "13 units, but 30 runs with 1 held out need 30",
        ),
    ],
)
def test_designs_that_do_not_exist(tokens, options, message):
    with pytest.raises(UserError) as caught:
        run(tokens, "a", **options)
    assert message in str(caught.value)


def test_a_table_for_each_run(tokens, tmp_path):
    paths = {"design": tmp_path / "d.parquet", "certificate": tmp_path / "c.parquet"}
    with pytest.raises(UserError, match="1 tables for 5 runs"):
        split(tokens, RUNS, [tmp_path / "a.parquet"], held_out=2, seed=1, **paths)


def test_the_command_and_its_record(tokens, tmp_path):
    folder = tmp_path / "split"
    options = ["--tokens", tokens, "--held-out", 2, "--seed", 42, "--exclude-user", "--odd\nname"]
    options += ["--design", folder / "design.parquet", "--certificate", folder / "certificate.parquet"]
    options += ["--record", tmp_path / "run_records" / "split.json"]
    for one in RUNS:
        options += ["--run", one, "--assignment", folder / one / "assignment.parquet"]
    done = CliRunner().invoke(app, ["split", *map(str, options)])
    assert done.exit_code == 0, done.output
    assert assignment(folder, "r01").equals(assignment(run(tokens, "a", exclude_user=["--odd\nname"]), "r01"))
    content = json.loads((tmp_path / "run_records" / "split.json").read_text())
    assert content["params"] == {"runs": RUNS, "held_out": 2, "seed": 42, "exclude_users": ["--odd\nname"]}
    assert len(content["outputs"]) == 7
