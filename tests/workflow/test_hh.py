"""The real HH-RLHF harmless file, a fixed part of it, by way of LoRA."""

import json

import pytest
from checkout import Checkout

from rm_memorization import artifact, tables

pytestmark = pytest.mark.slow

ROWS = 240


@pytest.fixture(scope="module")
def hh(tmp_path_factory, data):
    checkout = Checkout(tmp_path_factory.mktemp("hh"))
    source = {"files": [str(data / "hh_rlhf" / "harmless-base.test.jsonl.gz")], "limit": ROWS}
    part = {"ingest": {"hh_rlhf": source}, "split": {"runs": 4}}
    (checkout.folder / "part.yaml").write_text(json.dumps(part))
    done = checkout.call(
        "snakemake", "all", "--cores", "2", "--configfile", "config/hh_harmless.yaml", "part.yaml"
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return checkout.folder / "results" / "hh_harmless"


def test_rows_are_kept_or_in_a_ledger(hh):
    pairs = artifact.read(hh / "ingest" / "pairs.parquet", tables.PAIRS)
    refused = artifact.read(hh / "ingest" / "dropped.parquet", tables.DROPPED)
    assert pairs.height + refused.height == ROWS
    assert dict(refused.select("source_row", "reason").iter_rows()) == {87: "empty_response"}
    tokens = artifact.read(hh / "tokenize" / "tokens.parquet", tables.TOKENIZED)
    overlong = artifact.read(hh / "tokenize" / "dropped.parquet", tables.DROPPED)
    assert tokens.height + overlong.height == pairs.height
    assert set(overlong["reason"]) <= {"overlong", "special_token_in_text"}


def test_every_kept_pair_has_tm_tg_and_cm(hh):
    tokens = artifact.read(hh / "tokenize" / "tokens.parquet", tables.TOKENIZED)
    found = artifact.read(hh / "aggregate_cm" / "memorization.parquet", tables.MEMORIZATION)
    assert found["pair_id"].equals(tokens["pair_id"])
    assert found.select("tm", "tg", "cm").null_count().row(0) == (0, 0, 0)
    assert found["user_id"].null_count() == found.height, "HH names no users: prompts are held out"


def test_the_weights_are_adapters(hh):
    weights = artifact.read(hh / "train_rm" / "r01" / "weights.parquet", tables.WEIGHTS)
    names = set(weights["tensor"])
    assert "score.weight" in names
    assert all("lora_" in name for name in names - {"score.weight"})
