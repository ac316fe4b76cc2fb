"""The whole flow on a small experiment."""

import re
import shutil
import zipfile
from pathlib import Path

import polars as pl
import pyarrow.parquet as pq
import pytest

from rm_memorization import artifact, tables

STAGES = [
    "ingest", "backbone", "tokenize", "split", "manifest", "sft", "train_rm", "score", "score_panels", "aggregate_cm",
    "audit_length", "audit_factorial", "audit_refusal", "report",
]  # fmt: skip


def test_every_stage_leaves_tables_records_and_logs_under_its_own_name(finished):
    results = finished.folder / "results" / "small"
    for stage in STAGES:
        assert list((results / stage).rglob("*.parquet")), stage
        assert list((results / "run_records").glob(f"{stage}*.json")), stage
        assert list((results / "logs").glob(f"{stage}*.log")), stage


def test_every_parquet_file_has_a_contract_and_its_content_hash(finished):
    for path in (finished.folder / "results").rglob("*.parquet"):
        meta = artifact.footer(path)
        assert meta["content_hash"] == artifact.recompute(path), path
        if not meta["contract"].startswith("figure_"):
            artifact.read(path, tables.CONTRACTS[meta["contract"]])


def test_verify_finds_nothing(finished):
    done = finished.call("rm-memorization", "verify", "results")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "all whole" in done.stdout


def test_there_is_nothing_left_to_do(finished):
    done = finished.snakemake("-n", "all")
    assert "Nothing to be done" in done.stdout + done.stderr


def test_every_pair_is_estimated(finished):
    results = finished.folder / "results" / "small"
    found = artifact.read(results / "aggregate_cm" / "memorization.parquet", tables.MEMORIZATION)
    assert (
        found.height == artifact.read(results / "tokenize" / "tokens.parquet", tables.TOKENIZED).height == 40
    )
    assert (found["n_in"] + found["n_out"] == 4).all()
    assert found["cm"].null_count() == 0
    assert ((found["tm"] - found["tg"] - found["cm"]).abs() < 1e-12).all()


def test_the_estimates_follow_from_the_scores_by_the_definition(finished):
    results = finished.folder / "results" / "small"
    found = artifact.read(results / "aggregate_cm" / "memorization.parquet", tables.MEMORIZATION)
    row = found.row(17, named=True)
    inside, outside = [], []
    for run in ("r01", "r02", "r03", "r04"):
        scores = artifact.read(results / "score" / run / "scores.parquet", tables.SCORES)
        chosen, rejected = (
            scores.filter(pl.col("pair_id") == row["pair_id"])
            .select("reward_chosen", "reward_rejected")
            .row(0)
        )
        p = 1 / (1 + 2.718281828459045 ** (rejected - chosen))
        manifest = artifact.read(results / "manifest" / run / "manifest.parquet", tables.MANIFEST)
        (inside if row["pair_id"] in manifest["pair_id"] else outside).append(p)
    assert row["tm"] == pytest.approx(sum(inside) / len(inside), abs=1e-7)
    assert row["tg"] == pytest.approx(sum(outside) / len(outside), abs=1e-7)


def test_held_out_units_are_in_no_manifest_of_their_runs(finished):
    results = finished.folder / "results" / "small"
    design = artifact.read(results / "split" / "design.parquet", tables.DESIGN)
    for (run,), rows in design.group_by("held_out"):
        manifest = artifact.read(results / "manifest" / run / "manifest.parquet", tables.MANIFEST)
        assert set(manifest["unit_id"]).isdisjoint(rows["unit_id"])
        assert set(manifest["unit_id"]) | set(rows["unit_id"]) == set(design["unit_id"])


def test_a_second_build_gives_the_same_hashes(finished, checkout):
    checkout.snakemake("all")
    first, second = (c.call("rm-memorization", "hashes", "results").stdout for c in (finished, checkout))
    assert first == second
    assert len(first.splitlines()) > 50
    assert "provenance" not in first


def test_cold_jobs_give_the_same_hashes_as_warm_ones(finished, checkout):
    """Jobs started one by one, without the preloaded server, as on a cluster."""
    checkout.snakemake("results/small/score/r02/scores.parquet", "--no-hooks")
    cold = checkout.call("rm-memorization", "hashes", "results").stdout.splitlines()
    warm = finished.call("rm-memorization", "hashes", "results").stdout.splitlines()
    assert set(cold) < set(warm)


def test_a_changed_byte_is_found(finished, tmp_path):
    copy = tmp_path / "results"
    shutil.copytree(finished.folder / "results", copy)
    victim = copy / "small" / "score" / "r03" / "scores.parquet"
    data = bytearray(victim.read_bytes())
    data[len(data) // 3] ^= 1
    victim.write_bytes(data)
    done = finished.call("rm-memorization", "verify", str(copy))
    assert done.returncode == 1
    assert "score/r03/scores.parquet" in done.stdout
    assert "snakemake" in done.stdout


def test_the_report_is_made_offline_as_page_and_as_archive(finished):
    for name in ("report.html", "report.zip"):
        finished.snakemake("--report", name)
    page = (finished.folder / "report.html").read_text(encoding="utf-8")
    assert "memorization_map" in page
    assert zipfile.ZipFile(finished.folder / "report.zip").testzip() is None


def test_records_hold_no_absolute_path(finished):
    for path in (finished.folder / "results" / "small" / "run_records").glob("*.json"):
        assert not re.search(r'"/[^"]', path.read_text(encoding="utf-8")), path


def test_lineage_reaches_the_source(finished):
    done = finished.call("rm-memorization", "lineage", "results/small/aggregate_cm/summary.parquet")
    assert done.returncode == 0, done.stderr
    for stage in STAGES[:8]:
        assert f"{stage}" in done.stdout


def test_tables_open_with_any_parquet_reader(finished):
    table = pq.read_table(finished.folder / "results" / "small" / "aggregate_cm" / "memorization.parquet")
    assert table.num_rows == 40


def test_no_pickle_is_left(finished):
    suffixes = {path.suffix for path in Path(finished.folder, "results").rglob("*") if path.is_file()}
    assert suffixes <= {".parquet", ".json", ".log", ".svg", ".html", ".safetensors", ".jinja"}
