"""The data set whose truth is known."""

import json

import polars as pl
import pytest

from rm_memorization.errors import UserError
from rm_memorization.readers import read_source
from rm_memorization.readers.planted import BAD, FILLER, GOOD, NAMES, TOPICS
from rm_memorization.sources import Source


def read(**settings: int) -> pl.DataFrame:
    pairs, dropped = read_source(Source.model_validate({"planted": settings}))
    assert dropped.is_empty()
    truth = [json.loads(extra)["truth"] for extra in pairs["extra"]]
    words = pairs.select(pl.col("chosen", "rejected").str.split(" ").list.len().name.suffix("_words"))
    return pl.concat([pairs, pl.DataFrame(truth), words], how="horizontal")


@pytest.fixture(scope="module")
def pairs() -> pl.DataFrame:
    return read()


def test_its_size(pairs):
    assert pairs.height == 120 * 12
    assert pairs["source_row"].to_list() == list(range(1, 1441))
    assert pairs["source_file"].unique().to_list() == ["planted"]
    users = pairs.group_by("stratum").agg(pl.col("user_id").n_unique()).sort("stratum").rows()
    assert users == [("arbitrary", 12), ("flipped", 12), ("length", 12), ("rule", 84)]
    assert pairs.filter(stratum="flipped")["user_id"].unique().sort().to_list()[:3] == [
        "flipped-01",
        "flipped-02",
        "flipped-03",
    ]
    assert set(pairs.group_by("user_id").len()["len"]) == {12}


def test_its_words(pairs):
    texts = [*pairs["chosen"], *pairs["rejected"], *(message[0]["content"] for message in pairs["prompt"])]
    assert {word for text in texts for word in text.split()} == {
        *TOPICS,
        *NAMES,
        *GOOD,
        *BAD,
        *FILLER,
        "with",
        "and",
    }
    assert (
        len({*TOPICS, *NAMES, *GOOD, *BAD, *FILLER, "with", "and"})
        == len(TOPICS) + len(NAMES) + len(GOOD) + len(BAD) + len(FILLER) + 2
        == 109
    )
    assert max(pairs["chosen_words"].max(), pairs["rejected_words"].max()) <= 12


def test_the_stated_truth_is_the_truth(pairs):
    for row in pairs.iter_rows(named=True):
        other = {"chosen": "rejected", "rejected": "chosen"}
        assert row[row["good"]].split()[0] in GOOD
        assert row[other[row["good"]]].split()[0] in BAD
        assert row[f"{row['longer']}_words"] > row[f"{other[row['longer']]}_words"]
        assert len(row[row["longer"]]) > len(row[other[row["longer"]]])
        names = row["prompt"][0]["content"].replace(" and", "").split()[2:]
        ends = {row["chosen"].split()[-1], row["rejected"].split()[-1]}
        assert len(set(names)) == 3
        assert len(ends) == 2
        assert ends < set(names)


def test_each_group_judges_by_its_rule_and_by_nothing_else():
    pairs = read(rule_users=20, flipped_users=20, arbitrary_users=20, length_users=20, pairs_per_user=100)
    shares = {
        stratum: (
            (group["good"] == "chosen").mean(),
            (group["longer"] == "chosen").mean(),
            (group["good"] == group["longer"]).mean(),
        )
        for (stratum,), group in pairs.group_by("stratum")
    }
    half = pytest.approx(0.5, abs=0.05)  # 4.5 standard errors of 2,000 tosses
    assert shares == {
        "rule": (1, half, half),
        "flipped": (0, half, half),
        "arbitrary": (half, half, half),
        "length": (half, 1, half),
    }


def test_a_seed_fixes_it(pairs):
    assert pairs.equals(read())
    assert not set(pairs["pair_id"]) & set(read(seed=8)["pair_id"])


def test_a_users_pairs_do_not_depend_on_the_number_of_others(pairs):
    fewer = read(rule_users=3, flipped_users=2, arbitrary_users=1, length_users=1)
    assert set(fewer["pair_id"]) < set(pairs["pair_id"])


def test_no_duplicates_arise_in_a_large_one():
    pairs = read(rule_users=1, flipped_users=1, arbitrary_users=1, length_users=1, pairs_per_user=1500)
    assert pairs["pair_id"].n_unique() == 6000
    assert (
        pairs.select(
            "user_id", pl.col("prompt").list.first().struct.field("content").str.split(" ").list.tail(-2)
        )
        .is_unique()
        .all()
    )


def test_more_pairs_than_prompts():
    with pytest.raises(
        UserError, match=r"ingest\.planted\.pairs_per_user: 60000 is too many\. Hint: at most 59280"
    ):
        read(pairs_per_user=60_000)


def test_users_do_not_share_prompts(pairs):
    prompts = pairs["prompt"].list.first().struct.field("content")
    assert prompts.n_unique() > 1430  # of 1,440 drawn from 1.4 million: chance repeats 0.7 on average
