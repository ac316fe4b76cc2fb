"""The stage that lists what a run trains on."""

import json

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from rm_memorization import artifact, tables
from rm_memorization.cli import app
from rm_memorization.errors import UserError
from rm_memorization.stages.manifest import manifest, without_units

INCLUDED = pl.DataFrame(
    {
        "unit_id": ["a", "a", "b", "c\n--x"],
        "pair_id": ["p1", "p2", "p3", "p4"],
        "token_hash": ["h1", "h2", "h3", "h4"],
    }
)


@pytest.fixture
def tokens(tmp_path):
    """Give the tokens: the assigned pairs, and those of two units that the run holds out."""
    rows = [*INCLUDED.iter_rows(), ("held", "p5", "h5"), ("out", "p6", "h6")]
    ids = {"prefix_ids": [[1]] * 6, "chosen_ids": [[2]] * 6, "rejected_ids": [[3]] * 6, "n_prompt": [1] * 6}
    frame = pl.DataFrame(rows, schema=INCLUDED.columns, orient="row").with_columns(
        pl.Series(name, values, dtype=tables.TOKENIZED.columns[name].dtype.type)
        for name, values in ids.items()
    )
    path = tmp_path / "tokens.parquet"
    artifact.write(frame, tables.TOKENIZED, path)
    return path


@pytest.fixture
def assignment(tmp_path):
    path = tmp_path / "split" / "r01" / "assignment.parquet"
    artifact.write(INCLUDED, tables.ASSIGNMENT, path)
    return path


def test_without_an_override_it_is_the_assignment(tmp_path, assignment, tokens):
    manifest(assignment, tokens, tmp_path / "m.parquet")
    assert artifact.read(tmp_path / "m.parquet", tables.MANIFEST).equals(INCLUDED)


def test_an_override_takes_units_out(tmp_path, assignment, tokens):
    record = tmp_path / "run_records" / "manifest.r01.json"
    manifest(assignment, tokens, tmp_path / "m.parquet", ["a", "c\n--x"], record)
    assert artifact.read(tmp_path / "m.parquet", tables.MANIFEST).rows() == [("b", "p3", "h3")]
    assert json.loads(record.read_text())["params"] == {"exclude_users": ["a", "c\n--x"]}


@settings(deadline=None)
@given(st.sets(st.sampled_from(["a", "b", "c\n--x"]), max_size=2))
def test_what_is_left_and_what_was_taken_make_the_whole(excluded):
    left = without_units(INCLUDED, sorted(excluded), "assignment")
    assert set(left["unit_id"]) == {"a", "b", "c\n--x"} - excluded
    taken = INCLUDED.filter(pl.col("unit_id").is_in(sorted(excluded)))
    assert pl.concat([left, taken]).sort("pair_id").equals(INCLUDED)


def test_a_unit_that_is_held_out_anyway_may_be_named(tmp_path, assignment, tokens):
    manifest(assignment, tokens, tmp_path / "m.parquet", ["held", "a"])
    assert artifact.read(tmp_path / "m.parquet", tables.MANIFEST)["pair_id"].to_list() == ["p3", "p4"]


def test_an_unknown_unit(tmp_path, assignment, tokens):
    with pytest.raises(UserError) as caught:
        manifest(assignment, tokens, tmp_path / "m.parquet", ["b", "Helt", "zzz"])
    assert str(caught.value) == (
        "config: manifest.overrides: 'Helt' is not a unit of this data set, nor are 1 others that are named. "
        "Hint: did you mean 'held'?"
    )
    assert not (tmp_path / "m.parquet").exists()


def test_nothing_left(tmp_path, assignment, tokens):
    with pytest.raises(UserError, match="no pair is left to train on"):
        manifest(assignment, tokens, tmp_path / "m.parquet", ["a", "b", "c\n--x"])
    artifact.write(INCLUDED.clear(), tables.ASSIGNMENT, assignment)
    with pytest.raises(UserError, match="no pair is left to train on"):
        manifest(assignment, tokens, tmp_path / "m.parquet")
    assert not (tmp_path / "m.parquet").exists()


def test_the_command(tmp_path, assignment, tokens):
    options = [
        "--assignment",
        str(assignment),
        "--tokens",
        str(tokens),
        "--manifest",
        str(tmp_path / "m.parquet"),
    ]
    done = CliRunner().invoke(app, ["manifest", *options, "--exclude-user", "c\n--x", "--exclude-user", "a"])
    assert done.exit_code == 0, done.output
    assert artifact.read(tmp_path / "m.parquet", tables.MANIFEST)["pair_id"].to_list() == ["p3"]
