r"""HH-RLHF: two transcripts a line, alike up to the last reply. There are no users, so prompts are the units.

A transcript is a chain of turns, each opened by "\n\nHuman:" or "\n\nAssistant:". Only these open a turn. A "Human:"
inside a line is text: where the assistant went on to write the human's part, annotators saw and judged just that.
"""

import re
from collections.abc import Iterator
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any

from ..errors import UserError
from ..sources import HhRlhf
from .formats import JSON_LINES, read_rows
from .messages import Message
from .rows import Candidate, Refusal, RowError, as_text

TURN = re.compile("\n\n(Human|Assistant):")
COLUMNS = ("chosen", "rejected")


def read_hh_rlhf(settings: HhRlhf) -> Iterator[Candidate | Refusal]:
    """Read transcripts.

    Parameters
    ----------
    settings
        The files, and how many rows of each.

    Yields
    ------
    Candidate or Refusal
        One for each line.

    Raises
    ------
    UserError
        If a file cannot be read, or a line lacks a transcript.
    """
    for file in settings.files:
        path = Path(file)
        for line, values in islice(read_rows(path, JSON_LINES), settings.limit):
            try:
                yield _candidate(path, line, values)
            except RowError as error:
                yield Refusal(path.name, line, error.reason, error.detail)


def _candidate(path: Path, line: int, values: dict[str, Any]) -> Candidate:
    for column in COLUMNS:
        if column not in values:
            raise UserError(
                f"{path}:{line}", f"no column {column!r}", hint=f"the columns here are {list(values)}"
            )
    prompt, chosen = _prompt_and_reply(values["chosen"], "chosen")
    other_prompt, rejected = _prompt_and_reply(values["rejected"], "rejected")
    if prompt != other_prompt:
        first = next(n for n, (one, other) in enumerate(zip_longest(prompt, other_prompt), 1) if one != other)
        raise RowError(
            "different_prompts",
            f"{len(prompt)} and {len(other_prompt)} messages, the first to differ is {first}",
        )
    extra = {name: value for name, value in values.items() if name not in COLUMNS}
    return Candidate(path.name, line, None, None, prompt, chosen, rejected, extra)


def _prompt_and_reply(transcript: Any, column: str) -> tuple[list[Message], str]:
    before, *rest = TURN.split(as_text(transcript, column))
    roles, texts = rest[::2], rest[1::2]
    if before:
        raise RowError("not_a_transcript", f"{column} does not begin with a turn")
    if roles[-1:] != ["Assistant"]:
        raise RowError("not_a_transcript", f"{column} does not end with a turn of the assistant")
    # The one space behind the colon is the format's, any further one belongs to the text.
    turns = [
        {"role": role.lower(), "content": text.removeprefix(" ")}
        for role, text in zip(roles, texts, strict=True)
    ]
    return turns[:-1], turns[-1]["content"]
