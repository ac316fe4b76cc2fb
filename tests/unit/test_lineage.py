"""lineage draws what a table was made from."""

import re

import pytest
from test_results import build, ingest
from typer.testing import CliRunner

from rm_memorization import results
from rm_memorization.cli import app
from rm_memorization.errors import UserError
from rm_memorization.hashing import file_digest
from rm_memorization.lineage import lineage, tree

ROOT = "aggregate_cm/memorization.parquet"


@pytest.fixture
def root(tmp_path):
    return build(tmp_path)


def shape(lines):
    """Give branches and paths alone."""
    return [line if "see above" in line else re.match(r"[│├└─ ]*\S+", line)[0] for line in lines]


def test_the_tree_reaches_the_source_and_expands_each_table_once(root):
    assert shape(tree(results.load(root), ROOT)) == [
        "aggregate_cm/memorization.parquet",
        "├─ ingest/pairs.parquet",
        "│  └─ source:source.jsonl",
        "├─ score/r01/scores.parquet",
        "│  ├─ backbone/backbone.parquet",
        "│  │  └─ see above: ingest/pairs.parquet",
        "│  └─ see above: ingest/pairs.parquet",
        "└─ score/r02/scores.parquet",
        "   └─ see above: backbone/backbone.parquet, ingest/pairs.parquet",
    ]


def test_a_sibling_that_an_earlier_branch_has_drawn_is_not_drawn_again(root):
    """The inputs of a score are the backbone, made from the pairs, and the pairs themselves."""
    assert shape(tree(results.load(root), "score/r01/scores.parquet")) == [
        "score/r01/scores.parquet",
        "├─ backbone/backbone.parquet",
        "│  └─ ingest/pairs.parquet",
        "│     └─ source:source.jsonl",
        "└─ see above: ingest/pairs.parquet",
    ]


def test_a_line_holds_hash_stage_start_and_parameters(root):
    experiment = results.load(root)
    lines, record = tree(experiment, "ingest/pairs.parquet"), experiment.records["ingest"]
    content_hash = record.outputs["ingest/pairs.parquet"].content_hash
    assert (
        lines[0]
        == f"ingest/pairs.parquet  {content_hash[:12]}  ingest  {record.ran.started}  params {record.params_digest[:12]}"
    )
    assert lines[1] == f"└─ source:source.jsonl  {file_digest(root.parent.parent / 'source.jsonl')[:12]}"


def test_an_input_made_anew_is_told_and_not_expanded(root):
    before = results.load(root).written("ingest/pairs.parquet").content_hash
    ingest(root, seen=5)
    after = results.load(root).written("ingest/pairs.parquet").content_hash
    lines = tree(results.load(root), "backbone/backbone.parquet")
    assert lines[1:] == [f"└─ ingest/pairs.parquet  {before[:12]}  since made anew as {after[:12]}"]


def test_an_input_without_a_record_is_a_leaf(root):
    (root / "run_records" / "ingest.json").unlink()
    lines = tree(results.load(root), "backbone/backbone.parquet")
    assert re.fullmatch(r"└─ ingest/pairs\.parquet  [0-9a-f]{12}", lines[1])


def test_the_command_prints_the_tree_from_any_folder(root, monkeypatch):
    expected = tree(results.load(root), ROOT)
    for folder, path in (
        (root.parent.parent, f"results/tiny/{ROOT}"),
        (root / "aggregate_cm", "memorization.parquet"),
    ):
        monkeypatch.chdir(folder)
        done = CliRunner().invoke(app, ["lineage", path])
        assert (done.exit_code, done.output.splitlines()) == (0, expected)


def test_what_has_no_lineage_is_named(root, tmp_path):
    figure = root / "aggregate_cm" / "figure.svg"
    figure.touch()
    with pytest.raises(UserError, match="no run record claims it"):
        lineage(figure)
    with pytest.raises(UserError, match="no folder above it"):
        lineage(tmp_path / "x.parquet")
    (root / ROOT).write_bytes((root / "score/r01/scores.parquet").read_bytes())
    with pytest.raises(UserError, match="not the table that the run record describes"):
        lineage(root / ROOT)
    (root / ROOT).unlink()
    with pytest.raises(UserError, match="no such file"):
        lineage(root / ROOT)


def test_a_broken_record_stops_it(root):
    (root / "run_records" / "score.r02.json").write_text("{")
    with pytest.raises(UserError, match="not a run record"):
        lineage(root / ROOT)
