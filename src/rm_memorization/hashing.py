"""Digests: of a table's content, of a file's bytes, of parameters. All are sha256 in hexadecimal."""

import hashlib
import json
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import polars as pl
import pyarrow as pa


class _Digest(Protocol):
    def update(self, data: Any, /) -> None: ...


def text_digest(*parts: str) -> str:
    """Digest of strings, with their boundaries.

    Examples
    --------
    >>> text_digest("a", "b") == text_digest("ab")
    False
    """
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode("utf-8")
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()


def canonical_json(value: Any) -> str:
    """JSON with sorted keys and no spaces: equal values give equal text.

    Examples
    --------
    >>> canonical_json({"b": 1, "a": [2.5, None]})
    '{"a":[2.5,null],"b":1}'
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def file_digest(path: Path) -> str:
    """Digest of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def content_digest(name: str, version: int, frame: pl.DataFrame) -> str:
    """Digest of a table's content under its contract.

    It covers the contract, the column names and types, and every value in row order; compression, chunks, row groups
    and the writer's version leave it unchanged.

    Parameters
    ----------
    name, version
        The contract.
    frame
        Rows in key order.

    Examples
    --------
    >>> frame = pl.DataFrame({"pair_id": ["a", "b"], "p": [0.5, None]})
    >>> content_digest("t", 1, frame) == content_digest("t", 1, pl.concat([frame[:1], frame[1:]], rechunk=False))
    True
    >>> content_digest("t", 1, frame) == content_digest("t", 2, frame)
    False
    """
    digest = hashlib.sha256()
    header = {"contract": name, "version": version, "rows": frame.height}
    digest.update(canonical_json(header).encode())
    for series in frame:
        digest.update(canonical_json([series.name, str(series.dtype)]).encode())
        _update(digest, series)
    return digest.hexdigest()


def _update(digest: _Digest, series: pl.Series) -> None:
    """Feed nullness, then lengths where a value has one, then the values that are not null."""
    digest.update(series.is_null().cast(pl.UInt8).to_numpy().tobytes())
    values = series.drop_nulls()
    dtype = series.dtype
    if dtype == pl.String:
        _update_binary(digest, values.cast(pl.Binary))
    elif dtype == pl.Binary:
        _update_binary(digest, values)
    elif isinstance(dtype, pl.List):
        lengths = values.list.len()
        digest.update(lengths.cast(pl.Int64).to_numpy().tobytes())
        _update(digest, values.filter(lengths > 0).explode())
    elif isinstance(dtype, pl.Struct):
        for field in dtype.fields:
            digest.update(canonical_json([field.name, str(field.dtype)]).encode())
            _update(digest, values.struct.field(field.name))
    elif dtype == pl.Boolean:
        digest.update(values.cast(pl.UInt8).to_numpy().tobytes())
    elif dtype.is_integer() or dtype.is_float():
        digest.update(_canonical_nan(values.to_numpy()).tobytes())
    else:
        raise TypeError(
            f"column {series.name!r}: a table holds numbers, text, bytes, lists and structs, not {dtype}"
        )


def _update_binary(digest: _Digest, values: pl.Series) -> None:
    digest.update(values.bin.size().cast(pl.Int64).to_numpy().tobytes())
    for chunk in pa.chunked_array(values.to_arrow()).chunks:
        data = chunk.cast(pa.large_binary())
        offsets = np.frombuffer(data.buffers()[1], dtype=np.int64)[data.offset : data.offset + len(data) + 1]
        if len(data):
            digest.update(memoryview(data.buffers()[2])[offsets[0] : offsets[-1]])


def _canonical_nan(values: np.ndarray) -> np.ndarray:
    """Give every NaN the same bits."""
    if values.dtype.kind != "f":
        return values
    return np.where(np.isnan(values), values.dtype.type(np.nan), values)
