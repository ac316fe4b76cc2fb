"""Transcripts of HH-RLHF, made-up and real."""

import json
import os
from pathlib import Path

import polars as pl
import pytest

from rm_memorization.errors import UserError
from rm_memorization.readers import read_source
from rm_memorization.sources import Source

ROOT = Path(__file__).parents[3]
DATA = Path(os.environ.get("RM_MEMORIZATION_DATA", ROOT.parent / "shared" / "data"))
REAL = DATA / "hh_rlhf" / "harmless-base.test.jsonl.gz"
POINTER = DATA / "odd_rows" / "helpful-base.test.jsonl.gz.LFS_POINTER"


def read(*paths: Path, **more: int) -> tuple[pl.DataFrame, pl.DataFrame]:
    return read_source(Source.model_validate({"hh_rlhf": {"files": [str(path) for path in paths], **more}}))


def write(path: Path, *rows: dict) -> Path:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


def row(chosen: str, rejected: str, prompt: str = "\n\nHuman: hello", **more: object) -> dict:
    return {
        "chosen": f"{prompt}\n\nAssistant:{chosen}",
        "rejected": f"{prompt}\n\nAssistant:{rejected}",
        **more,
    }


def test_turns_and_replies(tmp_path: Path):
    prompt = "\n\nHuman: hi\n\nthere \n\nAssistant:  Human: me?\nAssistant: no\n\nHuman:x"
    pairs, _ = read(
        write(tmp_path / "f.jsonl", row("  two spaces\n\nHuman, no", "none ", prompt, source="a"))
    )
    found = pairs.row(0, named=True)
    assert [(message["role"], message["content"]) for message in found["prompt"]] == [
        ("user", "hi\n\nthere "),
        ("assistant", " Human: me?\nAssistant: no"),
        ("user", "x"),
    ]
    assert (found["chosen"], found["rejected"]) == (" two spaces\n\nHuman, no", "none ")
    assert (found["user_id"], found["stratum"], found["extra"]) == (None, None, '{"source":"a"}')


def test_one_prompt_is_one_unit(tmp_path: Path):
    pairs, dropped = read(
        write(
            tmp_path / "f.jsonl",
            row(" a", " b"),
            row(" b", " a"),
            row(" a", " b"),
            row(" a", " b", "\n\nHuman: hi"),
        )
    )
    assert pairs["unit_id"].n_unique() == 2
    assert (pairs.height, dropped["reason"].to_list()) == (3, ["duplicate"])


def test_limit_counts_the_rows_of_each_file(tmp_path: Path):
    one = write(tmp_path / "one.jsonl", row(" a", " b"), row(" ", " c"), row(" d", " e"))
    two = write(tmp_path / "two.jsonl", row(" f", " g"), row(" h", " i"), row(" j", " k"))
    pairs, dropped = read(one, two, limit=2)
    assert pairs["chosen"].to_list() == ["a", "f", "h"]
    assert dropped.rows() == [("one.jsonl", 2, "empty_response", "chosen is ''")]


def test_a_missing_column(tmp_path: Path):
    with pytest.raises(
        UserError, match=r"f\.jsonl:1: no column 'rejected'\. Hint: the columns here are \['chosen'\]"
    ):
        read(write(tmp_path / "f.jsonl", {"chosen": "\n\nHuman: a\n\nAssistant: b"}))


def test_only_json_lines(tmp_path: Path):
    (tmp_path / "f.csv").write_text("chosen,rejected\n")
    with pytest.raises(UserError, match=r"unknown suffix '\.csv'"):
        read(tmp_path / "f.csv")


@pytest.mark.skipif(
    not POINTER.exists(), reason=f"no {POINTER.name}: set RM_MEMORIZATION_DATA to the folder of test data"
)
def test_the_pointer_that_poses_as_a_gzip_file(tmp_path: Path):
    path = tmp_path / POINTER.stem
    path.write_bytes(POINTER.read_bytes())
    with pytest.raises(UserError, match=r"helpful-base\.test\.jsonl\.gz: a Git LFS pointer, not the data"):
        read(path)


@pytest.mark.skipif(
    not REAL.exists(), reason=f"no {REAL.name}: set RM_MEMORIZATION_DATA to the folder of test data"
)
def test_the_real_file():
    pairs, dropped = read(REAL)
    assert (pairs.height, pairs["unit_id"].n_unique(), dropped.height) == (2299, 2297, 13)
    reasons = {reason: [] for reason in dropped["reason"]}
    for line, reason in dropped.select("source_row", "reason").iter_rows():
        reasons[reason].append(line)
    # Found by reading: an assistant's turn right after another one's in both transcripts (668 to 1850) or in one of them.
    assert reasons == {
        "empty_response": [87, 517, 926, 1104],
        "roles_not_alternating": [668, 764, 1320, 1850],
        "different_prompts": [1255, 1689, 1951, 1953, 2037],
    }
    # Replies in which the assistant wrote the human's part stay: they are what was judged.
    assert [pairs[name].str.starts_with("Human:").sum() for name in ("chosen", "rejected")] == [16, 16]
