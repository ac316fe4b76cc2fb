"""Experiments on disk, and a small one that the tests of `verify`, `lineage`, `hashes` and `provenance` share."""

import json

import polars as pl
import pytest

from rm_memorization import artifact, results, tables
from rm_memorization.errors import UserError
from rm_memorization.hashing import file_digest
from rm_memorization.record import note_source, recorded

RUNS = ("r01", "r02")


def ingest(root, seen=1):
    with recorded("ingest", root / "run_records" / "ingest.json", seen=seen):
        note_source(root.parent.parent / "source.jsonl")
        frame = pl.DataFrame({"pair_id": ["a", "b", "c"], "seen": [seen, 2, 3]})
        artifact.write(frame, tables.TRAINED, root / "ingest" / "pairs.parquet")


def backbone(root):
    folder = root / "backbone" / "files"
    folder.mkdir(parents=True, exist_ok=True)
    with recorded("backbone", root / "run_records" / "backbone.json"):
        artifact.read(root / "ingest" / "pairs.parquet", tables.TRAINED)
        (folder / "config.json").write_text("{}")
        (folder / "model.safetensors").write_bytes(b"weights" * 100)
        listed = [(file.name, file.stat().st_size, file_digest(file)) for file in sorted(folder.iterdir())]
        frame = pl.DataFrame(listed, schema=["file", "bytes", "sha256"], orient="row")
        artifact.write(frame, tables.BACKBONE, root / "backbone" / "backbone.parquet")


def score(root, run, shift=0.0):
    with recorded("score", root / "run_records" / f"score.{run}.json", run=run):
        pairs = artifact.read(root / "ingest" / "pairs.parquet", tables.TRAINED)
        artifact.read(root / "backbone" / "backbone.parquet", tables.BACKBONE)
        reward = pl.lit(RUNS.index(run) + shift, dtype=pl.Float32)
        frame = pairs.select("pair_id", reward_chosen=reward, reward_rejected=-reward)
        artifact.write(frame, tables.SCORES, root / "score" / run / "scores.parquet")


def aggregate(root):
    with recorded("aggregate_cm", root / "run_records" / "aggregate_cm.json", seed=1):
        scores = [artifact.read(root / "score" / run / "scores.parquet", tables.SCORES) for run in RUNS]
        artifact.read(root / "ingest" / "pairs.parquet", tables.TRAINED)
        counts = pl.concat(scores).group_by("pair_id").agg(seen=pl.len().cast(pl.Int64))
        artifact.write(counts, tables.TRAINED, root / "aggregate_cm" / "memorization.parquet")
        design = pl.DataFrame({"property": ["runs"], "bound": [2.0], "achieved": [2.0]})
        artifact.write(design, tables.CERTIFICATE, root / "aggregate_cm" / "summary.parquet")


def build(folder):
    """Make an experiment of four stages and two runs: ingest → backbone → score → aggregate_cm."""
    folder.joinpath("source.jsonl").write_text('{"chosen": "yes", "rejected": "no"}\n')
    root = folder / "results" / "tiny"
    ingest(root)
    backbone(root)
    for run in RUNS:
        score(root, run)
    aggregate(root)
    return root


TABLES = [
    "aggregate_cm/memorization.parquet",
    "aggregate_cm/summary.parquet",
    "backbone/backbone.parquet",
    "ingest/pairs.parquet",
    "score/r01/scores.parquet",
    "score/r02/scores.parquet",
]


def test_every_table_has_its_producer(tmp_path):
    experiment = results.load(build(tmp_path))
    assert set(experiment.records) == {"ingest", "backbone", "score.r01", "score.r02", "aggregate_cm"}
    assert experiment.producers == {
        "ingest/pairs.parquet": "ingest",
        "backbone/backbone.parquet": "backbone",
        "score/r01/scores.parquet": "score.r01",
        "score/r02/scores.parquet": "score.r02",
        "aggregate_cm/memorization.parquet": "aggregate_cm",
        "aggregate_cm/summary.parquet": "aggregate_cm",
    }
    path = "score/r02/scores.parquet"
    assert experiment.written(path).content_hash == artifact.recompute(experiment.folder / path)
    assert experiment.written("score/r03/scores.parquet") is None


def test_records_stand_in_the_order_of_their_start(tmp_path):
    root = build(tmp_path)
    for second, job in enumerate(["ingest", "score.r02", "score.r01", "backbone", "aggregate_cm"]):
        path = root / "run_records" / f"{job}.json"
        content = json.loads(path.read_text())
        content["ran"]["started"] = f"2026-01-01T00:00:0{second}+00:00"
        path.write_text(json.dumps(content))
    assert list(results.load(root).records) == [
        "ingest",
        "score.r02",
        "score.r01",
        "backbone",
        "aggregate_cm",
    ]


def test_experiments_are_found_from_above_and_directly(tmp_path):
    root = build(tmp_path)
    other = root.parent / "other"
    ingest(other)
    (root.parent / "empty").mkdir()
    assert [experiment.folder for experiment in results.find(root.parent)] == [other, root]
    assert [experiment.folder for experiment in results.find(root)] == [root]


def test_tables_that_lost_all_records_are_found_beside_another_experiment(tmp_path):
    root = build(tmp_path)
    artifact.write(
        pl.DataFrame({"pair_id": ["a"], "seen": [1]}),
        tables.TRAINED,
        root.parent / "lost" / "ingest" / "pairs.parquet",
    )
    assert [experiment.folder.name for experiment in results.find(root.parent)] == ["lost", "tiny"]


def test_a_folder_without_experiments_is_named(tmp_path):
    with pytest.raises(UserError, match="no run_records in it"):
        results.find(tmp_path)
    with pytest.raises(UserError, match="no such folder"):
        results.find(tmp_path / "absent")
    with pytest.raises(UserError, match="no folder above it"):
        results.enclosing(tmp_path / "a.parquet")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda text: "", r"not a run record \(Invalid JSON"),
        (lambda text: text[: len(text) // 2], r"not a run record \(Invalid JSON"),
        (lambda text: "[]", r"not a run record \(.*object"),
        (lambda text: text.replace('"inputs"', '"imputs"'), r"not a run record \(inputs: Field required\)"),
        (lambda text: text.replace('"stage": "ingest"', '"stage": 3'), r"not a run record \(stage: .*string"),
        (
            lambda text: text.replace('"sha256"', '"sha"'),
            r"outputs\.ingest/pairs\.parquet\.sha256: Field required",
        ),
        (lambda text: "\udcff", r"not a run record"),
    ],
)
def test_a_broken_record_is_kept_as_an_error(tmp_path, change, message):
    root = build(tmp_path)
    path = root / "run_records" / "ingest.json"
    path.write_bytes(change(path.read_text()).encode("utf-8", "surrogateescape"))
    experiment = results.load(root)
    assert set(experiment.broken) == {"ingest"}
    assert "ingest" not in experiment.records
    with pytest.raises(UserError, match=message) as error:
        experiment.refuse_broken()
    assert error.value.where == str(path)


def test_files_follows_links_and_leaves_hidden_ones_out(tmp_path):
    disk, folder = tmp_path / "disk", tmp_path / "folder"
    for path in (
        disk / "b.parquet",
        folder / "z" / "a.parquet",
        folder / ".a.parquet",
        folder / ".cache" / "c.parquet",
    ):
        path.parent.mkdir(exist_ok=True, parents=True)
        path.touch()
    (folder / "linked").symlink_to(disk)
    (folder / "folder.parquet").mkdir()
    assert results.files(folder, "*.parquet") == ["linked/b.parquet", "z/a.parquet"]
    assert results.files(tmp_path / "absent", "*.parquet") == []
