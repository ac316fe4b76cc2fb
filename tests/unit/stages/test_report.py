"""The report as a whole."""

import re
import shutil

import pytest
from fake_findings import RUNS, findings

from rm_memorization import artifact, tables
from rm_memorization.errors import UserError
from rm_memorization.figure_names import FIGURES
from rm_memorization.figures import PLOTS
from rm_memorization.record import recorded
from rm_memorization.stages.report import report, write_provenance

ONE_TABLE = ("memorization", "memorization_users", "summary", "certificate")
AUDITS = ("audit_length", "audit_factorial", "audit_refusal")


def experiment(root, found):
    """Write an experiment's tables and one run record; gives the arguments of `report`."""
    paths = {name: root / f"{name}.parquet" for name in (*ONE_TABLE, *AUDITS, "pairs", "dropped")}
    with recorded("aggregate_cm", root / "run_records" / "aggregate_cm.json"):
        for name, path in paths.items():
            artifact.write(
                getattr(found, name), tables.AUDIT if name in AUDITS else getattr(tables, name.upper()), path
            )
    logs = [root / run / "training_log.parquet" for run in RUNS]
    for run, path in zip(RUNS, logs, strict=True):
        artifact.write(found.training_logs[run], tables.TRAINING_LOG, path)
    return {
        **paths, "dropped": [paths["dropped"]] * 2, "run": RUNS, "training_log": logs, "records": root / "run_records",
        "folder": root / "report", "name": "prism-1b", "top": 2, "record": root / "run_records" / "report.json",
    }  # fmt: skip


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    root = tmp_path_factory.mktemp("results")
    arguments = experiment(root, findings())
    report(**arguments)
    return arguments


def test_all_files_are_there(built):
    expected = {f"{name}.{end}" for name in FIGURES for end in ("svg", "parquet")}
    expected |= {"index.html", "provenance.html", "provenance.parquet"}
    assert {path.name for path in built["folder"].iterdir()} == expected
    for name in FIGURES:
        artifact.read(built["folder"] / f"{name}.parquet", PLOTS[name].contract)


def test_a_second_build_gives_equal_bytes_but_for_provenance(built, tmp_path):
    again = tmp_path / "again"
    shutil.copytree(built["folder"].parent, again, ignore=shutil.ignore_patterns("report"))
    report(
        **built
        | {
            "folder": again / "report",
            "records": again / "run_records",
            "record": again / "run_records" / "report.json",
        }
    )
    for path in sorted((again / "report").iterdir()):
        if not path.name.startswith("provenance"):
            assert path.read_bytes() == (built["folder"] / path.name).read_bytes(), path.name


def test_the_job_itself_is_no_row_of_its_own_provenance(built, tmp_path):
    assert built["record"].is_file()
    write_provenance("prism-1b", built["records"].parent, tmp_path)
    jobs = artifact.read(tmp_path / "provenance.parquet", tables.PROVENANCE)
    assert jobs["stage"].to_list() == ["aggregate_cm"]


def test_nothing_comes_from_elsewhere(built):
    for page in ("index.html", "provenance.html"):
        html = (built["folder"] / page).read_text(encoding="utf-8")
        assert not re.search(r"<(script|link|iframe|object|embed|base)\b|\bon\w+=|@import|javascript:", html)
        links = re.findall(r"""(?:href|src|action)=["']([^"']*)["']|url\(([^)]*)\)""", html)
        for link in {one or other for one, other in links}:
            assert link.startswith(("#", "data:image/png;base64,")) or (built["folder"] / link).is_file(), (
                link
            )


def test_ids_are_unique_and_references_lead_somewhere(built):
    html = (built["folder"] / "index.html").read_text(encoding="utf-8")
    ids = re.findall(r'\bid="([^"]*)"', html)
    assert len(ids) == len(set(ids))
    assert {one or other for one, other in re.findall(r'href="#([^"]*)"|url\(#([^)]*)\)', html)} <= set(ids)
    assert html.count("<svg ") == len(FIGURES)


def test_ledgers_are_taken_together(built):
    html = (built["folder"] / "index.html").read_text(encoding="utf-8")
    assert re.search(r"too_long</code></th><td class=\"number\">4<", html)


def test_runs_and_logs_must_match(built, tmp_path):
    with pytest.raises(UserError, match="9 tables for 10 runs"):
        report(**built | {"training_log": built["training_log"][:9], "folder": tmp_path, "record": None})
