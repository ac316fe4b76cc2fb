"""From candidate rows to pairs and the ledger: the checks that every pair passes, wherever it was read."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Literal

import polars as pl
import pyarrow as pa

from .. import tables
from ..artifact import Contract
from ..errors import UserError
from ..hashing import canonical_json, text_digest
from .messages import Message, check_messages
from .rows import REASONS, Candidate, Refusal, RowError, as_label, as_text, show

Unit = Literal["user", "prompt"]
Record = dict[str, Any]


def collect(rows: Iterable[Candidate | Refusal], unit: Unit) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Turn candidates into pairs; each row ends in exactly one of the two tables.

    Of exact duplicates the first stays. The order of the rows decides nothing else.

    Parameters
    ----------
    rows
        What a reader gave.
    unit
        What is held out as a whole.

    Returns
    -------
    pairs, dropped : pl.DataFrame
        Of the contracts `tables.PAIRS` and `tables.DROPPED`, in the order of the rows.

    Raises
    ------
    UserError
        If no pair is left.
    """
    pairs: dict[str, Record] = {}
    dropped: list[Refusal] = []
    for row in rows:
        try:
            pair = _new_pair(row, unit, pairs)
        except RowError as error:
            dropped.append(Refusal(row.source_file, row.source_row, error.reason, error.detail))
        else:
            pairs[pair["pair_id"]] = pair
    if not pairs:
        raise _nothing_left(dropped)
    return _frame(pairs.values(), tables.PAIRS), _frame(map(vars, dropped), tables.DROPPED)


def _new_pair(row: Candidate | Refusal, unit: Unit, earlier: Mapping[str, Record]) -> Record:
    if isinstance(row, Refusal):
        raise RowError(row.reason, row.detail)
    pair = _pair(row, unit)
    if first := earlier.get(pair["pair_id"]):
        where = f"{first['source_file']!r}, row {first['source_row']}"
        raise RowError("duplicate", f"pair {pair['pair_id']} stands already in {where}")
    return pair


def _pair(row: Candidate, unit: Unit) -> Record:
    prompt = check_messages(row.prompt)
    chosen, rejected = _replies(row)
    user_id = as_label(row.user_id, "user_id")
    unit_id = user_id if unit == "user" else prompt_unit(prompt)
    if unit_id is None:
        raise RowError("missing_user", f"user_id is {show(row.user_id)}")
    return {
        "pair_id": text_digest(unit_id, *_flat(prompt), chosen, rejected)[:16],
        "unit_id": unit_id,
        "user_id": user_id,
        "stratum": as_label(row.stratum, "stratum"),
        "prompt": prompt,
        "chosen": chosen,
        "rejected": rejected,
        "source_file": row.source_file,
        "source_row": row.source_row,
        "extra": as_text(canonical_json(_plain(row.extra)), "another column"),
    }


def prompt_unit(prompt: list[Message]) -> str:
    """Name the unit of a prompt: equal messages, equal unit.

    Examples
    --------
    >>> prompt_unit([{"role": "user", "content": "hello"}])
    'prompt-ea41f4d60dd2'
    """
    return f"prompt-{text_digest(*_flat(prompt))[:12]}"


def _flat(prompt: list[Message]) -> list[str]:
    return [part for message in prompt for part in (message["role"], message["content"])]


def _replies(row: Candidate) -> tuple[str, str]:
    chosen, rejected = as_text(row.chosen, "chosen"), as_text(row.rejected, "rejected")
    for name, reply in (("chosen", chosen), ("rejected", rejected)):
        if not reply.strip():
            raise RowError("empty_response", f"{name} is {show(reply)}")
    if chosen == rejected:
        raise RowError("identical_responses", f"both are {show(chosen)}")
    return chosen, rejected


def _plain(value: Any) -> Any:
    """Give a value that JSON can hold; what JSON has no type for (dates, bytes, NaN) becomes text."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if value is None or isinstance(value, str | int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    return value.hex() if isinstance(value, bytes) else str(value)


def _nothing_left(dropped: list[Refusal]) -> UserError:
    first = dropped[0]
    counts = ", ".join(
        f"{reason} {count}" for reason, count in Counter(row.reason for row in dropped).most_common()
    )
    return UserError(
        f"{first.source_file}: row {first.source_row}",
        f"{first.reason}, {first.detail}",
        f"No pair is left: all {len(dropped)} rows were refused ({counts})",
        hint=f"{first.reason} means: {REASONS[first.reason]}",
    )


def _frame(rows: Iterable[Record], contract: Contract) -> pl.DataFrame:
    schema = {name: column.dtype.type for name, column in contract.columns.items()}
    # By way of Arrow, which takes nested messages from Python several times faster than polars does.
    arrow = pl.DataFrame(schema=schema).to_arrow(compat_level=pl.CompatLevel.oldest()).schema
    return pl.DataFrame(pa.Table.from_pylist(list(rows), schema=arrow), schema=schema)
