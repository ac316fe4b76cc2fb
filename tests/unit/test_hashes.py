"""hashes lists content, not bytes, and leaves volatile tables out."""

import json

import polars as pl
import pyarrow.parquet as pq
import pytest
from test_results import TABLES, build, score
from typer.testing import CliRunner

from rm_memorization import artifact, tables
from rm_memorization.cli import app
from rm_memorization.errors import UserError
from rm_memorization.hashes import content_hashes, hashes
from rm_memorization.provenance import provenance


def test_every_table_in_the_order_of_the_paths(tmp_path):
    root = build(tmp_path)
    assert list(content_hashes(root)) == TABLES
    assert list(content_hashes(root.parent)) == [f"tiny/{path}" for path in TABLES]
    assert content_hashes(root) == {path: artifact.footer(root / path)["content_hash"] for path in TABLES}


def test_two_builds_have_equal_hashes_until_content_differs(tmp_path):
    roots = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        roots.append(build(tmp_path / name))
    one, two = roots
    assert content_hashes(one) == content_hashes(two)
    score(two, "r02", shift=0.5)
    differing = {path for path, digest in content_hashes(one).items() if content_hashes(two)[path] != digest}
    assert differing == {"score/r02/scores.parquet"}


def test_hashes_come_from_the_values_and_not_from_the_footer(tmp_path):
    path = build(tmp_path) / "ingest" / "pairs.parquet"
    before = content_hashes(path.parent)
    footer = artifact.footer(path) | {"content_hash": "0" * 64}
    table = pq.read_table(path).replace_schema_metadata({artifact.FOOTER: json.dumps(footer).encode()})
    pq.write_table(table, path, compression="none")
    assert content_hashes(path.parent) == before


def test_volatile_tables_are_left_out(tmp_path):
    root = build(tmp_path)
    artifact.write(provenance(root), tables.PROVENANCE, root / "report" / "provenance.parquet")
    assert list(content_hashes(root)) == TABLES


def test_the_command_prints_hash_and_path(tmp_path):
    root = build(tmp_path)
    done = CliRunner().invoke(app, ["hashes", str(root)])
    assert done.exit_code == 0
    assert done.output.splitlines() == [f"{digest}  {path}" for path, digest in content_hashes(root).items()]


def test_what_cannot_be_hashed_is_named(tmp_path):
    with pytest.raises(UserError, match="no table in it"):
        hashes(tmp_path)
    pl.DataFrame({"a": [1]}).write_parquet(tmp_path / "foreign.parquet")
    with pytest.raises(UserError, match=r"foreign\.parquet: a Parquet file without this package's footer"):
        hashes(tmp_path)
