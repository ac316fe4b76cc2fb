"""Every reason code, from a source file to the ledger."""

import json
from pathlib import Path

import pytest

from rm_memorization.readers import read_source
from rm_memorization.readers.rows import REASONS, RowError, as_label, as_text
from rm_memorization.sources import Source

GOOD = {"user_id": "u1", "prompt": "hello", "chosen": "yes", "rejected": "no"}
USER, REPLY, SYSTEM = ({"role": role, "content": "x"} for role in ("user", "assistant", "system"))
HUMAN = "\n\nHuman: hello"

TABLE_CASES = [
    ("not_text", {"chosen": True}, "chosen is True"),
    ("not_text", {"rejected": None}, "rejected is null"),
    ("not_text", {"chosen": 3}, "chosen is 3"),
    ("not_text", {"chosen": float("nan")}, "chosen is nan"),
    ("not_text", {"prompt": None}, "prompt is null"),
    ("not_text", {"prompt": {"role": "user"}}, "prompt is {'role': 'user'}"),
    ("not_text", {"prompt": [{"role": "user", "content": None}]}, "the content of message 1 is null"),
    ("not_text", {"user_id": 7.0}, "user_id is 7.0"),
    ("not_text", {"user_id": True}, "user_id is True"),
    ("not_text", {"stratum": 0.5}, "stratum is 0.5"),
    ("not_unicode", {"chosen": "a\ud800"}, r"chosen holds '\ud800' at character 2"),
    ("not_unicode", {"note": "\udc00"}, r"another column holds '\udc00'"),
    ("missing_user", {"user_id": None}, "user_id is null"),
    ("missing_user", {"user_id": " "}, "user_id is ' '"),
    ("missing_user", {"user_id": float("nan")}, "user_id is nan"),
    ("malformed_message", {"prompt": ["hello"]}, "message 1 is 'hello'"),
    ("malformed_message", {"prompt": [{"role": "user"}]}, "message 1 is {'role': 'user'}"),
    ("malformed_message", {"prompt": [{"content": "x"}]}, "message 1 is {'content': 'x'}"),
    ("malformed_message", {"prompt": [{"role": None, "content": "x"}]}, "message 1 is"),
    ("malformed_message", {"prompt": [USER, REPLY, USER | {"name": "Ada"}]}, "message 3 is"),
    (
        "unknown_role",
        {"prompt": [{"role": "User", "content": "x"}]},
        "message 1 has role 'User', not one of system, user",
    ),
    ("unknown_role", {"prompt": [{"role": 1, "content": "x"}]}, "message 1 has role 1"),
    ("empty_turn", {"prompt": " \n"}, r"message 1, the user's, is ' \n'"),
    (
        "empty_turn",
        {"prompt": [USER, {"role": "gpt", "content": ""}, USER]},
        "message 2, the assistant's, is ''",
    ),
    ("roles_not_alternating", {"prompt": [USER, USER]}, "message 2 is the user's, not the assistant's"),
    ("roles_not_alternating", {"prompt": [REPLY, USER]}, "message 1 is the assistant's, not the user's"),
    (
        "roles_not_alternating",
        {"prompt": [USER, SYSTEM, USER]},
        "message 2 is the system's, not the assistant's",
    ),
    (
        "roles_not_alternating",
        {"prompt": [SYSTEM, SYSTEM, USER]},
        "message 2 is the system's, not the user's",
    ),
    ("prompt_not_ending_with_user", {"prompt": [USER, REPLY]}, "the last message is the assistant's"),
    ("prompt_not_ending_with_user", {"prompt": [SYSTEM]}, "the last message is the system's"),
    ("prompt_not_ending_with_user", {"prompt": []}, "the prompt has no message"),
    ("empty_response", {"chosen": " \t\n"}, r"chosen is ' \t\n'"),
    ("empty_response", {"rejected": ""}, "rejected is ''"),
    ("identical_responses", {"chosen": "no"}, "both are 'no'"),
    ("duplicate", {"user_id": "u1"}, "stands already in 'data.jsonl', row 1"),
]
TRANSCRIPT_CASES = [
    ("not_text", None, "chosen is null"),
    ("not_a_transcript", "Human: hello\n\nAssistant: yes", "chosen does not begin with a turn"),
    ("not_a_transcript", HUMAN, "chosen does not end with a turn of the assistant"),
    (
        "not_a_transcript",
        f"{HUMAN}\n\nAssistant: yes{HUMAN}",
        "chosen does not end with a turn of the assistant",
    ),
    ("different_prompts", "\n\nHuman: Hello\n\nAssistant: yes", "1 and 1 messages, the first to differ is 1"),
    (
        "different_prompts",
        f"{HUMAN}\n\nAssistant: oh{HUMAN}\n\nAssistant: yes",
        "3 and 1 messages, the first to differ is 2",
    ),
    ("empty_response", f"{HUMAN}\n\nAssistant: ", "chosen is ''"),
]


def refused(tmp_path: Path, reader: str, rows: list[dict]) -> tuple[int, list[tuple]]:
    path = tmp_path / "data.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    pairs, dropped = read_source(Source.model_validate({reader: {"files": [str(path)]}}))
    return pairs.height, dropped.rows()


@pytest.mark.parametrize(("reason", "change", "detail"), TABLE_CASES)
def test_a_bad_row_of_a_table_goes_to_the_ledger_alone(tmp_path, reason, change, detail):
    kept, ledger = refused(
        tmp_path, "table", [GOOD, GOOD | {"user_id": "u2"} | change, GOOD | {"user_id": "u3"}]
    )
    assert kept == 2
    [(file, row, found, found_detail)] = ledger
    assert (file, row, found) == ("data.jsonl", 2, reason)
    assert detail in found_detail


@pytest.mark.parametrize(("reason", "chosen", "detail"), TRANSCRIPT_CASES)
def test_a_bad_transcript_goes_to_the_ledger_alone(tmp_path, reason, chosen, detail):
    good = {"chosen": f"{HUMAN}\n\nAssistant: yes", "rejected": f"{HUMAN}\n\nAssistant: no"}
    kept, ledger = refused(tmp_path, "hh_rlhf", [good, good | {"chosen": chosen}])
    assert (kept, [row[:3] for row in ledger]) == (1, [("data.jsonl", 2, reason)])
    assert detail in ledger[0][3]


def test_the_cases_cover_every_reason():
    assert {case[0] for case in TABLE_CASES + TRANSCRIPT_CASES} == set(REASONS)


def test_a_reason_without_a_meaning_is_refused():
    with pytest.raises(ValueError, match="'odd' is not in REASONS"):
        RowError("odd", "")


@pytest.mark.parametrize(
    ("value", "label"),
    [(7, "7"), ("7", "7"), (" 7", " 7"), (-1, "-1"), (None, None), ("", None), ("\t", None)],
)
def test_labels(value, label):
    assert as_label(value, "user_id") == label


def test_a_long_value_is_shortened_in_the_detail():
    with pytest.raises(RowError) as caught:
        as_text(["x" * 1000], "chosen")
    assert len(caught.value.detail) == len("chosen is ") + 60
