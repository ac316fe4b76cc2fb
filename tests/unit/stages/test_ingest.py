"""The stage, from a source file to tables, record and counts."""

import json
from hashlib import sha256
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rm_memorization import artifact, tables
from rm_memorization.cli import app
from rm_memorization.errors import UserError
from rm_memorization.stages.ingest import ingest

GOOD = {"user_id": "u1", "prompt": "hello", "chosen": "yes", "rejected": "no"}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "data.jsonl"
    rows = [GOOD, GOOD | {"user_id": "u2"}, GOOD | {"chosen": ""}, GOOD, GOOD | {"rejected": " "}]
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


def settings(path: Path) -> str:
    return json.dumps({"table": {"files": [str(path)]}})


def test_it_writes_both_tables_and_prints_the_counts(tmp_path: Path, source, capsys):
    ingest(settings(source), tmp_path / "pairs.parquet", tmp_path / "dropped.parquet")
    assert sorted(artifact.read(tmp_path / "pairs.parquet", tables.PAIRS)["user_id"]) == ["u1", "u2"]
    dropped = artifact.read(tmp_path / "dropped.parquet", tables.DROPPED)
    assert dropped["source_row"].to_list() == [3, 4, 5]
    lines = [line.rsplit(maxsplit=1) for line in capsys.readouterr().out.splitlines()]
    assert lines == [
        ["rows read", "5"],
        ["pairs kept", "2"],
        ["units kept", "2"],
        ["rows dropped", "3"],
        ["  duplicate", "1"],
        ["  empty_response", "2"],
    ]


def test_the_record_names_the_source_without_its_folder(tmp_path: Path, source):
    record = tmp_path / "results" / "run_records" / "ingest.json"
    ingest(
        settings(source),
        tmp_path / "results" / "pairs.parquet",
        tmp_path / "results" / "dropped.parquet",
        record,
    )
    content = json.loads(record.read_text())
    assert content["inputs"] == {"source:data.jsonl": sha256(source.read_bytes()).hexdigest()}
    assert content["params"] == {"source": {"table": {"files": ["data.jsonl"], "unit": "user"}}}
    assert set(content["outputs"]) == {"pairs.parquet", "dropped.parquet"}
    assert str(tmp_path) not in record.read_text()


def test_the_order_of_the_source_rows_does_not_change_the_pairs(tmp_path: Path):
    rows = [json.dumps(GOOD | {"user_id": f"u{n}"}) for n in range(20)]
    ids = []
    for order in (rows, rows[::-1]):
        (tmp_path / "data.jsonl").write_text("\n".join(order))
        ingest(settings(tmp_path / "data.jsonl"), tmp_path / "pairs.parquet", tmp_path / "dropped.parquet")
        ids.append(
            artifact.read(tmp_path / "pairs.parquet", tables.PAIRS).select("pair_id", "user_id").rows()
        )
    assert ids[0] == ids[1]


def test_the_command(tmp_path: Path):
    options = ["--pairs", str(tmp_path / "p.parquet"), "--dropped", str(tmp_path / "d.parquet")]
    small = {
        "rule_users": 1,
        "flipped_users": 1,
        "arbitrary_users": 1,
        "length_users": 1,
        "pairs_per_user": 2,
    }
    done = CliRunner().invoke(app, ["ingest", "--source", json.dumps({"planted": small}), *options])
    assert done.exit_code == 0, done.output
    assert artifact.read(tmp_path / "p.parquet", tables.PAIRS).height == 8


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("{", "--source: '{' (str) is wrong: Invalid JSON"),
        (
            '{"planted": {"rule_user": 1}}',
            "--source: unknown key 'planted.rule_user'. Hint: did you mean 'rule_users'?",
        ),
        ("{}", "give exactly one of planted, hh_rlhf, table; found none"),
        ('{"table": {"files": []}}', "--source: table.files: List should have at least 1 item"),
    ],
)
def test_wrong_settings(source, message, tmp_path):
    with pytest.raises(UserError) as caught:
        ingest(source, tmp_path / "p.parquet", tmp_path / "d.parquet")
    assert message in str(caught.value)


def test_a_source_that_leaves_no_pair_writes_nothing(tmp_path: Path):
    (tmp_path / "data.jsonl").write_text(json.dumps(GOOD | {"chosen": "no"}))
    with pytest.raises(UserError, match="No pair is left"):
        ingest(settings(tmp_path / "data.jsonl"), tmp_path / "pairs.parquet", tmp_path / "dropped.parquet")
    assert not (tmp_path / "pairs.parquet").exists()
