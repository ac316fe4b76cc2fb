"""Tables of pairs in three formats."""

import csv
import json
from pathlib import Path

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rm_memorization.errors import UserError
from rm_memorization.readers import read_source
from rm_memorization.sources import Source

GOOD = {"user_id": "u1", "prompt": "hello", "chosen": "yes", "rejected": "no"}
TALK = [
    {"role": "human", "content": "hello"},
    {"role": "gpt", "content": "[{"},
    {"role": "human", "content": "é\n"},
]
FORMATS = ("jsonl", "csv", "parquet")
TEXT = st.text(max_size=30).filter(lambda text: bool(text.strip()))


def write(folder: Path, suffix: str, rows: list[dict]) -> Path:
    path = folder / f"data.{suffix}"
    if suffix == "jsonl":
        path.write_text(
            "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows), encoding="utf-8", newline=""
        )
    elif suffix == "csv":
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]), quoting=csv.QUOTE_ALL)
            writer.writeheader()
            writer.writerows(
                {k: json.dumps(v) if isinstance(v, list) else v for k, v in row.items()} for row in rows
            )
    else:
        pl.DataFrame(rows).write_parquet(path)
    return path


def read(*paths: Path, **more: str) -> tuple[pl.DataFrame, pl.DataFrame]:
    return read_source(Source.model_validate({"table": {"files": [str(path) for path in paths], **more}}))


@pytest.mark.parametrize("suffix", FORMATS)
def test_messages(tmp_path: Path, suffix):
    pairs, _ = read(write(tmp_path, suffix, [GOOD | {"prompt": TALK}]))
    roles = ["user", "assistant", "user"]
    assert pairs["prompt"].to_list() == [
        [{"role": r, "content": m["content"]} for r, m in zip(roles, TALK, strict=True)]
    ]


@pytest.mark.parametrize("suffix", FORMATS)
@pytest.mark.parametrize(
    "prompt",
    [
        "[INST] hello",
        "[{",
        "[1, 2]",
        '[{"a": 1}]',
        "[{x} in chosen]",
        ' [{"role": "user", "content": "x"}]',
        "[]",
    ],
)
def test_a_text_that_begins_with_a_bracket_stays_text(tmp_path: Path, suffix, prompt):
    pairs, _ = read(write(tmp_path, suffix, [GOOD | {"prompt": prompt}]))
    assert pairs["prompt"].to_list() == [[{"role": "user", "content": prompt}]]


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_messages_written_as_text(tmp_path: Path, suffix):
    rows = [GOOD | {"prompt": json.dumps(TALK)}, GOOD | {"prompt": '[ {"content": "x", "role": "user"} ]'}]
    pairs, _ = read(write(tmp_path, suffix, rows))
    assert [len(prompt) for prompt in pairs["prompt"]] == [3, 1]


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
@pytest.mark.parametrize(
    "prompt", [str(TALK), json.dumps(TALK)[:-5], '[{"role": "user", "role": "user", "content": "x"}]']
)
def test_text_that_opens_like_messages_and_is_not_json_is_refused(tmp_path: Path, suffix, prompt):
    _, dropped = read(write(tmp_path, suffix, [GOOD, GOOD | {"prompt": prompt}]))
    assert dropped["reason"].to_list() == ["malformed_message"]
    assert "prompt opens like messages but is not JSON: " in dropped["detail"][0]


def test_in_json_lines_a_text_is_a_text(tmp_path: Path):
    pairs, _ = read(write(tmp_path, "jsonl", [GOOD | {"prompt": json.dumps(TALK)}]))
    assert pairs["prompt"].to_list() == [[{"role": "user", "content": json.dumps(TALK)}]]


def test_the_formats_agree(tmp_path: Path):
    rows = [
        GOOD | {"stratum": "s"},
        GOOD | {"user_id": "7", "stratum": ""},
        GOOD | {"chosen": "no", "stratum": "s"},
    ]
    tables = [read(write(tmp_path, suffix, rows)) for suffix in FORMATS]
    for pairs, dropped in tables:
        assert pairs.drop("source_file").equals(tables[0][0].drop("source_file"))
        assert dropped.drop("source_file").equals(tables[0][1].drop("source_file"))
    assert tables[0][0]["stratum"].to_list() == ["s", None]


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_integers_name_users(tmp_path: Path, suffix):
    pairs, _ = read(write(tmp_path, suffix, [GOOD | {"user_id": 7}, GOOD | {"user_id": 2**53 + 1}]))
    assert pairs["user_id"].to_list() == ["7", "9007199254740993"]


def test_the_user_7_of_one_file_is_the_user_7_of_another(tmp_path: Path):
    number = write(tmp_path, "jsonl", [GOOD | {"user_id": 7}])
    text = write(tmp_path, "csv", [GOOD | {"user_id": "7", "chosen": "sure"}, GOOD | {"user_id": 7}])
    pairs, dropped = read(number, text)
    assert pairs["unit_id"].to_list() == ["7", "7"]
    assert dropped.rows() == [
        ("data.csv", 2, "duplicate", f"pair {pairs['pair_id'][0]} stands already in 'data.jsonl', row 1")
    ]


def test_user_ids_that_a_missing_one_turned_into_fractions(tmp_path: Path):
    path = write(tmp_path, "parquet", [GOOD | {"user_id": 7.0}, GOOD | {"user_id": None}])
    with pytest.raises(
        UserError, match=r"data\.parquet: row 1: not_text, user_id is 7\.0\. No pair is left: all 2 rows"
    ):
        read(path)


def test_other_columns_are_kept(tmp_path: Path):
    pairs, _ = read(
        write(
            tmp_path,
            "jsonl",
            [GOOD | {"score": 1.5, "meta": {"b": None, "a": [1]}}, GOOD | {"user_id": "u2"}],
        )
    )
    assert pairs["extra"].to_list() == ['{"meta":{"a":[1],"b":null},"score":1.5}', "{}"]


def test_the_prompt_as_unit_needs_no_user(tmp_path: Path):
    rows = [{k: v for k, v in GOOD.items() if k != "user_id"}, GOOD | {"chosen": "sure"}]
    pairs, _ = read(write(tmp_path, "jsonl", rows), unit="prompt")
    assert pairs["unit_id"].n_unique() == 1
    assert pairs["user_id"].to_list() == [None, "u1"]


@pytest.mark.parametrize("suffix", FORMATS)
@pytest.mark.parametrize("column", GOOD)
def test_a_missing_column(tmp_path: Path, suffix, column):
    path = write(tmp_path, suffix, [{k: v for k, v in GOOD.items() if k != column}])
    with pytest.raises(UserError) as caught:
        read(path)
    left = [name for name in GOOD if name != column]
    assert f"data.{suffix}: row 1: no column {column!r}. Hint: the columns here are {left}" in str(
        caught.value
    )
    assert ("set unit: prompt" in str(caught.value)) == (column == "user_id")


def test_a_column_missing_in_a_later_line(tmp_path: Path):
    path = write(tmp_path, "jsonl", [GOOD, {"user_id": "u1", "prompt": "x", "chosen": "y"}])
    with pytest.raises(UserError, match=r"data\.jsonl: row 2: no column 'rejected'"):
        read(path)


@pytest.mark.parametrize("suffix", FORMATS)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40, deadline=None)
@given(user=TEXT, prompt=TEXT, chosen=TEXT, rejected=TEXT)
def test_texts_survive_a_file_byte_for_byte(tmp_path: Path, suffix, user, prompt, chosen, rejected):
    row = {
        "user_id": user,
        "prompt": [{"role": "user", "content": prompt}],
        "chosen": f"\0{chosen}",
        "rejected": f"{rejected}\r\n",
    }
    pairs, _ = read(write(tmp_path, suffix, [row]))
    found = pairs.row(0, named=True)
    assert {name: found[name] for name in row} == row
