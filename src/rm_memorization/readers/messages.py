"""The messages of a prompt: one spelling of each role, and the order that they must keep."""

from collections.abc import Sequence
from typing import Any

from .rows import RowError, as_text, show

Message = dict[str, str]

ROLES = {
    "system": "system",
    "user": "user",
    "human": "user",
    "assistant": "assistant",
    "gpt": "assistant",
    "model": "assistant",
    "bot": "assistant",
}


def check_messages(prompt: Sequence[Any]) -> list[Message]:
    """Check a prompt's messages, their text kept byte for byte.

    Raises
    ------
    RowError
        If a message is malformed or blank, or the user does not have the first and the last word.

    Examples
    --------
    >>> check_messages([{"role": "human", "content": "hello"}])
    [{'role': 'user', 'content': 'hello'}]
    """
    messages = [_message(message, place) for place, message in enumerate(prompt, 1)]
    _check_order([message["role"] for message in messages])
    return messages


def _message(message: Any, place: int) -> Message:
    # Parquet gives every message all the keys that any message has: those that are null say nothing.
    given = (
        {key for key, value in message.items() if value is not None} if isinstance(message, dict) else set()
    )
    if not given <= {"role", "content"} or "role" not in given or "content" not in message:
        raise RowError("malformed_message", f"message {place} is {show(message)}")
    role = ROLES.get(message["role"]) if isinstance(message["role"], str) else None
    if role is None:
        raise RowError(
            "unknown_role", f"message {place} has role {show(message['role'])}, not one of {', '.join(ROLES)}"
        )
    content = as_text(message["content"], f"the content of message {place}")
    if not content.strip():
        raise RowError("empty_turn", f"message {place}, the {role}'s, is {show(content)}")
    return {"role": role, "content": content}


def _check_order(roles: list[str]) -> None:
    system = int(roles[:1] == ["system"])
    for place, role in enumerate(roles[system:]):
        expected = ("user", "assistant")[place % 2]
        if role != expected:
            raise RowError(
                "roles_not_alternating", f"message {place + system + 1} is the {role}'s, not the {expected}'s"
            )
    if roles[-1:] != ["user"]:
        found = f"the last message is the {roles[-1]}'s" if roles else "the prompt has no message"
        raise RowError("prompt_not_ending_with_user", found)
