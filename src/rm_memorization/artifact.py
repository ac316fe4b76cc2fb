"""The one way to read and write a table.

A table is a Parquet file with a contract: a pandera schema, a key, a version. Rows stand in key order, the footer holds
the contract and the content hash and nothing volatile, so that equal content gives equal bytes.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandera.polars as pa_polars
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from pandera.errors import SchemaErrors

from .errors import UserError
from .files import write_atomically
from .hashing import canonical_json, content_digest
from .record import note_input, note_output

FOOTER = b"rm_memorization"
UNREADABLE = (pa.ArrowException, OSError, UnicodeDecodeError)
REMAKE = "delete it and run its stage again"


@dataclass(frozen=True)
class Contract:
    """What a table promises.

    Parameters
    ----------
    name, version
        Identity; a stage that opens a table of another contract stops. The version changes when the columns, their
        types or their meaning change.
    row
        What one row is, in words.
    columns
        Pandera columns by name; each carries a description.
    key
        Columns that identify a row; rows are unique in it and sorted by it.
    volatile
        Whether content may differ between two builds (times, hosts), so that hashes are not compared.
    """

    name: str
    version: int
    row: str
    columns: dict[str, pa_polars.Column]
    key: tuple[str, ...]
    volatile: bool = False

    def schema(self, names: Sequence[str]) -> pa_polars.DataFrameSchema:
        """Give the pandera schema of these columns: no others, nothing coerced."""
        columns = {name: column for name, column in self.columns.items() if name in names}
        return pa_polars.DataFrameSchema(columns, strict=True, coerce=False, name=self.name)


def write(
    frame: pl.DataFrame, contract: Contract, path: Path, properties: dict[str, Any] | None = None
) -> str:
    """Check a table, sort it by its key and write it.

    Parameters
    ----------
    frame
        Columns in any order, rows in any order.
    contract
        What the table must keep.
    path
        Where it goes; its folder is made.
    properties
        JSON values for the footer that follow from the content alone (recipe version, adapter settings).

    Returns
    -------
    str
        The content hash.

    Raises
    ------
    UserError
        If the table breaks its contract.
    """
    _check_columns(frame, contract.columns, contract, path)
    # One chunk a column: where the writer cuts pages, and so the bytes, would depend on the chunks.
    frame = frame.select(list(contract.columns)).sort(contract.key, maintain_order=True).rechunk()
    check(frame, contract, path)
    digest = content_digest(contract.name, contract.version, frame)
    footer = {
        "contract": contract.name,
        "version": contract.version,
        "content_hash": digest,
        "properties": properties or {},
    }
    table = _plain(frame.to_arrow()).replace_schema_metadata({FOOTER: canonical_json(footer).encode()})
    with write_atomically(path) as temporary:
        pq.write_table(table, temporary, compression="zstd", write_page_checksum=True)
    note_output(path, digest)
    return digest


def _plain(table: pa.Table) -> pa.Table:
    """Turn views into plain buffers, which every Parquet reader knows."""

    def plain(dtype: pa.DataType) -> pa.DataType:
        if pa.types.is_string_view(dtype):
            return pa.large_string()
        if pa.types.is_binary_view(dtype):
            return pa.large_binary()
        if pa.types.is_large_list(dtype):
            return pa.large_list(plain(dtype.value_type))
        if pa.types.is_struct(dtype):
            return pa.struct([pa.field(f.name, plain(f.type)) for f in dtype])
        return dtype

    return table.cast(pa.schema([pa.field(f.name, plain(f.type)) for f in table.schema]))


def read(path: Path, contract: Contract, columns: Sequence[str] | None = None) -> pl.DataFrame:
    """Read a table and check that it is whole and keeps its contract.

    A table read whole must have the content hash of its footer; for single columns the checksums of their pages vouch.

    Parameters
    ----------
    path
        A Parquet file that this package wrote.
    contract
        What the caller expects.
    columns
        Only these columns; they alone are checked then.

    Raises
    ------
    UserError
        If the file is missing, damaged or no artifact, is of another contract or breaks it.
    """
    meta = footer(path)
    if (meta["contract"], meta["version"]) != (contract.name, contract.version):
        raise UserError(
            str(path),
            f"a table of contract {meta['contract']} v{meta['version']}, expected {contract.name} v{contract.version}",
            hint="run the stage that makes it again, with this version of the package",
        )
    frame = _values(path, columns)
    _check_columns(frame, columns or contract.columns, contract, path)
    if not columns and content_digest(contract.name, contract.version, frame) != meta["content_hash"]:
        raise UserError(str(path), "its values are not those that its content hash stands for", hint=REMAKE)
    check(frame, contract, path)
    note_input(path, meta["content_hash"])
    return frame


def _values(path: Path, columns: Sequence[str] | None = None) -> pl.DataFrame:
    """Read values whose pages keep their checksums; a damaged page header can still lose rows, so they are counted."""
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            table, rows = file.read(columns), file.metadata.num_rows
        frame = pl.DataFrame(table.replace_schema_metadata(None))
    except UNREADABLE as error:
        raise UserError(str(path), f"not a readable Parquet file ({error})", hint=REMAKE) from None
    if frame.height != rows:
        raise UserError(str(path), f"damaged: {frame.height} of its {rows} rows can be read", hint=REMAKE)
    return frame


def footer(path: Path) -> dict[str, Any]:
    """Read the footer: contract, version, content_hash, properties.

    Raises
    ------
    UserError
        If the file is missing, is not Parquet or was not written by this package.
    """
    try:
        metadata = pq.read_metadata(path).metadata or {}
    except FileNotFoundError:
        raise UserError(str(path), "no such file", hint="run the stage that makes it") from None
    except UNREADABLE as error:
        raise UserError(str(path), f"not a readable Parquet file ({error})", hint=REMAKE) from None
    try:
        content: dict[str, Any] = json.loads(metadata[FOOTER])
        return {key: content[key] for key in ("contract", "version", "content_hash", "properties")}
    except (KeyError, TypeError, ValueError):
        raise UserError(
            str(path),
            "a Parquet file without this package's footer",
            hint="tables are made by `rm-memorization`",
        ) from None


def recompute(path: Path) -> str:
    """Compute the content hash from the values that the file holds now."""
    meta = footer(path)
    return content_digest(meta["contract"], meta["version"], _values(path))


def check(frame: pl.DataFrame, contract: Contract, where: Path) -> None:
    """Check a table against its contract: columns, types, values, NaN, key, order.

    Raises
    ------
    UserError
        With the column, the number of offending rows and the first of them, counted from 1.
    """
    try:
        contract.schema(frame.columns).validate(frame, lazy=True)
    except SchemaErrors as error:
        raise UserError(str(where), _first_failure(frame, contract, error)) from None
    if set(contract.key) <= set(frame.columns):
        _check_key(frame, contract, where)


def _check_columns(frame: pl.DataFrame, names: Iterable[str], contract: Contract, where: Path) -> None:
    differing = sorted(set(frame.columns) ^ set(names))
    if differing:
        raise UserError(
            str(where),
            f"contract {contract.name} v{contract.version}: missing or unknown columns {differing}",
        )


def _first_failure(frame: pl.DataFrame, contract: Contract, error: SchemaErrors) -> str:
    cases = error.failure_cases
    first = cases.row(0, named=True)
    index = first.get("index")
    row = f", row {index + 1} ({_key_of(frame, contract, index)})" if index is not None else ""
    alike = cases.filter((pl.col("column") == first["column"]) & (pl.col("check") == first["check"]))
    return (
        f"contract {contract.name} v{contract.version}: column {first['column']!r}{row} fails {first['check']!r} "
        f"with {first['failure_case']!r} ({len(alike)} such cases)"
    )


def _key_of(frame: pl.DataFrame, contract: Contract, row: int) -> str:
    return ", ".join(f"{name}={frame[name][row]!r}" for name in contract.key if name in frame.columns)


def _check_key(frame: pl.DataFrame, contract: Contract, where: Path) -> None:
    keys = frame.select(contract.key)
    again = keys.is_duplicated().arg_true()
    if len(again):
        first = keys.row(again[0])
        times = keys.filter(
            pl.all_horizontal(
                pl.col(name).eq_missing(value) for name, value in zip(contract.key, first, strict=True)
            )
        ).height
        raise UserError(
            str(where),
            f"key {contract.key} is not unique: {first} of row {again[0] + 1} stands {times} times",
        )
    moved = (keys != keys.sort(contract.key)).select(pl.any_horizontal(pl.all())).to_series().arg_true()
    if len(moved):
        raise UserError(
            str(where),
            f"rows are not sorted by {contract.key}: row {moved[0] + 1} is out of place",
            "the content hash is defined on sorted rows",
        )
