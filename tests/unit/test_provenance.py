"""The provenance table holds every run record and keeps its contract."""

import json

import pytest
from test_results import build

from rm_memorization import artifact, tables
from rm_memorization.errors import UserError
from rm_memorization.provenance import provenance


def test_a_row_is_a_record(tmp_path):
    root = build(tmp_path)
    frame = provenance(root)
    assert frame["job"].to_list() == ["aggregate_cm", "backbone", "ingest", "score.r01", "score.r02"]
    for row in frame.iter_rows(named=True):
        content = json.loads((root / "run_records" / f"{row['job']}.json").read_text())
        assert row["stage"] == content["stage"]
        for name in ("params", "inputs", "outputs"):
            assert json.loads(row[name]) == content[name]
        assert json.loads(row["versions"]) == content["ran"]["versions"]
        plain = [name for name in frame.columns if name in content["ran"] and name != "versions"]
        assert len(plain) == 9
        assert {name: row[name] for name in plain} == {name: content["ran"][name] for name in plain}


def test_it_keeps_its_contract_even_where_whole_columns_are_null(tmp_path):
    root = build(tmp_path)
    for path in (root / "run_records").iterdir():
        content = json.loads(path.read_text())
        content["ran"] |= {"threads": None, "git_commit": None, "git_dirty": None}
        path.write_text(json.dumps(content))
    path = root / "report" / "provenance.parquet"
    artifact.write(provenance(root), tables.PROVENANCE, path)
    assert artifact.read(path, tables.PROVENANCE).equals(provenance(root))
    assert provenance(root)["threads"].null_count() == 5


def test_a_broken_record_stops_it(tmp_path):
    root = build(tmp_path)
    (root / "run_records" / "score.r02.json").write_text("{")
    with pytest.raises(UserError, match="not a run record"):
        provenance(root)
