"""Digests: what they depend on, and what they do not."""

import hashlib
import itertools
import json
import math
from datetime import date
from decimal import Decimal

import polars as pl
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rm_memorization.hashing import canonical_json, content_digest, file_digest, text_digest

MESSAGES = pl.List(pl.Struct({"role": pl.String, "content": pl.String}))


def frame():
    return pl.DataFrame(
        {
            "pair_id": ["a", "b", "c", "d"],
            "text": ["", None, "é", "long" * 50],
            "p": [0.5, None, -1.0, 0.0],
            "n": [1, 2, None, 4],
            "ok": [True, None, False, True],
            "data": [b"\x00", b"", None, b"xyz"],
            "ids": [[1, 2], [], None, [None, 3]],
            "messages": [[{"role": "user", "content": "hi"}], [], None, [{"role": None, "content": ""}]],
        },
        schema_overrides={"ids": pl.List(pl.Int32), "messages": MESSAGES},
    )


def digest(table):
    return content_digest("t", 1, table)


def with_cell(column, row, value):
    values = frame()[column].to_list()
    values[row] = value
    return frame().with_columns(pl.Series(column, values, dtype=frame().schema[column]))


def test_content_digest_follows_its_definition():
    """Header, then for each column its name and type, nulls, and values that are not null."""
    table = pl.DataFrame({"i": [1, None], "s": ["ab", "c"]}, schema={"i": pl.Int32, "s": pl.String})
    expected = b"".join(
        [
            b'{"contract":"t","rows":2,"version":3}',
            b'["i","Int32"]', b"\x00\x01", (1).to_bytes(4, "little"),
            b'["s","String"]', b"\x00\x00", (2).to_bytes(8, "little"), (1).to_bytes(8, "little"), b"abc",
        ]
    )  # fmt: skip
    assert content_digest("t", 3, table) == hashlib.sha256(expected).hexdigest()


def test_chunks_and_slices_do_not_matter():
    whole = frame()
    chunked = pl.concat([whole[:1], whole[1:3], whole[3:]], rechunk=False)
    assert chunked.n_chunks() == 3
    assert digest(chunked) == digest(whole)
    sliced = pl.concat([whole[:2], whole, whole[1:]])[2:6]
    assert digest(sliced) == digest(whole)


@pytest.mark.parametrize("compression", ["none", "snappy", "zstd", "gzip"])
@pytest.mark.parametrize("use_dictionary", [True, False])
def test_how_the_file_is_written_does_not_matter(tmp_path, compression, use_dictionary):
    path = tmp_path / "t.parquet"
    pq.write_table(
        frame().to_arrow(), path, compression=compression, use_dictionary=use_dictionary, row_group_size=2
    )
    assert digest(pl.DataFrame(pq.read_table(path).replace_schema_metadata(None))) == digest(frame())


def test_the_writer_does_not_matter(tmp_path):
    frame().write_parquet(tmp_path / "t.parquet")
    assert digest(pl.read_parquet(tmp_path / "t.parquet")) == digest(frame())


def test_every_changed_cell_matters():
    changed = {
        "pair_id": "z",
        "text": "other",
        "p": 0.25,
        "n": 9,
        "ok": None,
        "data": b"other",
        "ids": [1, 2, 3],
        "messages": [{"role": "user", "content": "other"}],
    }
    tables = [with_cell(column, row, value) for column, value in changed.items() for row in range(4)]
    unchanged = [table for table in tables if table.equals(frame())]
    assert len(unchanged) == 1  # `ok` was null in one row already
    digests = [digest(table) for table in tables if not table.equals(frame())]
    assert digest(frame()) not in digests
    assert len(set(digests)) == len(tables) - 1


@pytest.mark.parametrize("column", frame().columns)
def test_a_value_that_becomes_null_matters(column):
    rows = [row for row in range(4) if frame()[column][row] is not None]
    assert rows
    for row in rows:
        assert digest(with_cell(column, row, None)) != digest(frame())


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (pl.Series("x", [""]), pl.Series("x", [None], dtype=pl.String)),
        (pl.Series("x", [[]], dtype=pl.List(pl.Int32)), pl.Series("x", [None], dtype=pl.List(pl.Int32))),
        (pl.Series("x", [[]], dtype=pl.List(pl.Int32)), pl.Series("x", [[None]], dtype=pl.List(pl.Int32))),
        (pl.Series("x", [[1], [2]]), pl.Series("x", [[1, 2], []])),
        (pl.Series("x", ["ab", "c"]), pl.Series("x", ["a", "bc"])),
        (pl.Series("x", [["ab"], ["c"]]), pl.Series("x", [["a"], ["bc"]])),
        (
            pl.Series("x", [{"a": None}], dtype=pl.Struct({"a": pl.Int8})),
            pl.Series("x", [None], dtype=pl.Struct({"a": pl.Int8})),
        ),
        (pl.Series("x", [0.0]), pl.Series("x", [-0.0])),
        (pl.Series("x", [math.nan]), pl.Series("x", [None], dtype=pl.Float64)),
        (pl.Series("x", ["a"]), pl.Series("x", [b"a"])),
        (pl.Series("x", [1], dtype=pl.Int32), pl.Series("x", [1], dtype=pl.Int64)),
        (pl.Series("x", [1], dtype=pl.Int64), pl.Series("x", [1], dtype=pl.UInt64)),
        (pl.Series("x", [], dtype=pl.Int64), pl.Series("x", [], dtype=pl.String)),
        (pl.Series("x", [{"a": 1}]), pl.Series("x", [{"b": 1}])),
    ],
)
def test_what_looks_alike_differs(one, other):
    assert digest(pl.DataFrame([one])) != digest(pl.DataFrame([other]))


def test_names_rows_order_and_contract_matter():
    table = frame()
    variants = [
        table,
        table.rename({"n": "m"}),
        table.select(reversed(table.columns)),
        table.drop("n"),
        table[:3],
        table.reverse(),
        pl.concat([table, table[3:]]),
        table.clear(),
    ]
    digests = [digest(variant) for variant in variants]
    digests += [content_digest("u", 1, table), content_digest("t", 2, table)]
    assert len(set(digests)) == len(digests)


def test_every_nan_is_the_same():
    negative = pl.Series("x", [0xFFF8000000000001], dtype=pl.UInt64).to_numpy().view("float64")
    assert math.isnan(negative[0])
    assert digest(pl.DataFrame({"x": negative})) == digest(pl.DataFrame({"x": [math.nan]}))


@pytest.mark.parametrize("value", [date(2020, 1, 1), Decimal("1.5"), None])
def test_other_types_are_refused(value):
    with pytest.raises(TypeError, match="column 'x'"):
        digest(pl.DataFrame({"x": [value]}))


rows = st.lists(st.tuples(st.text(max_size=3) | st.none(), st.integers(-3, 3) | st.none()), max_size=5)


@given(rows, rows)
def test_digests_are_equal_exactly_for_equal_tables(one, other):
    tables = [pl.DataFrame(r, schema={"s": pl.String, "i": pl.Int64}, orient="row") for r in (one, other)]
    assert (digest(tables[0]) == digest(tables[1])) == (one == other)


@given(st.lists(st.text(max_size=3), max_size=3), st.lists(st.text(max_size=3), max_size=3))
def test_text_digest_keeps_boundaries(one, other):
    assert (text_digest(*one) == text_digest(*other)) == (one == other)


def test_canonical_json_ignores_order_and_refuses_nan():
    keys = ["b", "a", "é"]
    texts = {canonical_json(dict.fromkeys(order, 1)) for order in itertools.permutations(keys)}
    assert texts == {'{"a":1,"b":1,"é":1}'}
    with pytest.raises(ValueError, match="Out of range float"):
        canonical_json(math.nan)


@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats(allow_nan=False, allow_infinity=False)
        | st.text(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
        max_leaves=8,
    )
)
def test_canonical_json_keeps_the_value(value):
    assert json.loads(canonical_json(value)) == value


def test_file_digest_is_sha256(tmp_path):
    path = tmp_path / "abc"
    path.write_bytes(b"abc")
    assert file_digest(path) == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
