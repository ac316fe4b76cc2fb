"""verify finds whatever is wrong, names it, and says what mends it."""

import json

import numpy as np
import polars as pl
import pyarrow.parquet as pq
import pytest
from test_results import TABLES, aggregate, backbone, build, ingest, score
from typer.testing import CliRunner

from rm_memorization import artifact, results, tables
from rm_memorization.cli import app
from rm_memorization.hashing import file_digest
from rm_memorization.verify import Finding, findings

R1, R2 = "score/r01/scores.parquet", "score/r02/scores.parquet"


@pytest.fixture
def root(tmp_path, monkeypatch):
    root = build(tmp_path)
    monkeypatch.chdir(tmp_path)
    return root


def found(root):
    """Give kind and path below the experiment of each finding."""
    return [
        (finding.kind, finding.path.removeprefix("results/tiny/")) for finding in findings(results.load(root))
    ]


def only(root):
    (finding,) = findings(results.load(root))
    return finding


def edit_record(root, job, change):
    path = root / "run_records" / f"{job}.json"
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


def test_a_whole_experiment_has_no_findings(root):
    assert found(root) == []
    done = CliRunner().invoke(app, ["verify", "results"])
    assert (done.exit_code, done.output) == (0, "6 tables, 5 jobs: all whole\n")


def test_any_changed_byte_of_a_table_is_found(root):
    rng, kept = np.random.default_rng(11), {path: (root / path).read_bytes() for path in TABLES}
    for path in rng.choice(TABLES, 200):
        data = bytearray(kept[path])
        data[rng.integers(len(data))] ^= rng.integers(1, 256)
        (root / path).write_bytes(data)
        assert found(root) == [("damaged", path)]
        (root / path).write_bytes(kept[path])
    assert found(root) == []


def test_any_changed_byte_of_the_backbone_is_found(root):
    path = root / "backbone" / "files" / "model.safetensors"
    whole, rng = path.read_bytes(), np.random.default_rng(12)
    for position in rng.integers(len(whole), size=20):
        data = bytearray(whole)
        data[position] ^= 1
        path.write_bytes(data)
        assert found(root) == [("damaged", "backbone/files/model.safetensors")]


@pytest.mark.parametrize("size", [0, 3, 5, 100, -1])
def test_a_truncated_table_is_found(root, size):
    (root / R1).write_bytes((root / R1).read_bytes()[:size])
    assert only(root).path == f"results/tiny/{R1}"
    assert only(root).detail.startswith("cut short or overwritten")


def test_a_missing_table_is_found(root):
    (root / R1).unlink()
    path = f"results/tiny/{R1}"
    assert only(root) == Finding(
        path,
        "missing",
        "score.r01 has written it, but it is not there",
        f"snakemake --cores 2 --force {path}",
    )


def test_swapped_tables_are_found(root):
    one, two = (root / R1).read_bytes(), (root / R2).read_bytes()
    (root / R1).write_bytes(two)
    (root / R2).write_bytes(one)
    first, second = findings(results.load(root))
    assert (first.kind, first.detail) == ("damaged", f"swapped: it holds what score.r02 wrote as {R2}")
    assert (second.kind, second.detail) == ("damaged", f"swapped: it holds what score.r01 wrote as {R1}")


def test_a_table_replaced_by_another_whole_one_is_found(root):
    frame = artifact.read(root / R1, tables.SCORES).with_columns(reward_chosen=pl.lit(9.0, dtype=pl.Float32))
    artifact.write(frame, tables.SCORES, root / R1)
    assert only(root).detail.startswith("its bytes have changed")


def test_mending_as_told_mends(root):
    (root / R1).unlink()
    (root / "backbone" / "files" / "config.json").unlink()
    assert {finding.mend for finding in findings(results.load(root))} == {
        f"snakemake --cores 2 --force results/tiny/{R1}",
        "snakemake --cores 2 --force results/tiny/backbone/backbone.parquet",
    }
    backbone(root)
    score(root, "r01")
    assert found(root) == []


def test_descendants_of_a_remade_table_are_stale_until_they_are_remade(root):
    ingest(root, seen=7)
    memorization = "aggregate_cm/memorization.parquet"
    stale = [("stale", path) for path in (memorization, "backbone/backbone.parquet", R1, R2)]
    assert sorted(found(root)) == stale
    backbone(root)
    assert sorted(found(root)) == [stale[0], *stale[2:]]
    score(root, "r01", shift=0.5)
    score(root, "r02")
    finding = only(root)
    assert finding.path == f"results/tiny/{memorization}"
    assert finding.detail.startswith("aggregate_cm made it from an earlier ingest/pairs.parquet (")
    assert R1 in finding.detail
    assert R2 not in finding.detail
    assert finding.mend == f"snakemake --cores 2 --force results/tiny/{memorization}"
    aggregate(root)
    assert found(root) == []


def test_a_job_that_made_equal_content_again_leaves_nothing_stale(root):
    ingest(root)
    score(root, "r02")
    assert found(root) == []


def test_a_table_without_a_record_is_found(root):
    (root / "run_records" / "score.r02.json").unlink()
    assert only(root).kind == "unclaimed"
    assert only(root).path == f"results/tiny/{R2}"
    artifact.write(
        artifact.read(root / R2, tables.SCORES), tables.SCORES, root / "score" / "r09" / "scores.parquet"
    )
    assert found(root) == [("unclaimed", R2), ("unclaimed", "score/r09/scores.parquet")]


def test_an_input_without_a_record_is_judged_by_the_file(root):
    (root / "run_records" / "score.r02.json").unlink()
    frame = artifact.read(root / R2, tables.SCORES)
    artifact.write(frame.with_columns(reward_chosen=pl.lit(9.0, dtype=pl.Float32)), tables.SCORES, root / R2)
    stale = ("stale", "aggregate_cm/memorization.parquet")
    assert found(root) == [stale, ("unclaimed", R2)]
    (root / R2).write_bytes(b"nonsense")
    assert found(root) == [stale, ("unclaimed", R2)]
    assert "unreadable now" in findings(results.load(root))[0].detail
    (root / R2).unlink()
    assert found(root) == [stale]
    assert "nothing now" in only(root).detail


def test_a_broken_record_is_one_finding(root):
    (root / "run_records" / "aggregate_cm.json").write_text("{")
    finding = only(root)
    assert (finding.kind, finding.path) == ("record", "results/tiny/run_records/aggregate_cm.json")
    assert finding.mend == "snakemake --cores 2 --force results/tiny/aggregate_cm/memorization.parquet"
    (root / "run_records" / "score.r01.json").write_text("")
    assert found(root) == [("record", f"run_records/{job}.json") for job in ("aggregate_cm", "score.r01")]


def test_a_broken_record_of_nothing_is_to_be_removed(root):
    (root / "run_records" / "score.r77.json").write_text("{")
    assert only(root).mend == "rm results/tiny/run_records/score.r77.json"


def test_edited_parameters_are_found(root):
    edit_record(root, "score.r01", lambda content: content["params"].update(run="r02"))
    assert (only(root).kind, only(root).detail) == ("record", "the parameters are not those of params_digest")
    assert only(root).mend == f"snakemake --cores 2 --force results/tiny/{R1}"


def test_a_false_content_hash_is_found_though_all_bytes_are_as_recorded(root):
    edit_record(
        root,
        "aggregate_cm",
        lambda content: content["outputs"]["aggregate_cm/summary.parquet"].update(content_hash="0" * 64),
    )
    finding = only(root)
    assert (finding.kind, finding.path) == ("false hash", "results/tiny/aggregate_cm/summary.parquet")
    assert finding.detail.endswith("record 000000000000")


@pytest.mark.parametrize("part", ["footer", "values"])
def test_a_footer_that_does_not_fit_the_values_is_found(root, part):
    path, name = root / "aggregate_cm" / "summary.parquet", "aggregate_cm/summary.parquet"
    table, footer = pq.read_table(path), artifact.footer(path)
    if part == "footer":
        footer["content_hash"] = "0" * 64
    else:
        table = table.set_column(1, "bound", [[3.0]])
    pq.write_table(table.replace_schema_metadata({artifact.FOOTER: json.dumps(footer).encode()}), path)
    edit_record(
        root, "aggregate_cm", lambda content: content["outputs"][name].update(sha256=file_digest(path))
    )
    assert found(root) == [("false hash", name)]


def test_a_recorded_file_that_is_no_artifact_is_found(root):
    path, name = root / "aggregate_cm" / "summary.parquet", "aggregate_cm/summary.parquet"
    pl.DataFrame({"a": [1]}).write_parquet(path)
    edit_record(
        root, "aggregate_cm", lambda content: content["outputs"][name].update(sha256=file_digest(path))
    )
    assert (only(root).kind, only(root).detail) == (
        "false hash",
        "a Parquet file without this package's footer",
    )


def test_backbone_files_that_are_missing_short_or_not_listed_are_found(root):
    folder = root / "backbone" / "files"
    (folder / "config.json").unlink()
    (folder / "model.safetensors").write_bytes(b"short")
    (folder / "modeling.py").write_text("")
    got = findings(results.load(root))
    assert [(finding.kind, finding.path.rpartition("/")[2]) for finding in got] == [
        ("missing", "config.json"),
        ("damaged", "model.safetensors"),
        ("unclaimed", "modeling.py"),
    ]
    assert got[1].detail == "5 bytes instead of 700"
    assert got[2].mend == "rm results/tiny/backbone/files/modeling.py"


def test_figures_pages_logs_and_temporary_files_are_no_tables(root):
    for name in (
        "report/cm.svg",
        "report/index.html",
        "logs/score/r01.log",
        "score/r01/.scores.parquet.0a.tmp",
    ):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("x")
    assert found(root) == []


def test_the_command_prints_a_finding_a_line_and_fails(root):
    (root / R1).unlink()
    (root / R2).write_bytes(b"")
    done = CliRunner().invoke(app, ["verify", "results/tiny"])
    assert done.exit_code == 1
    lines = done.stdout.splitlines()
    assert lines[0] == (
        f"results/tiny/{R1}: missing: score.r01 has written it, but it is not there. "
        f"Mend: snakemake --cores 2 --force results/tiny/{R1}"
    )
    assert [line.split(": ")[:2] for line in lines[1:-1]] == [[f"results/tiny/{R2}", "damaged"]]
    assert "then verify again" in lines[-1]


def test_paths_outside_the_current_folder_are_absolute_and_quoted(tmp_path):
    folder = tmp_path / "two words"
    folder.mkdir()
    root = build(folder)
    (root / R1).unlink()
    assert only(root).path == f"{root}/{R1}"
    assert only(root).mend == f"snakemake --cores 2 --force '{root}/{R1}'"
