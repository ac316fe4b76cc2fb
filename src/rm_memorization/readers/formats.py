"""The file formats: JSON lines (plain or gzipped), CSV, Parquet. A file that cannot be read whole stops the stage."""

import csv
import gzip
import json
import sys
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ..errors import UserError
from ..record import note_source

Row = tuple[int, dict[str, Any]]

JSON_LINES = (".jsonl", ".jsonl.gz")


def read_rows(path: Path, suffixes: Sequence[str] | None = None) -> Iterator[Row]:
    """Read a file's rows, and note that the running job read it.

    Parameters
    ----------
    path
        A file whose suffix says its format.
    suffixes
        The formats that the caller takes; all, if none are given.

    Yields
    ------
    int, dict
        The line (JSON lines) or the row (CSV, Parquet; the header is not counted), from 1, and the values by column.
        Lines without anything in them are counted and hold no row.

    Raises
    ------
    UserError
        If the file is missing, broken, empty or of another format.
    """
    _check_is_data(path)
    read = _reader(path, suffixes or list(READERS))
    note_source(path)
    row = 0
    for row, values in read(path):
        yield row, values
    if not row:
        raise UserError(str(path), "the file has no rows")


def _check_is_data(path: Path) -> None:
    try:
        with path.open("rb") as file:
            head = file.read(64)
    except OSError as error:
        hint = (
            "a path is relative to the folder you start from" if isinstance(error, FileNotFoundError) else ""
        )
        raise UserError(str(path), str(error.strerror).lower(), hint=hint) from None
    if head.startswith(b"version https://git-lfs"):
        raise UserError(
            str(path), "a Git LFS pointer, not the data", hint="fetch the data with `git lfs pull`"
        )
    if not head:
        raise UserError(str(path), "the file is empty (0 bytes)", hint="download or write it again")


def _reader(path: Path, suffixes: Sequence[str]) -> Callable[[Path], Iterator[Row]]:
    suffix = next((suffix for suffix in suffixes if path.name.lower().endswith(suffix)), None)
    if suffix is None:
        raise UserError(
            str(path), f"unknown suffix {path.suffix!r}", hint=f"the formats are {', '.join(suffixes)}"
        )
    return READERS[suffix]


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    r"""Decode lines that end in \n and only there: \r, U+2028 and their like are part of a text."""
    line = 0
    try:
        with gzip.open(path) if path.name.lower().endswith(".gz") else path.open("rb") as file:
            for line, data in enumerate(file, 1):
                yield line, data.decode("utf-8-sig" if line == 1 else "utf-8")
    except UnicodeDecodeError as error:
        found = f"byte {error.start + 1} of the line, 0x{error.object[error.start]:02x}, is not UTF-8"
        raise UserError(f"{path}:{line}", found, hint="save the file as UTF-8") from None
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise UserError(
            str(path), f"broken gzip after line {line} ({error})", hint="download or compress it again"
        ) from None


def _json_lines(path: Path) -> Iterator[Row]:
    for line, text in _lines(path):
        if text.strip(" \t\r\n"):
            yield line, _json_object(text, f"{path}:{line}")


def _json_object(text: str, where: str) -> dict[str, Any]:
    hint = "each line is one JSON object"
    try:
        values = parse_json(text)
    except json.JSONDecodeError as error:
        raise UserError(f"{where}:{error.colno}", f"invalid JSON ({error.msg})", hint=hint) from None
    except (ValueError, RecursionError) as error:
        raise UserError(where, f"invalid JSON ({error})", hint=hint) from None
    if not isinstance(values, dict):
        raise UserError(where, f"a JSON {type(values).__name__}, not an object", hint=hint)
    return values


def parse_json(text: str) -> Any:
    """Parse JSON in which no object has a key twice.

    Raises
    ------
    ValueError
        If it is none.
    """
    return json.loads(text, object_pairs_hook=_unique)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        raise ValueError(f"key {_repeated([key for key, _ in pairs])!r} stands twice in one object")
    return values


def _csv(path: Path) -> Iterator[Row]:
    csv.field_size_limit(sys.maxsize)  # the default refuses a text of more than 128 KiB
    reader = csv.reader((text for _, text in _lines(path)), strict=True)
    try:
        header = next(reader, [])
        _check_header(header, path)
        for row, fields in enumerate(filter(None, reader), 1):
            if len(fields) != len(header):
                found = f"{len(fields)} fields in row {row}, {len(header)} in the header"
                raise UserError(
                    f"{path}:{reader.line_num}", found, hint="quote texts that hold commas or newlines"
                )
            yield row, dict(zip(header, fields, strict=True))
    except csv.Error as error:
        raise UserError(
            f"{path}:{reader.line_num}",
            f"invalid CSV ({error})",
            hint='quote texts, and double the " in them',
        ) from None


def _parquet(path: Path) -> Iterator[Row]:
    try:
        with pq.ParquetFile(path) as file:
            _check_header(file.schema_arrow.names, path)
            rows = file.read().to_pylist()
    except (pa.ArrowException, OSError, ValueError) as error:
        raise UserError(
            str(path), f"not a readable Parquet file ({error})", hint="download or write it again"
        ) from None
    yield from enumerate(rows, 1)


def _check_header(names: list[str], path: Path) -> None:
    if name := _repeated(names):
        raise UserError(str(path), f"two columns are named {name!r}", hint="rename one")


def _repeated(names: list[str]) -> str | None:
    return next((name for name, count in Counter(names).items() if count > 1), None)


READERS: dict[str, Callable[[Path], Iterator[Row]]] = {
    ".jsonl": _json_lines,
    ".jsonl.gz": _json_lines,
    ".csv": _csv,
    ".parquet": _parquet,
}
