"""The stage that turns pairs into token ids: every pair is kept whole or refused with a reason."""

import json

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from model_folders import BOS, EOS, TEMPLATE, pairs_table, save_backbone
from typer.testing import CliRunner

from rm_memorization import artifact, tables
from rm_memorization.backbone_files import checked_files
from rm_memorization.cli import app
from rm_memorization.errors import UserError
from rm_memorization.formatting import Formatter
from rm_memorization.stages.tokenize import tokenize, tokenize_pairs

TRIMS = TEMPLATE.replace("m.content", "m.content.strip()")
ALTERNATES = "{% if messages[0].role != 'system' %}{{ raise_exception('no system message') }}{% endif %}"
ROWS = [
    ("u1", "hello", "yes", "no"),
    ("u1", "hello", "the quick brown fox", "the quick brown dog"),
    ("u2", f"what is {EOS}?", "yes", "no"),
    ("u2", "hello", "yes", "say <|assistant|> no"),
    ("u3", "hello", "word " * 60, "no"),
    ("u3", "hello", "same words", " same words "),
]


@pytest.fixture(scope="module")
def backbone(tmp_path_factory):
    return save_backbone(tmp_path_factory.mktemp("backbone") / "backbone.parquet", TRIMS)


@pytest.fixture(scope="module")
def formatter(backbone):
    return Formatter(checked_files(backbone))


def test_reasons(formatter):
    kept, refused = tokenize_pairs(pairs_table(ROWS), formatter, max_length=60)
    assert kept["pair_id"].to_list() == ["p1", "p2"]
    assert refused.select("source_row", "reason").rows() == [
        (3, "special_token_in_text"),
        (4, "special_token_in_text"),
        (5, "overlong"),
        (6, "identical_tokens"),
    ]
    details = refused["detail"].to_list()
    assert details[0] == f"pair p3 holds {EOS!r}"
    assert details[1] == "pair p4 holds '<|assistant|>'"
    assert details[2].startswith("pair p5 has ")
    assert details[2].endswith(" tokens, max_length is 60")
    assert details[3] == "the replies of pair p6 differ in text but not in tokens"


def test_a_pair_s_tokens_are_what_the_template_writes(formatter):
    row = tokenize_pairs(pairs_table(ROWS), formatter, 60)[0].row(1, named=True)
    decode = formatter.tokenizer.decode
    head = f"{BOS}<|user|>hello{EOS}<|assistant|>"
    assert decode(row["prefix_ids"] + row["chosen_ids"]) == f"{head}the quick brown fox{EOS}"
    assert decode(row["prefix_ids"] + row["rejected_ids"]) == f"{head}the quick brown dog{EOS}"
    assert decode(row["prefix_ids"][: row["n_prompt"]]) == head
    assert decode(row["prefix_ids"]) == f"{head}the quick brown"


def test_the_limit_itself_is_not_too_long(formatter):
    kept, _ = tokenize_pairs(pairs_table(ROWS[:2]), formatter, 1000)
    longest = max(
        len(row["prefix_ids"]) + max(len(row["chosen_ids"]), len(row["rejected_ids"]))
        for row in kept.iter_rows(named=True)
    )
    assert tokenize_pairs(pairs_table(ROWS[:2]), formatter, longest)[0].height == 2
    assert tokenize_pairs(pairs_table(ROWS[:2]), formatter, longest - 1)[1]["reason"].to_list() == [
        "overlong"
    ]


def test_a_long_rejected_reply_is_refused_as_well(formatter):
    rows = [("u", "hello", "yes", "word " * 60)]
    assert tokenize_pairs(pairs_table(rows), formatter, 60)[1]["reason"].to_list() == ["overlong"]


TEXT = st.text(alphabet=st.sampled_from("ab <|user|>/s\n0é"), min_size=1, max_size=10).filter(str.strip)


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(["u", "v"]), TEXT, TEXT, TEXT), min_size=1, max_size=6),
    st.integers(2, 30),
)
def test_every_pair_is_kept_whole_or_refused(formatter, rows, max_length):
    pairs = pairs_table(rows)
    kept, refused = tokenize_pairs(pairs, formatter, max_length)
    assert kept.height + refused.height == pairs.height
    assert sorted([*kept["pair_id"], *(f"p{row}" for row in refused["source_row"])]) == sorted(
        pairs["pair_id"]
    )
    for row in kept.iter_rows(named=True):
        _, prompt, chosen, rejected = rows[int(row["pair_id"][1:]) - 1]
        head = f"{BOS}<|user|>{prompt.strip()}{EOS}<|assistant|>"
        for side, reply in (("chosen_ids", chosen), ("rejected_ids", rejected)):
            ids = row["prefix_ids"] + row[side]
            assert formatter.tokenizer.decode(ids) == f"{head}{reply.strip()}{EOS}"
            assert len(ids) <= max_length
            assert row[side]


def test_equal_tokens_have_equal_hashes_whoever_the_user_is(formatter):
    rows = [
        ("u1", "hi", "a", "b"),
        ("u2", "hi", "a", "b"),
        ("u1", "hi ", "a ", "b"),
        ("u1", "hi", "b", "a"),
        ("u1", "ho", "a", "b"),
    ]
    kept, _ = tokenize_pairs(pairs_table(rows), formatter, 60)
    hashes = kept["token_hash"].to_list()
    assert hashes[0] == hashes[1] == hashes[2]
    assert len(set(hashes)) == 3


def files(folder):
    return folder / "tokens.parquet", folder / "dropped.parquet"


def test_the_tables_and_the_counts(tmp_path, backbone, capsys):
    artifact.write(pairs_table(ROWS), tables.PAIRS, tmp_path / "pairs.parquet")
    record = tmp_path / "run_records" / "tokenize.json"
    tokenize(tmp_path / "pairs.parquet", backbone, *files(tmp_path), max_length=60, record=record)
    tokens, dropped = (
        artifact.read(*pair) for pair in zip(files(tmp_path), (tables.TOKENIZED, tables.DROPPED), strict=True)
    )
    assert (tokens.height, dropped.height) == (2, 4)
    assert capsys.readouterr().out.splitlines() == [
        "2 pairs kept, 4 refused",
        "  identical_tokens: 1",
        "  overlong: 1",
        "  special_token_in_text: 2",
    ]
    content = json.loads(record.read_text())
    assert content["params"] == {"max_length": 60}
    assert sorted(content["outputs"]) == ["dropped.parquet", "tokens.parquet"]
    assert sorted(content["inputs"]) == ["pairs.parquet", "source:backbone.parquet"]


def test_the_order_of_the_pairs_does_not_matter(tmp_path, backbone):
    hashes = []
    for frame in (pairs_table(ROWS), pairs_table(ROWS)[::-1]):
        artifact.write(frame, tables.PAIRS, tmp_path / "pairs.parquet")
        tokenize(tmp_path / "pairs.parquet", backbone, *files(tmp_path), max_length=60)
        hashes.append([path.read_bytes() for path in files(tmp_path)])
    assert hashes[0] == hashes[1]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (ROWS[4:5], "all 1 pairs are refused (overlong 1). Hint: raise tokenize.max_length"),
        (
            ROWS[2:6],
            "all 4 pairs are refused (identical_tokens 1, overlong 1, special_token_in_text 2). Hint: raise",
        ),
        (ROWS[5:], "all 1 pairs are refused (identical_tokens 1)"),
    ],
)
def test_nothing_left(tmp_path, backbone, rows, message):
    artifact.write(pairs_table(rows), tables.PAIRS, tmp_path / "pairs.parquet")
    with pytest.raises(UserError) as caught:
        tokenize(tmp_path / "pairs.parquet", backbone, *files(tmp_path), max_length=60)
    assert message in str(caught.value)
    assert ("Hint" in str(caught.value)) == ("overlong" in message)
    assert not any(path.exists() for path in files(tmp_path))


def test_a_template_that_does_not_take_the_roles_names_the_pair(tmp_path):
    formatter = Formatter(checked_files(save_backbone(tmp_path / "backbone.parquet", ALTERNATES)))
    with pytest.raises(UserError, match=r"pair p1: the chat template fails: no system message\."):
        tokenize_pairs(pairs_table(ROWS), formatter, 60)


def test_a_backbone_that_was_changed_is_not_used(tmp_path):
    table = save_backbone(tmp_path / "backbone" / "backbone.parquet")
    (table.parent / "files" / "tokenizer.json").write_text("{}")
    artifact.write(pairs_table(ROWS), tables.PAIRS, tmp_path / "pairs.parquet")
    with pytest.raises(
        UserError, match=r"tokenizer\.json: the backbone's file is not the one that was listed"
    ):
        tokenize(tmp_path / "pairs.parquet", table, *files(tmp_path), max_length=60)


def test_the_command(tmp_path, backbone):
    artifact.write(pairs_table(ROWS), tables.PAIRS, tmp_path / "pairs.parquet")
    tokens, dropped = files(tmp_path)
    options = {
        "--pairs": tmp_path / "pairs.parquet",
        "--backbone": backbone,
        "--tokens": tokens,
        "--dropped": dropped,
        "--max-length": 60,
    }
    done = CliRunner().invoke(
        app, ["tokenize", *(str(part) for option in options.items() for part in option)]
    )
    assert done.exit_code == 0, done.output
    assert artifact.read(tokens, tables.TOKENIZED).select(pl.len()).item() == 2
