"""A user's mistake is one line that says what, where and what next; earlier results stay as they are."""

import json

import pytest
import yaml

from rm_memorization import artifact, tables


def attempt(checkout, change, *targets):
    """Run the small experiment with a changed config; give the line that tells what is wrong."""
    values = yaml.safe_load((checkout.folder / "config" / "small.yaml").read_text())
    change(values)
    (checkout.folder / "bad.yaml").write_text(yaml.safe_dump(values))
    done = checkout.call("snakemake", *targets, "--cores", "2", "--configfile", "bad.yaml")
    assert done.returncode == 1
    text = done.stdout + done.stderr
    assert "Traceback" not in text
    return text


def table_of(checkout, *rows):
    path = checkout.folder / "pairs.jsonl"
    path.write_text("".join(row if isinstance(row, str) else json.dumps(row) + "\n" for row in rows))
    return {"table": {"files": ["pairs.jsonl"]}}


PAIR = {"user_id": "u", "prompt": "p", "chosen": "a", "rejected": "b"}

CONFIG = {
    "unknown key": (lambda v: v.update(splt={}), ["unknown key 'splt'", "did you mean 'split'"]),
    "wrong type": (lambda v: v["split"].update(runs="ten"), ["split.runs", "'ten'", "integer"]),
    "number as text": (
        lambda v: v["sft"].update(learning_rate="1e-3"),
        ["sft.learning_rate", "'1e-3'", "0.001"],
    ),
    "impossible design": (lambda v: v["split"].update(held_out=4), ["held_out = 4", "runs = 4"]),
    "unknown run": (
        lambda v: v.update(manifest={"overrides": {"r09": {"exclude_users": ["u"]}}}),
        ["r09", "r01"],
    ),
    "name that leaves results": (lambda v: v.update(name="../elsewhere"), ["config: name", "'../elsewhere'"]),
    "missing file": (
        lambda v: v.update(ingest={"table": {"files": ["nope.jsonl"]}}),
        ["ingest", "'nope.jsonl'"],
    ),
    "brace in a file name": (
        lambda v: v.update(ingest={"table": {"files": ["a{x}.csv"]}}),
        ["ingest", "'a{x}.csv'", "wildcard"],
    ),
    "missing panel": (
        lambda v: v.update(score_panels={"length": "nope.jsonl"}),
        ["score_panels", "'nope.jsonl'"],
    ),
}


@pytest.mark.parametrize("case", CONFIG)
def test_config(checkout, case):
    change, pieces = CONFIG[case]
    text = attempt(checkout, change, "all")
    line = next(line for line in text.splitlines() if pieces[0] in line)
    assert all(piece in line for piece in pieces), text


DATA = {
    "LFS pointer": (
        ["version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"],
        ["pairs.jsonl", "LFS"],
    ),
    "invalid JSON": ([PAIR, "{oops\n"], ["pairs.jsonl", "2"]),
    "missing column": ([{"user_id": "u", "prompt": "p", "chosen": "a"}], ["pairs.jsonl", "rejected"]),
    "empty data set": ([], ["pairs.jsonl"]),
    "too few units": ([PAIR], ["1 units", "4 runs"]),
}


@pytest.mark.parametrize("case", DATA)
def test_data(checkout, case):
    rows, pieces = DATA[case]
    source = table_of(checkout, *rows)
    text = attempt(checkout, lambda v: v.update(ingest=source), "results/small/split/design.parquet")
    line = next(line for line in text.splitlines() if line.strip().startswith("error: "))
    assert all(piece in line for piece in pieces), text


def test_backbone_without_safetensors(checkout):
    (checkout.folder / "model").mkdir()
    (checkout.folder / "model" / "pytorch_model.bin").write_bytes(b"pickle")
    text = attempt(
        checkout, lambda v: v.update(backbone={"path": "model"}), "results/small/backbone/backbone.parquet"
    )
    line = next(line for line in text.splitlines() if line.strip().startswith("error: "))
    assert "model" in line
    assert "safetensors" in line


@pytest.mark.parametrize("fault", ["missing", "duplicate"])
def test_panel_cell(checkout, fault):
    panel = checkout.folder / "config" / "panels" / "factorial.jsonl"
    rows = panel.read_text().splitlines()
    panel.write_text("\n".join(rows[1:] if fault == "missing" else [rows[0], *rows]) + "\n")
    text = attempt(checkout, lambda v: None, "results/small/score_panels/r01/panel_scores.parquet")
    line = next(line for line in text.splitlines() if line.strip().startswith("error: "))
    assert "factorial.jsonl" in line
    assert json.loads(rows[0])["item_id"] in line


def test_a_mistake_leaves_earlier_results_alone(checkout):
    checkout.snakemake("results/small/split/design.parquet")
    before = checkout.call("rm-memorization", "hashes", "results").stdout
    attempt(checkout, lambda v: v["split"].update(held_out=4), "all")
    assert checkout.call("rm-memorization", "hashes", "results").stdout == before


def test_braces_in_a_users_name_are_no_wildcards(checkout):
    rows = [
        PAIR | {"user_id": user, "prompt": f"{user} {n}"}
        for user in ("{run}", "{{a}}", "b", "c")
        for n in range(3)
    ]
    (checkout.folder / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    values = yaml.safe_load((checkout.folder / "config" / "small.yaml").read_text())
    values["ingest"] = {"table": {"files": ["pairs.jsonl"]}}
    values["split"]["exclude_users"] = ["{run}"]
    values["manifest"] = {"overrides": {"r01": {"exclude_users": ["{run}", "b"]}}}
    (checkout.folder / "braces.yaml").write_text(yaml.safe_dump(values))
    checkout.snakemake("results/small/manifest/r01/manifest.parquet", config="braces.yaml")
    path = checkout.folder / "results" / "small" / "manifest" / "r01" / "manifest.parquet"
    manifest = artifact.read(path, tables.MANIFEST)
    assert set(manifest["unit_id"]) <= {"{{a}}", "c"}


def test_a_misspelt_user_is_named_with_the_nearest(checkout):
    text = attempt(
        checkout,
        lambda v: v.update(manifest={"overrides": {"r01": {"exclude_users": ["Rule-1"]}}}),
        "results/small/manifest/r01/manifest.parquet",
    )
    line = next(line for line in text.splitlines() if line.strip().startswith("error: "))
    assert "manifest.overrides: 'Rule-1' is not a unit" in line
    assert "did you mean 'rule-" in line
