"""Run records: what they hold and what they never hold."""

import getpass
import json
from pathlib import Path

import polars as pl
import pytest

from rm_memorization import artifact, record, tables
from rm_memorization.errors import UserError
from rm_memorization.hashing import file_digest, text_digest
from rm_memorization.record import note_device, note_source, recorded

TRAINED = pl.DataFrame({"pair_id": ["a", "b"], "seen": [1, 2]})


def run(root, job="score.r01", **params):
    """Copy a table within an experiment, as a job."""
    path = root / "run_records" / f"{job}.json"
    with recorded(job.split(".")[0], path, **params):
        artifact.write(
            artifact.read(root / "in.parquet", tables.TRAINED), tables.TRAINED, root / "score" / "out.parquet"
        )
    return json.loads(path.read_text())


def test_inputs_and_outputs_are_noted(tmp_path):
    digest = artifact.write(TRAINED, tables.TRAINED, tmp_path / "in.parquet")
    content = run(tmp_path, batch_tokens=16)
    assert content["stage"] == "score"
    assert content["params"] == {"batch_tokens": 16}
    assert content["params_digest"] == text_digest('{"batch_tokens":16}')
    assert content["inputs"] == {"in.parquet": digest}
    out = {"content_hash": digest, "sha256": file_digest(tmp_path / "score" / "out.parquet")}
    assert content["outputs"] == {"score/out.parquet": out}
    assert content["ran"]["device"] == "cpu"
    assert content["ran"]["versions"]["polars"] == pl.__version__


def test_no_user_name_and_no_absolute_path(tmp_path, monkeypatch):
    monkeypatch.setenv("A_SECRET", "hunter2")
    artifact.write(TRAINED, tables.TRAINED, tmp_path / "in.parquet")
    content = run(tmp_path)
    content["ran"].pop("host")
    text = json.dumps(content)
    assert str(tmp_path) not in text
    assert str(Path.home()) not in text
    assert "hunter2" not in text
    assert f'"{getpass.getuser()}"' not in text


def test_a_failed_job_leaves_no_record(tmp_path):
    path = tmp_path / "run_records" / "score.json"
    with pytest.raises(RuntimeError), recorded("score", path):
        raise RuntimeError
    assert not path.exists()
    with recorded("score", path):
        note_device("cuda")
    assert json.loads(path.read_text())["ran"]["device"] == "cuda"


def test_without_a_record_nothing_is_noted(tmp_path):
    with recorded("score", None):
        artifact.write(TRAINED, tables.TRAINED, tmp_path / "t.parquet")
    assert [path.name for path in tmp_path.iterdir()] == ["t.parquet"]


def test_jobs_do_not_leak_into_one_another(tmp_path):
    artifact.write(TRAINED, tables.TRAINED, tmp_path / "in.parquet")
    run(tmp_path)
    artifact.read(tmp_path / "in.parquet", tables.TRAINED)
    path = tmp_path / "run_records" / "empty.json"
    with recorded("empty", path):
        pass
    assert json.loads(path.read_text())["inputs"] == {}


def test_sources_of_one_name_are_all_kept(tmp_path):
    root, content = tmp_path / "results" / "x", ["one", "two", "one"]
    for index, text in enumerate(content):
        (tmp_path / str(index)).mkdir()
        (tmp_path / str(index) / "train.jsonl").write_text(text)
    path = root / "run_records" / "ingest.json"
    with recorded("ingest", path):
        for index in range(3):
            note_source(tmp_path / str(index) / "train.jsonl")
    expected = {
        "source:train.jsonl": file_digest(tmp_path / "0" / "train.jsonl"),
        "source:train.jsonl#2": file_digest(tmp_path / "1" / "train.jsonl"),
    }
    assert json.loads(path.read_text())["inputs"] == expected


def test_a_stage_folder_may_be_a_link_to_another_disk(tmp_path, monkeypatch):
    root, disk = tmp_path / "results" / "x", tmp_path / "disk"
    disk.mkdir()
    root.mkdir(parents=True)
    (root / "score").symlink_to(disk)
    artifact.write(TRAINED, tables.TRAINED, root / "in.parquet")
    monkeypatch.chdir(tmp_path)
    content = run(Path("results/x"))
    assert list(content["inputs"]) == ["in.parquet"]
    assert list(content["outputs"]) == ["score/out.parquet"]
    assert (disk / "out.parquet").is_file()


def test_an_output_outside_the_experiment_is_refused(tmp_path):
    path = tmp_path / "results" / "x" / "run_records" / "score.json"
    with pytest.raises(UserError, match="outside its experiment's folder x"), recorded("score", path):
        artifact.write(TRAINED, tables.TRAINED, tmp_path / "elsewhere.parquet")
    assert not path.exists()


def test_parameters_that_are_no_json_are_refused_before_the_job_starts(tmp_path):
    started = []
    with pytest.raises(TypeError), recorded("score", tmp_path / "run_records" / "score.json", out=tmp_path):
        started.append(True)
    assert not started


def test_outside_a_checkout_the_commit_is_null(monkeypatch, tmp_path):
    monkeypatch.setattr(record, "__file__", str(tmp_path / "record.py"))
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert record._commit() == {"git_commit": None, "git_dirty": None}
