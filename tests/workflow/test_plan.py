"""What would run: job counts of the shipped configs, the cluster profile, the lint."""

import re

import pytest

PAPER = {
    "prism": (25, "data/prism_pairs.parquet"),
    "prism_ten_epochs": (25, "data/prism_pairs.parquet"),
    "prism_3b": (10, "data/prism_pairs.parquet"),
    "community_alignment": (25, "data/community_alignment_pairs.parquet"),
}
PER_RUN = ("manifest", "sft", "train_rm", "score", "score_panels")
ONCE = (
    "ingest",
    "backbone",
    "tokenize",
    "split",
    "aggregate_cm",
    "audit_length",
    "audit_factorial",
    "audit_refusal",
    "report",
)


def planned(done) -> dict[str, int]:
    """Jobs by rule in a dry-run."""
    return {
        rule: int(count)
        for rule, count in re.findall(r"^(\w+) +(\d+)$", done.stdout + done.stderr, re.MULTILINE)
    }


@pytest.mark.parametrize("name", PAPER)
def test_the_papers_experiments_plan_their_jobs(checkout, name):
    runs, source = PAPER[name]
    (checkout.folder / "data").mkdir()
    (checkout.folder / source).touch()
    jobs = planned(checkout.snakemake("-n", "all", "--quiet", "rules", config=f"config/paper/{name}.yaml"))
    assert {rule: jobs[rule] for rule in PER_RUN} == dict.fromkeys(PER_RUN, runs)
    assert {rule: jobs[rule] for rule in ONCE} == dict.fromkeys(ONCE, 1)
    assert jobs["total"] == 5 * runs + len(ONCE) + 1


def test_the_command_of_the_readme_takes_the_cluster_profile(checkout):
    done = checkout.call("snakemake", "--profile", "a100", "all", "-n", "--quiet", "rules")
    assert done.returncode == 0, done.stdout + done.stderr
    assert planned(done)["train_rm"] == 10


def test_nothing_of_the_default_leaks_into_another_experiment(checkout):
    done = checkout.snakemake("-n", "all")
    assert "results/planted" not in done.stdout + done.stderr
    assert planned(done)["train_rm"] == 4


def test_a_second_file_refines_the_first(checkout):
    (checkout.folder / "more.yaml").write_text("{name: more, split: {runs: 6}}")
    done = checkout.call(
        "snakemake", "-n", "all", "--quiet", "rules", "--configfile", "config/small.yaml", "more.yaml"
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert planned(done)["train_rm"] == 6


def test_the_command_line_changes_what_is_text(checkout):
    done = checkout.call(
        "snakemake", "-n", "all", "--configfile", "config/small.yaml", "--config", "name=other"
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "results/other/" in done.stdout + done.stderr


def test_a_number_inside_braces_on_the_command_line_is_explained(checkout):
    done = checkout.call(
        "snakemake", "-n", "all", "--configfile", "config/small.yaml", "--config", 'split={"runs": 6}'
    )
    assert done.returncode == 1
    assert "split.runs: '6' (str)" in done.stdout + done.stderr
    assert "second --configfile" in done.stdout + done.stderr


def test_lint_finds_nothing(checkout):
    done = checkout.call("snakemake", "--lint")
    assert done.returncode == 0, done.stdout + done.stderr
