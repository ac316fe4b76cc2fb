"""Files that cannot be read whole, and rows as the formats give them."""

import gzip
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rm_memorization.errors import UserError
from rm_memorization.readers.formats import JSON_LINES, read_rows

POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:8be3\nsize 875191\n"
ZIPPED = gzip.compress(b'{"a": 1}\n' * 1000, mtime=0)

BROKEN = {
    "a Git LFS pointer, not the data. Hint: fetch the data with `git lfs pull`": [
        ("f.jsonl", POINTER),
        ("f.jsonl.gz", POINTER),
        ("f.parquet", POINTER),
        ("f.csv", POINTER),
    ],
    "the file is empty (0 bytes)": [
        ("f.jsonl", b""),
        ("f.jsonl.gz", b""),
        ("f.csv", b""),
        ("f.parquet", b""),
    ],
    "the file has no rows": [
        ("f.jsonl", b"\n \r\n"),
        ("f.jsonl.gz", gzip.compress(b"")),
        ("f.csv", b"a,b\n"),
    ],
    "unknown suffix '.json'. Hint: the formats are .jsonl, .jsonl.gz, .csv, .parquet": [("f.json", b"[]")],
    "unknown suffix '.gz'": [("f.csv.gz", ZIPPED)],
    "f.jsonl:2:9: invalid JSON (Expecting ',' delimiter). Hint: each line is one JSON object": [
        ("f.jsonl", b'{"a": 1}\n{"a": 1 "b": 2}\n')
    ],
    "f.jsonl:1:9: invalid JSON (Extra data)": [("f.jsonl", b'{"a": 1}{"a": 2}')],
    "f.jsonl:3: a JSON list, not an object": [("f.jsonl", b'{"a": 1}\n\n["a"]')],
    "f.jsonl:1: a JSON NoneType, not an object": [("f.jsonl", b"null")],
    "f.jsonl:1: invalid JSON (key 'a' stands twice in one object)": [
        ("f.jsonl", b'{"b": 0, "a": 1, "a": 2}')
    ],
    "f.jsonl:1: invalid JSON (Exceeds the limit": [("f.jsonl", b'{"a": ' + b"1" * 5000 + b"}")],
    "f.jsonl:1: invalid JSON (maximum recursion depth": [("f.jsonl", b"[" * 100_000)],
    "f.jsonl:2: byte 8 of the line, 0xff, is not UTF-8. Hint: save the file as UTF-8": [
        ("f.jsonl", b'{"a": 1}\n{"a": "\xff"}')
    ],
    "f.csv:2: byte 3 of the line, 0xe9, is not UTF-8": [("f.csv", b"a,b\nx,\xe9\n")],
    "broken gzip after line 0 (Not a gzipped file": [("f.jsonl.gz", b'{"a": 1}')],
    "(Compressed file ended before the end-of-stream marker was reached)": [("f.jsonl.gz", ZIPPED[:-9])],
    "(CRC check failed": [("f.jsonl.gz", ZIPPED[:-8] + bytes(8))],
    "(Error -3 while decompressing data: invalid block type)": [("f.jsonl.gz", ZIPPED[:10] + b"\xff" * 40)],
    "f.csv:3: 3 fields in row 2, 2 in the header. Hint: quote texts": [("f.csv", b"a,b\n1,2\n1,2,3\n")],
    "f.csv:4: 1 fields in row 2, 2 in the header": [("f.csv", b'a,b\n"1\n",2\n1\n')],
    "f.csv:2: invalid CSV (',' expected after '\"')": [("f.csv", b'a,b\n"x"y,2\n')],
    "f.csv:2: invalid CSV (unexpected end of data)": [("f.csv", b'a,b\n"x,2')],
    "f.csv:1: invalid CSV (new-line character seen in unquoted field": [("f.csv", b"a,b\r1,2\r")],
    "f.csv: two columns are named 'a'": [("f.csv", b"a,b,a\n1,2,3\n")],
    "not a readable Parquet file (": [
        ("f.parquet", b"PAR1" + bytes(100) + b"PAR1"),
        ("f.parquet", b"a,b\n1,2\n"),
    ],
}


@pytest.mark.parametrize(
    ("message", "name", "data"),
    [
        pytest.param(message, *case, id=f"{case[0]}: {message}")
        for message, cases in BROKEN.items()
        for case in cases
    ],
)
def test_a_broken_file_is_refused_in_one_line(tmp_path: Path, message, name, data):
    path = tmp_path / name
    path.write_bytes(data)
    with pytest.raises(UserError) as caught:
        list(read_rows(path))
    assert message in str(caught.value)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


def test_a_missing_file(tmp_path: Path):
    with pytest.raises(
        UserError, match=r"absent\.jsonl: no such file or directory\. Hint: a path is relative"
    ):
        list(read_rows(tmp_path / "absent.jsonl"))


def test_a_folder(tmp_path: Path):
    with pytest.raises(UserError, match=r"is a directory$"):
        list(read_rows(tmp_path))


def test_a_format_that_the_caller_does_not_take(tmp_path: Path):
    (tmp_path / "f.csv").write_text("a\n1\n")
    with pytest.raises(
        UserError, match=r"unknown suffix '\.csv'\. Hint: the formats are \.jsonl, \.jsonl\.gz"
    ):
        list(read_rows(tmp_path / "f.csv", JSON_LINES))


def test_a_cut_parquet_file(tmp_path: Path):
    path = tmp_path / "f.parquet"
    pq.write_table(pa.table({"a": ["x"] * 100}), path)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(UserError, match=r"f\.parquet: not a readable Parquet file \("):
        list(read_rows(path))


def test_parquet_columns_of_one_name(tmp_path: Path):
    pq.write_table(
        pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"]), tmp_path / "f.parquet"
    )
    with pytest.raises(UserError, match="two columns are named 'a'"):
        list(read_rows(tmp_path / "f.parquet"))


def test_an_empty_parquet_table(tmp_path: Path):
    pq.write_table(pa.table({"a": pa.array([], pa.string())}), tmp_path / "f.parquet")
    with pytest.raises(UserError, match="the file has no rows"):
        list(read_rows(tmp_path / "f.parquet"))


def test_rows_before_a_broken_line_are_given_before_the_error(tmp_path: Path):
    (tmp_path / "f.jsonl").write_text('{"a": 1}\n{')
    rows = read_rows(tmp_path / "f.jsonl")
    assert next(rows) == (1, {"a": 1})
    with pytest.raises(UserError):
        next(rows)


@pytest.mark.parametrize("zipped", [False, True])
def test_json_lines_are_numbered_with_the_empty_ones(tmp_path: Path, zipped):
    data = b'\xef\xbb\xbf{"a": "\xe2\x80\xa8"}\r\n\n{"a": 2}'  # a byte order mark, and a line separator in a text
    path = tmp_path / ("f.jsonl.gz" if zipped else "f.jsonl")
    path.write_bytes(gzip.compress(data) if zipped else data)
    assert list(read_rows(path)) == [(1, {"a": "\u2028"}), (3, {"a": 2})]


def test_csv_rows_are_text_and_numbered_without_the_header(tmp_path: Path):
    (tmp_path / "F.CSV").write_bytes(b'\xef\xbb\xbfa,b\r\n1,"x\r\n""y"""\r\n\r\n,\n')
    assert list(read_rows(tmp_path / "F.CSV")) == [(1, {"a": "1", "b": 'x\r\n"y"'}), (2, {"a": "", "b": ""})]


def test_csv_takes_a_long_text(tmp_path: Path):
    (tmp_path / "f.csv").write_text(f"a\n{'x' * 200_000}\n")
    assert [len(values["a"]) for _, values in read_rows(tmp_path / "f.csv")] == [200_000]


def test_parquet_rows_keep_their_types(tmp_path: Path):
    values = {"a": [7, None], "b": ["x", "y"], "c": [[{"role": "user", "content": "x"}], []]}
    folder = tmp_path / "a=1"  # no partition: the folder's name says nothing about the rows
    folder.mkdir()
    pq.write_table(pa.table(values), folder / "f.parquet")
    rows = [dict(zip(values, row, strict=True)) for row in zip(*values.values(), strict=True)]
    assert list(read_rows(folder / "f.parquet")) == [(1, rows[0]), (2, rows[1])]
    assert json.dumps(rows)
