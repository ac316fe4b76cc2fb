"""What passes between the readers and `pairs.collect`: candidate rows, refusals, and the reasons for them."""

import math
from dataclasses import dataclass
from typing import Any

REASONS = {
    "not_text": "a value that must be text is something else, such as null, true or a fraction",
    "not_unicode": "a text holds half a surrogate pair, which is no character",
    "missing_user": "no user_id, where users are what is held out",
    "malformed_message": "a message is not an object of `role` and `content`",
    "unknown_role": "a message's role is none of those in `messages.ROLES`",
    "empty_turn": "a message of the prompt is blank",
    "roles_not_alternating": "after at most one system message, user and assistant do not take turns, the user first",
    "prompt_not_ending_with_user": "the prompt has no last message of the user that the replies answer",
    "not_a_transcript": "a text does not consist of turns, from `Human:` to a last `Assistant:`",
    "different_prompts": "the two replies answer different prompts",
    "empty_response": "a reply is blank",
    "identical_responses": "the two replies are the same",
    "duplicate": "unit, prompt and both replies are those of an earlier row",
}


class RowError(Exception):
    """A row that makes no pair.

    Parameters
    ----------
    reason
        A code of `REASONS`.
    detail
        What was found.
    """

    def __init__(self, reason: str, detail: str) -> None:
        if reason not in REASONS:
            raise ValueError(f"{reason!r} is not in REASONS")
        self.reason, self.detail = reason, detail
        super().__init__(reason, detail)


@dataclass(frozen=True)
class Candidate:
    """A source row that may become a pair; its values are unchecked.

    Parameters
    ----------
    source_file
        Bare file name.
    source_row
        Row or line in that file, from 1.
    user_id, stratum
        Text, integer or null.
    prompt
        Messages, objects of `role` and `content`.
    chosen, rejected
        The replies.
    extra
        The row's other columns.
    """

    source_file: str
    source_row: int
    user_id: Any
    stratum: Any
    prompt: list[Any]
    chosen: Any
    rejected: Any
    extra: dict[str, Any]


@dataclass(frozen=True)
class Refusal:
    """A source row that makes no pair: a line of the ledger."""

    source_file: str
    source_row: int
    reason: str
    detail: str


def as_text(value: Any, name: str) -> str:
    """Give the value back if it is text that can be stored, byte for byte.

    Raises
    ------
    RowError
        If it is no text, or no Unicode text.
    """
    if not isinstance(value, str):
        raise RowError("not_text", f"{name} is {show(value)}")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise RowError(
            "not_unicode", f"{name} holds {value[error.start]!r} at character {error.start + 1}"
        ) from None
    return value


def as_label(value: Any, name: str) -> str | None:
    """Read the name of a user or a stratum; null, NaN and blank text are none.

    Raises
    ------
    RowError
        If it is neither text nor an integer.

    Examples
    --------
    >>> as_label(7, "user_id") == as_label("7", "user_id")
    True
    """
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    text = as_text(value, name)
    return text if text.strip() else None


def show(value: Any) -> str:
    """Show a value in a message, shortened.

    Examples
    --------
    >>> show(None), show(True), show("x" * 100)
    ('null', 'True', "'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx…")
    """
    limit = 60
    text = "null" if value is None else repr(value)
    return text if len(text) <= limit else f"{text[: limit - 1]}…"
