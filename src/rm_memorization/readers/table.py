"""A table of pairs, a row each: JSON lines (plain or gzipped), CSV, Parquet."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..errors import UserError
from ..sources import Table
from .formats import JSON_LINES, parse_json, read_rows
from .pairs import Unit
from .rows import Candidate, Refusal, RowError, show

REQUIRED: dict[Unit, tuple[str, ...]] = {
    "user": ("user_id", "prompt", "chosen", "rejected"),
    "prompt": ("prompt", "chosen", "rejected"),
}
COLUMNS = ("user_id", "stratum", "prompt", "chosen", "rejected")
LIKE_MESSAGES = re.compile(r"""\[\s*\{\s*["'](role|content)["']\s*:""")


def read_table(settings: Table) -> Iterator[Candidate | Refusal]:
    """Read the rows of tables.

    `user_id` and `stratum` are text or integers, and the user 7 is the user "7"; fractions and truth values are
    refused. `prompt` is a text, which becomes one message of the user, or a list of messages. CSV, and text columns of
    Parquet, hold messages as JSON: a text that opens with ``[{"role":`` or ``[{"content":`` is read as such and refused
    if it is not valid. Any other text is a prompt as it stands, with whatever bracket it begins. In JSON lines a text is
    always a text, for messages can be written as what they are.

    Parameters
    ----------
    settings
        The files and the unit.

    Yields
    ------
    Candidate or Refusal
        One for each row.

    Raises
    ------
    UserError
        If a file cannot be read, or a row lacks a column.
    """
    for file in settings.files:
        path = Path(file)
        messages_as_text = not path.name.lower().endswith(JSON_LINES)
        for row, values in read_rows(path):
            _check_columns(path, row, values, settings.unit)
            try:
                yield _candidate(path.name, row, values, _messages(values["prompt"], messages_as_text))
            except RowError as error:
                yield Refusal(path.name, row, error.reason, error.detail)


def _check_columns(path: Path, row: int, values: dict[str, Any], unit: Unit) -> None:
    for name in REQUIRED[unit]:
        if name not in values:
            held_out = "; if prompts are what is held out, set unit: prompt" if name == "user_id" else ""
            raise UserError(
                f"{path}: row {row}",
                f"no column {name!r}",
                hint=f"the columns here are {list(values)}{held_out}",
            )


def _candidate(file: str, row: int, values: dict[str, Any], prompt: list[Any]) -> Candidate:
    extra = {name: value for name, value in values.items() if name not in COLUMNS}
    return Candidate(
        file,
        row,
        values.get("user_id"),
        values.get("stratum"),
        prompt,
        values["chosen"],
        values["rejected"],
        extra,
    )


def _messages(prompt: Any, messages_as_text: bool) -> list[Any]:  # noqa: FBT001 - private, called once
    if isinstance(prompt, str) and messages_as_text and LIKE_MESSAGES.match(prompt):
        return _parsed(prompt)
    if isinstance(prompt, str):
        return [{"role": "user", "content": prompt}]
    if isinstance(prompt, list):
        return prompt
    raise RowError("not_text", f"prompt is {show(prompt)}")


def _parsed(prompt: str) -> list[Any]:
    try:
        messages: list[Any] = parse_json(prompt)
    except ValueError as error:
        raise RowError(
            "malformed_message", f"prompt opens like messages but is not JSON: {show(prompt)} ({error})"
        ) from None
    return messages
