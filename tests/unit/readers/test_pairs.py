"""From candidates to the two tables."""

import json
from dataclasses import replace
from datetime import date
from decimal import Decimal
from hashlib import sha256
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rm_memorization import artifact, tables
from rm_memorization.errors import UserError
from rm_memorization.readers.pairs import collect
from rm_memorization.readers.rows import Candidate, Refusal

PROMPT = [{"role": "human", "content": "hello"}]
ROW = Candidate("f", 1, "u1", None, PROMPT, "yes", "no", {})
TEXT = st.text(max_size=30).filter(lambda text: bool(text.strip()))


def digest_by_hand(*parts: str) -> str:
    """Sha256 over each part's length in bytes (8, little-endian) and its bytes."""
    return sha256(
        b"".join(len(part.encode()).to_bytes(8, "little") + part.encode() for part in parts)
    ).hexdigest()


def test_ids_are_digests_of_unit_prompt_and_replies():
    pairs, _ = collect([ROW], "user")
    assert pairs["unit_id"].to_list() == pairs["user_id"].to_list() == ["u1"]
    assert pairs["pair_id"].to_list() == [digest_by_hand("u1", "user", "hello", "yes", "no")[:16]]


def test_without_users_the_prompt_is_the_unit():
    unit = "prompt-" + digest_by_hand("user", "hello")[:12]
    pairs, _ = collect([replace(ROW, user_id=None), replace(ROW, source_row=2, chosen="sure")], "prompt")
    assert pairs["unit_id"].to_list() == [unit, unit]
    assert pairs["user_id"].to_list() == [None, "u1"]
    assert pairs["pair_id"][0] == digest_by_hand(unit, "user", "hello", "yes", "no")[:16]


@pytest.mark.parametrize(
    "change",
    [
        {"user_id": "u2"},
        {"prompt": [{"role": "user", "content": "hello "}]},
        {"prompt": [{"role": "system", "content": "be kind"}, *PROMPT]},
        {"chosen": "no", "rejected": "yes"},
        {"chosen": "yes\n"},
    ],
)
def test_what_makes_another_pair(change):
    pairs, dropped = collect([ROW, replace(ROW, source_row=2, **change)], "user")
    assert (pairs["pair_id"].n_unique(), dropped.height) == (2, 0)


@pytest.mark.parametrize(
    "change", [{"stratum": "a"}, {"extra": {"score": 1}}, {"prompt": [{"role": "user", "content": "hello"}]}]
)
def test_what_makes_a_duplicate(change):
    pairs, dropped = collect(
        [ROW, replace(ROW, source_row=2, **change), replace(ROW, source_file="g")], "user"
    )
    detail = f"pair {pairs['pair_id'][0]} stands already in 'f', row 1"
    assert dropped.rows() == [("f", 2, "duplicate", detail), ("g", 1, "duplicate", detail)]


def test_a_number_and_its_text_are_one_user():
    pairs, _ = collect(
        [replace(ROW, user_id=7), replace(ROW, user_id="7", source_row=2, chosen="sure")], "user"
    )
    assert pairs["unit_id"].to_list() == ["7", "7"]


def test_roles_get_one_spelling():
    prompt = [
        {"role": role, "content": role}
        for role in ("system", "human", "gpt", "user", "model", "human", "bot", "user")
    ]
    pairs, _ = collect([replace(ROW, prompt=prompt)], "user")
    roles = [message["role"] for message in pairs["prompt"][0]]
    assert roles == ["system", "user", "assistant", "user", "assistant", "user", "assistant", "user"]


def test_null_keys_of_a_message_say_nothing():
    pairs, _ = collect([replace(ROW, prompt=[{"role": "user", "content": "hello", "name": None}])], "user")
    assert pairs["prompt"].to_list() == [[{"role": "user", "content": "hello"}]]


def test_extra_is_canonical_json_of_whatever_a_file_may_hold():
    extra = {
        "z": [1, (2.5, None)],
        "a": {"b": True},
        "day": date(2024, 7, 1),
        "d": Decimal("1.10"),
        "raw": b"\xff",
        "nan": float("nan"),
        "é": -float("inf"),
    }
    pairs, _ = collect([replace(ROW, extra=extra)], "user")
    assert (
        pairs["extra"][0]
        == '{"a":{"b":true},"d":"1.10","day":"2024-07-01","nan":"nan","raw":"ff","z":[1,[2.5,null]],"é":"-inf"}'
    )


def test_both_tables_keep_their_contracts(tmp_path: Path):
    pairs, dropped = collect([ROW, Refusal("f", 2, "not_text", "chosen is null")], "user")
    artifact.write(pairs, tables.PAIRS, tmp_path / "pairs.parquet")
    artifact.write(dropped, tables.DROPPED, tmp_path / "dropped.parquet")
    assert artifact.read(tmp_path / "dropped.parquet", tables.DROPPED).rows() == [
        ("f", 2, "not_text", "chosen is null")
    ]


def test_an_empty_ledger_keeps_its_contract(tmp_path: Path):
    _, dropped = collect([ROW], "user")
    artifact.write(dropped, tables.DROPPED, tmp_path / "dropped.parquet")
    assert artifact.read(tmp_path / "dropped.parquet", tables.DROPPED).height == 0


def test_a_data_set_that_leaves_no_pair_is_refused():
    rows = [
        replace(ROW, chosen=" "),
        replace(ROW, source_row=2, user_id=None),
        replace(ROW, source_row=3, rejected=""),
    ]
    with pytest.raises(UserError) as caught:
        collect(rows, "user")
    assert str(caught.value) == (
        "f: row 1: empty_response, chosen is ' '. No pair is left: all 3 rows were refused (empty_response 2, missing_user 1)."
        " Hint: empty_response means: a reply is blank"
    )


ROWS = st.lists(
    st.tuples(
        st.sampled_from(["u1", "u2", None]),
        st.sampled_from(["p", "q", " "]),
        st.sampled_from("abc"),
        st.sampled_from(["a", "b", ""]),
    ),
    min_size=1,
    max_size=20,
)


@settings(deadline=None)
@given(rows=ROWS, order=st.randoms(use_true_random=False))
def test_the_order_of_the_rows_decides_only_which_duplicate_is_kept(rows, order):
    candidates = [ROW] + [
        Candidate("f", n, user, None, [{"role": "user", "content": prompt}], chosen, rejected, {})
        for n, (user, prompt, chosen, rejected) in enumerate(rows, 2)
    ]
    shuffled = order.sample(candidates, len(candidates))
    (pairs, dropped), (other_pairs, other_dropped) = collect(candidates, "user"), collect(shuffled, "user")
    names = [name for name in pairs.columns if name not in ("source_file", "source_row")]
    assert pairs.select(names).sort("pair_id").equals(other_pairs.select(names).sort("pair_id"))
    assert sorted(dropped["reason"]) == sorted(other_dropped["reason"])
    rows_of = [
        pl.concat([p["source_row"], d["source_row"]]).sort().to_list()
        for p, d in ((pairs, dropped), (other_pairs, other_dropped))
    ]
    assert rows_of == [list(range(1, len(candidates) + 1))] * 2


@settings(deadline=None)
@given(user=TEXT, prompt=TEXT, chosen=TEXT, extra=st.dictionaries(st.text(), st.text()))
def test_texts_survive_byte_for_byte(user, prompt, chosen, extra):
    row = replace(
        ROW,
        user_id=user,
        prompt=[{"role": "user", "content": prompt}],
        chosen=chosen,
        rejected=f"{chosen}\0",
        extra=extra,
    )
    pairs, _ = collect([row], "user")
    found = pairs.row(0, named=True)
    assert (found["user_id"], found["prompt"][0]["content"], found["chosen"], found["rejected"]) == (
        user,
        prompt,
        chosen,
        f"{chosen}\0",
    )
    assert json.loads(found["extra"]) == extra
