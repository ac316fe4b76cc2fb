"""aggregate_cm: tables of all runs come together, or the first that does not fit is named."""

import math

import numpy as np
import polars as pl
import pytest

from rm_memorization import artifact, tables
from rm_memorization.errors import UserError
from rm_memorization.stages.aggregate_cm import aggregate_cm, by_unit

RUNS = ["r01", "r02", "r03", "r04", "r05"]
UNITS = {"u": ["u1", "u2", "u3"], "v": ["v1", "v2"], "w": ["w1", "w2"]}
HELD_OUT = {"u": {"r01", "r02"}, "v": {"r03", "r04"}, "w": {"r05", "r01"}}
PAIRS = [pair for pairs in UNITS.values() for pair in pairs]
OUT = ("memorization", "memorization_users", "summary")


def margin(pair, run):
    return math.sin(3 * PAIRS.index(pair) + 5 * RUNS.index(run)) * 2


class Tables:
    """The input tables, each of which a test can change before it is written."""

    def __init__(self, folder):
        self.folder = folder
        self.pairs = pl.DataFrame(
            {
                "pair_id": PAIRS,
                "unit_id": [unit for unit, pairs in UNITS.items() for _ in pairs],
                "user_id": [unit for unit, pairs in UNITS.items() for _ in pairs],
                "stratum": ["a", "a", "a", "a", "b", "b", "b"],
                "prompt": [[{"role": "user", "content": "Hello"}]] * 7,
                "chosen": ["yes"] * 7,
                "rejected": ["no"] * 7,
                "source_file": ["pairs.jsonl"] * 7,
                "source_row": range(1, 8),
                "extra": ["{}"] * 7,
            }
        )
        self.dropped = [("pairs.jsonl", 12, "overlong", "long"), ("pairs.jsonl", 11, "same_reply", "")]
        self.scores = {run: {pair: margin(pair, run) for pair in PAIRS} for run in RUNS}
        self.manifest = {
            run: [pair for unit, pairs in UNITS.items() if run not in HELD_OUT[unit] for pair in pairs]
            for run in RUNS
        }
        self.trained = {run: list(pairs) for run, pairs in self.manifest.items()}
        self.order = list(RUNS)

    def path(self, stage, run):
        return self.folder / stage / f"{run}.parquet"

    def write(self):
        artifact.write(self.pairs, tables.PAIRS, self.folder / "pairs.parquet")
        ledger = pl.DataFrame(self.dropped, schema=list(tables.DROPPED.columns), orient="row")
        artifact.write(ledger, tables.DROPPED, self.folder / "dropped.parquet")
        unit = {pair: unit for unit, pairs in UNITS.items() for pair in pairs}
        for run in RUNS:
            margins = self.scores[run]
            rewards = {"reward_chosen": list(margins.values()), "reward_rejected": [0.0] * len(margins)}
            scores = pl.DataFrame({"pair_id": list(margins), **rewards}).cast(
                dict.fromkeys(rewards, pl.Float32)
            )
            artifact.write(scores, tables.SCORES, self.path("scores", run))
            listed = self.manifest[run]
            manifest = {
                "unit_id": [unit.get(p, "x") for p in listed],
                "pair_id": listed,
                "token_hash": ["0"] * len(listed),
            }
            artifact.write(pl.DataFrame(manifest), tables.MANIFEST, self.path("manifest", run))
            fed = pl.DataFrame({"pair_id": self.trained[run], "seen": [3] * len(self.trained[run])})
            artifact.write(fed, tables.TRAINED, self.path("trained", run))

    def aggregate(self, **changes):
        self.write()
        options = {
            stage: [self.path(stage, run) for run in self.order]
            for stage in ("scores", "manifest", "trained")
        }
        options |= {
            "run": self.order,
            "dropped": [self.folder / "dropped.parquet"],
            "resamples": 100,
            "seed": 1,
        }
        out = {name: self.folder / f"{name}.parquet" for name in OUT}
        aggregate_cm(self.folder / "pairs.parquet", **options | changes, **out)
        return [artifact.read(path, tables.CONTRACTS[name]) for name, path in out.items()]


@pytest.fixture
def given(tmp_path):
    return Tables(tmp_path)


def sigmoid(x):
    return 1 / (1 + math.exp(-float(np.float32(x))))


def test_by_hand(given):
    memorization, users, summary = given.aggregate()
    assert memorization["pair_id"].to_list() == sorted(PAIRS)
    for row in memorization.iter_rows(named=True):
        out = HELD_OUT[row["unit_id"]]
        inside = [sigmoid(margin(row["pair_id"], run)) for run in RUNS if run not in out]
        outside = [sigmoid(margin(row["pair_id"], run)) for run in out]
        assert (row["n_in"], row["n_out"], row["reason"]) == (3, 2, None)
        assert row["tm"] == pytest.approx(np.mean(inside), abs=1e-12)
        assert row["tg"] == pytest.approx(np.mean(outside), abs=1e-12)
        assert row["cm"] == pytest.approx(row["tm"] - row["tg"], abs=1e-12)
    for row in users.iter_rows(named=True):
        own = memorization.filter(unit_id=row["unit_id"])
        assert (row["user_id"], row["pairs"]) == (row["unit_id"], own.height)
        assert [row[name] for name in ("tm", "tg", "cm")] == pytest.approx(
            own.select("tm", "tg", "cm").mean().row(0)
        )
    assert dict(users.select("unit_id", "stratum").iter_rows()) == {"u": "a", "v": None, "w": "b"}
    values = {
        (stratum, metric): value
        for stratum, metric, value in summary.select("stratum", "metric", "estimate").iter_rows()
    }
    assert values["all", "cm"] == pytest.approx(memorization["cm"].mean())
    assert values["a - b", "cm"] == pytest.approx(values["a", "cm"] - values["b", "cm"])
    assert (values["all", "pairs"], values["all", "dropped:overlong"]) == (7, 1)


def test_a_run_that_trained_on_a_part_of_a_unit_says_nothing_about_the_rest(given):
    given.manifest["r03"].remove("u2")
    given.trained["r03"].remove("u2")
    memorization, *_ = given.aggregate()
    counts = {
        pair: (n_in, n_out)
        for pair, n_in, n_out in memorization.select("pair_id", "n_in", "n_out").iter_rows()
    }
    assert (counts["u1"], counts["u2"], counts["u3"]) == ((3, 2), (2, 2), (3, 2))


def test_the_order_of_the_runs_changes_not_one_byte(given):
    given.aggregate()
    before = [(given.folder / f"{name}.parquet").read_bytes() for name in OUT]
    given.order = ["r04", "r01", "r05", "r03", "r02"]
    given.aggregate()
    assert [(given.folder / f"{name}.parquet").read_bytes() for name in OUT] == before


def test_a_withdrawn_unit_is_held_out_of_every_run(given):
    for run in RUNS:
        given.manifest[run] = given.trained[run] = [pair for pair in given.manifest[run] if pair[0] != "w"]
    memorization, users, summary = given.aggregate()
    row = memorization.row(by_predicate=pl.col("pair_id") == "w1", named=True)
    assert (row["n_in"], row["n_out"], row["cm"], row["reason"]) == (0, 5, None, "fewer_than_2_runs_in")
    assert row["tg"] == pytest.approx(np.mean([sigmoid(margin("w1", run)) for run in RUNS]))
    assert users.filter(unit_id="w").select("pairs", "tm", "tg", "cm").rows() == [(0, None, None, None)]
    counted = summary.filter(metric="without_cm:fewer_than_2_runs_in")
    assert counted["estimate"].to_list() == [2.0]


def test_no_cm_at_all(given):
    given.order = ["r01", "r03", "r05"]
    memorization, _, summary = given.aggregate()
    assert memorization["cm"].null_count() == 7
    assert summary.filter(metric="cm")["reason"].unique().to_list() == ["no_pairs"]


def leave_out(pairs, *names):
    return [pair for pair in pairs if pair not in names]


def refused(given, message, **changes):
    with pytest.raises(UserError, match=message):
        given.aggregate(**changes)
    assert not any((given.folder / f"{name}.parquet").exists() for name in OUT)


def test_runs_that_scored_different_pairs(given):
    del given.scores["r04"]["v1"]
    del given.scores["r04"]["u3"]
    refused(
        given,
        r"scores/r04.parquet: 2 pairs, 'u3' the first, are scored here or in .*scores/r01.parquet, not in both",
    )


def test_a_scored_pair_that_nobody_knows(given):
    given.pairs = given.pairs.filter(~pl.col("pair_id").is_in(["w1", "v2"]))
    refused(
        given, r"scores/r01.parquet: 2 pairs, 'v2' the first, are scored but not among the pairs.*tokenize"
    )


def test_a_pair_that_was_lost_on_the_way(given):
    for run in RUNS:
        for name in ("u2", "u1"):
            del given.scores[run][name]
    refused(given, r"scores/r01.parquet: 2 pairs, 'u1' the first, are neither scored nor in a ledger")
    given.dropped += [("pairs.jsonl", 1, "overlong", ""), ("pairs.jsonl", 2, "overlong", "")]
    for run in RUNS:
        given.manifest[run] = given.trained[run] = leave_out(given.manifest[run], "u1", "u2")
    assert given.aggregate()[0]["pair_id"].to_list() == ["u3", "v1", "v2", "w1", "w2"]


def test_a_trainer_that_was_fed_other_pairs_than_the_manifests(given):
    given.trained["r03"] = [*leave_out(given.trained["r03"], "u2", "w1"), "v1"]
    message = r"trained/r03.parquet: 3 pairs, 'u2' the first, differ from those of .*manifest/r03.parquet.*run train_rm again"
    refused(given, message)


def test_a_pair_that_was_trained_on_and_not_scored(given):
    for listed in (given.manifest, given.trained):
        listed["r02"] = [*listed["r02"], "x9", "x1"]
    refused(
        given,
        r"manifest/r02.parquet: 2 pairs, 'x1' the first, are trained on but not scored.*run score again",
    )


@pytest.mark.parametrize("option", ["scores", "manifest", "trained"])
def test_tables_and_runs_that_do_not_match(given, option):
    paths = [given.path(option, run) for run in RUNS]
    refused(given, f"--{option}: 4 tables for 5 runs", **{option: paths[:4]})
    refused(given, f"--{option}: 6 tables for 5 runs", **{option: [*paths, paths[0]]})


def test_a_run_named_twice(given):
    given.order = ["r01", "r02", "r02"]
    refused(given, "a run stands twice")


def test_one_run(given):
    given.order = ["r01"]
    refused(given, "--run: 1 run. CM compares runs")


def test_tables_of_the_wrong_kind(given):
    manifests = [given.path("manifest", run) for run in RUNS]
    refused(given, "contract manifest v1, expected trained v1", trained=manifests)


def test_by_unit_leaves_out_pairs_without_cm_and_names_only_what_is_one():
    results = pl.DataFrame(
        {
            "pair_id": ["4", "1", "3", "2"],
            "unit_id": ["prompt", "prompt", "other", "prompt"],
            "user_id": ["ann", "bob", None, "ann"],
            "stratum": ["s", "s", "t", "s"],
            "tm": [0.9, 0.7, None, 0.1],
            "tg": [0.2, 0.4, 0.5, None],
            "cm": [0.7, 0.3, None, None],
        }
    )
    expected = [("other", None, "t", 0, None, None, None), ("prompt", None, "s", 2, 0.8, 0.3, 0.5)]
    for frame in (results, results.reverse()):
        found = by_unit(frame).select(list(tables.MEMORIZATION_USERS.columns)).rows()
        assert found == [expected[0], pytest.approx(expected[1])]


def test_of_a_trained_experiment(experiment, tmp_path):
    """Both ways of training stand for runs that trained on the same pairs: TM is there, CM has a reason."""
    from tiny_experiment import scored

    names, data = ["full", "lora"], experiment.data
    paths = [tmp_path / f"{name}_scores.parquet" for name in names]
    for name, path in zip(names, paths, strict=True):
        scored(experiment, getattr(experiment, name), path)
    out = {name: tmp_path / f"{name}.parquet" for name in OUT}
    trained = [getattr(experiment, name).trained for name in names]
    manifest = [data.manifest, data.manifest]
    inputs = {
        "run": names,
        "scores": paths,
        "manifest": manifest,
        "trained": trained,
        "dropped": [experiment.dropped],
    }
    aggregate_cm(experiment.pairs, **inputs, **out, resamples=100, seed=1)
    memorization = artifact.read(out["memorization"], tables.MEMORIZATION)
    included = memorization["pair_id"].is_in(
        artifact.read(data.manifest, tables.MANIFEST)["pair_id"].implode()
    )
    assert memorization.filter(included).select("n_in", "n_out").unique().rows() == [(2, 0)]
    assert memorization.filter(~included).select("n_in", "n_out").unique().rows() == [(0, 2)]
    assert memorization["cm"].null_count() == memorization.height == 32
