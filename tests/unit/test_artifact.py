"""Reading and writing tables: contracts, bytes, damage."""

import itertools
import json

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rm_memorization import artifact, tables
from rm_memorization.errors import UserError
from rm_memorization.hashing import file_digest


def scores(n=300, seed=1):
    rng = np.random.default_rng(seed)
    return pl.DataFrame(
        {
            "pair_id": [f"p{i:06d}" for i in range(n)],
            "reward_chosen": rng.normal(size=n).astype(np.float32),
            "reward_rejected": rng.normal(size=n).astype(np.float32),
        }
    )


def cell(value, column="reward_chosen", row=1):
    frame = scores(3)
    values = frame[column].to_list()
    values[row] = value
    return frame.with_columns(pl.Series(column, values, dtype=frame.schema[column]))


def plant(frame, contract, path, **changes):
    """Write a file whose footer says what it is told to, as no stage would."""
    footer = {
        "contract": contract.name,
        "version": contract.version,
        "content_hash": "0" * 64,
        "properties": {},
    } | changes
    table = frame.to_arrow(compat_level=pl.CompatLevel.oldest())
    pq.write_table(table.replace_schema_metadata({artifact.FOOTER: json.dumps(footer).encode()}), path)


def test_what_is_written_is_read(tmp_path):
    path = tmp_path / "deep" / "scores.parquet"
    digest = artifact.write(scores().reverse(), tables.SCORES, path, {"recipe": 3})
    assert artifact.read(path, tables.SCORES).equals(scores())
    assert artifact.read(path, tables.SCORES, ["reward_chosen", "pair_id"]).equals(
        scores().select("reward_chosen", "pair_id")
    )
    assert artifact.footer(path) == {
        "contract": "scores",
        "version": 1,
        "content_hash": digest,
        "properties": {"recipe": 3},
    }
    assert artifact.recompute(path) == digest


def test_every_type_survives(tmp_path):
    weights = pl.DataFrame(
        {
            "tensor": ["b", "a"],
            "dtype": ["float32", "bfloat16"],
            "shape": [[2, 1], []],
            "data": [b"\x00" * 8, b"\xff\x00"],
        },
        schema_overrides={"shape": pl.List(pl.Int64)},
    )
    artifact.write(weights, tables.WEIGHTS, tmp_path / "w.parquet")
    assert artifact.read(tmp_path / "w.parquet", tables.WEIGHTS).equals(weights.sort("tensor"))
    prompt = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": ""}]
    pair = {
        "pair_id": "a",
        "unit_id": "u",
        "user_id": None,
        "stratum": None,
        "prompt": prompt,
        "chosen": "c",
        "rejected": "r",
    }
    pairs = pl.DataFrame(
        [pair | {"source_file": "f", "source_row": 1, "extra": "{}"}],
        schema_overrides={"user_id": pl.String, "stratum": pl.String},
    )
    artifact.write(pairs, tables.PAIRS, tmp_path / "p.parquet")
    assert artifact.read(tmp_path / "p.parquet", tables.PAIRS).equals(pairs)


@settings(max_examples=30)
@given(st.permutations(range(12)), st.lists(st.integers(0, 12), max_size=3), st.permutations(range(3)))
def test_equal_content_gives_equal_bytes(tmp_path_factory, order, cuts, columns):
    folder, frame = tmp_path_factory.mktemp("bytes"), scores(12)
    edges = [0, *sorted(cuts), 12]
    shuffled = frame[list(order)].select([frame.columns[i] for i in columns])
    chunked = pl.concat([shuffled[a:b] for a, b in itertools.pairwise(edges)], rechunk=False)
    artifact.write(frame, tables.SCORES, folder / "one.parquet")
    artifact.write(chunked, tables.SCORES, folder / "other.parquet")
    assert (folder / "one.parquet").read_bytes() == (folder / "other.parquet").read_bytes()


def test_bytes_do_not_depend_on_chunks_that_sorting_leaves_alone(tmp_path):
    """A frame known to be sorted keeps its chunks through `sort`; they must not reach the pages."""
    frame = scores(100_000)
    parts = [frame[start : start + 1000].set_sorted("pair_id") for start in range(0, frame.height, 1000)]
    chunked = pl.concat(parts, rechunk=False).set_sorted("pair_id")
    assert chunked.sort("pair_id").n_chunks() == 100
    artifact.write(frame, tables.SCORES, tmp_path / "one.parquet")
    artifact.write(chunked, tables.SCORES, tmp_path / "other.parquet")
    assert file_digest(tmp_path / "one.parquet") == file_digest(tmp_path / "other.parquet")


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (
            cell(None),
            r"column 'reward_chosen', row 2 \(pair_id='p000001'\) fails 'not_nullable' with None \(1 such",
        ),
        (
            cell(float("nan")),
            r"column 'reward_chosen', row 2 \(pair_id='p000001'\) fails '\w+' with 'NaN' \(1 such",
        ),
        (
            cell(float("inf")),
            r"column 'reward_chosen', row 2 \(pair_id='p000001'\) fails 'finite' with 'inf' \(1 such",
        ),
        (cell("", "pair_id", 2), r"column 'pair_id', row 1 \(pair_id=''\) fails .*str_length"),
        (
            cell("p000002", "pair_id"),
            r"key \('pair_id',\) is not unique: \('p000002',\) of row 2 stands 2 times",
        ),
        (
            scores(3).cast({"reward_chosen": pl.Float64}),
            "column 'reward_chosen' fails .*Float32.* with 'Float64'",
        ),
        (scores(3).with_columns(margin=1), r"contract scores v1: missing or unknown columns \['margin'\]"),
        (
            scores(3).drop("reward_chosen"),
            r"contract scores v1: missing or unknown columns \['reward_chosen'\]",
        ),
    ],
)
def test_a_broken_contract_is_named_at_writing_and_at_reading(tmp_path, frame, message):
    path = tmp_path / "scores.parquet"
    path.write_text("old")
    with pytest.raises(UserError, match=message):
        artifact.write(frame, tables.SCORES, path)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
    frame = frame.sort("pair_id")
    digest = artifact.content_digest("scores", 1, frame)
    plant(frame, tables.SCORES, path, content_hash=digest)
    with pytest.raises(UserError, match=message):
        artifact.read(path, tables.SCORES)


def test_all_cases_of_the_first_failure_are_counted(tmp_path):
    trained = pl.DataFrame({"pair_id": ["a", "b", "c", ""], "seen": [1, 0, -2, 1]})
    with pytest.raises(UserError, match=r"2 such cases") as error:
        artifact.write(trained.filter(pl.col("pair_id") != ""), tables.TRAINED, tmp_path / "t.parquet")
    assert "column 'seen', row 2 (pair_id='b')" in str(error.value)


def test_unsorted_rows_are_refused_at_reading(tmp_path):
    frame = scores(4)[[0, 2, 1, 3]]
    plant(
        frame, tables.SCORES, tmp_path / "s.parquet", content_hash=artifact.content_digest("scores", 1, frame)
    )
    with pytest.raises(UserError, match="row 2 is out of place"):
        artifact.read(tmp_path / "s.parquet", tables.SCORES)


def test_a_table_of_another_contract_is_refused(tmp_path):
    artifact.write(scores(3), tables.SCORES, tmp_path / "s.parquet")
    with pytest.raises(UserError, match="contract scores v1, expected trained v1"):
        artifact.read(tmp_path / "s.parquet", tables.TRAINED)
    plant(scores(3), tables.SCORES, tmp_path / "t.parquet", version=0)
    with pytest.raises(UserError, match="contract scores v0, expected scores v1"):
        artifact.read(tmp_path / "t.parquet", tables.SCORES)


def test_values_that_are_not_those_of_the_hash_are_refused(tmp_path):
    plant(scores(3), tables.SCORES, tmp_path / "s.parquet")
    with pytest.raises(UserError, match="not those that its content hash stands for"):
        artifact.read(tmp_path / "s.parquet", tables.SCORES)


def test_what_is_no_artifact_is_named(tmp_path):
    path = tmp_path / "x.parquet"
    with pytest.raises(UserError, match="no such file"):
        artifact.footer(path)
    path.write_bytes(b"")
    with pytest.raises(UserError, match="not a readable Parquet file"):
        artifact.footer(path)
    scores().write_parquet(path)
    with pytest.raises(UserError, match="without this package's footer"):
        artifact.footer(path)
    pq.write_table(
        pa.table({"a": [1]}).replace_schema_metadata({artifact.FOOTER: b'{"contract": "scores"}'}), path
    )
    with pytest.raises(UserError, match="without this package's footer"):
        artifact.footer(path)


@pytest.mark.parametrize("columns", [None, ["reward_chosen"]])
def test_a_damaged_file_never_gives_other_values(tmp_path, columns):
    """A changed byte is an error, or lies where no value depends on it."""
    path = tmp_path / "s.parquet"
    artifact.write(scores(), tables.SCORES, path)
    whole, rng, refused = path.read_bytes(), np.random.default_rng(5), 0
    start, end = extent(path, "reward_chosen") if columns else (0, len(whole))
    for position, flip in zip(rng.integers(start, end, 200), rng.integers(1, 256, 200), strict=True):
        data = bytearray(whole)
        data[position] ^= flip
        path.write_bytes(data)
        try:
            found = artifact.read(path, tables.SCORES, columns)
        except UserError:
            refused += 1
        else:
            assert found.equals(scores().select(columns or pl.all()))
    assert refused > 150


def extent(path, column):
    """Give the first byte of a column's pages and the byte after the last."""
    group = pq.read_metadata(path).row_group(0)
    chunk = next(
        group.column(i) for i in range(group.num_columns) if group.column(i).path_in_schema == column
    )
    start = min(offset for offset in (chunk.dictionary_page_offset, chunk.data_page_offset) if offset)
    return start, start + chunk.total_compressed_size
