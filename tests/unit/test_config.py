"""The configuration: what it refuses, and in which words."""

import re
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from rm_memorization.config import Experiment, check_files, load, run_ids
from rm_memorization.errors import UserError
from rm_memorization.settings import checked
from rm_memorization.sources import BackboneSource

ROOT = Path(__file__).parents[2]
BASE = {"name": "a", "ingest": {"planted": {}}, "backbone": {"tiny": {}}}
REVISION = "0123456789abcdef0123456789abcdef01234567"


def refusal(values) -> str:
    with pytest.raises(UserError) as caught:
        load(values)
    text = str(caught.value)
    assert len(text.splitlines()) == 1
    return text


def test_the_embedded_default():
    experiment = load(yaml.safe_load((ROOT / "config" / "config.yaml").read_text()))
    assert experiment.name == "planted"
    assert experiment.runs == ["r01", "r02", "r03", "r04", "r05", "r06", "r07", "r08", "r09", "r10"]
    assert experiment.sft.lora is None


@pytest.mark.parametrize("path", sorted((ROOT / "config").rglob("*.yaml")), ids=lambda path: path.name)
def test_every_shipped_config_is_accepted(path):
    assert load(yaml.safe_load(path.read_text())).name


def test_what_a_file_leaves_out_is_the_model_s_default_and_nothing_of_the_embedded_one():
    experiment = load(BASE)
    assert (experiment.split.runs, experiment.split.held_out, experiment.split.seed) == (25, 5, 42)
    assert experiment.train_rm.epochs == 3
    assert experiment.train_rm.lora is not None
    assert experiment.tokenize.max_length == 1024
    assert experiment.manifest.overrides == {}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"splt": {}}, "config: unknown key 'splt'. Hint: did you mean 'split'?"),
        ({"split": {"run": 3}}, "config: unknown key 'split.run'. Hint: did you mean 'runs'?"),
        ({"sft": {"lora": {"rnk": 3}}}, "config: unknown key 'sft.lora.rnk'. Hint: did you mean 'rank'?"),
        (
            {"manifest": {"overrides": {"r03": {"exclude_user": ["u"]}}}},
            "config: unknown key 'manifest.overrides.r03.exclude_user'. Hint: did you mean 'exclude_users'?",
        ),
        ({"score": {"zzz": 1}}, "config: unknown key 'score.zzz'. Hint: known keys: batch_tokens"),
        ({"score": {"batch\ntokens": 1}}, "config: unknown key 'score.batch\\ntokens'. Hint: did you mean 'batch_tokens'?"),
        (
            {"split": {"runs": "3"}},
            "config: split.runs: '3' (str) is wrong: Input should be a valid integer. Hint: write it as a number, 3",
        ),
        ({"split": {"runs": 3.0}}, "config: split.runs: 3.0 (float) is wrong: Input should be a valid integer"),
        ({"split": {"runs": True}}, "config: split.runs: True (bool) is wrong: Input should be a valid integer"),
        ({"split": {"runs": 1}}, "config: split.runs: 1 (int) is wrong: Input should be greater than or equal to 2"),
        ({"split": None}, "config: split: None (NoneType) is wrong: Input should be a valid dictionary"),
        ({"sft": {"init_seed": 2**32}}, "config: sft.init_seed: 4294967296 (int) is wrong: Input should be less than"),
        ({"sft": {"learning_rate": 0}}, "config: sft.learning_rate: 0 (int) is wrong: Input should be greater than 0"),
        ({"sft": {"learning_rate": float("inf")}}, "config: sft.learning_rate: inf (float) is wrong"),
        ({"sft": {"weight_decay": float("nan")}}, "config: sft.weight_decay: nan (float) is wrong"),
        ({"sft": {"schedule": "linea"}}, "'linear', 'cosine' or 'constant'"),
        ({"split": {"exclude_users": [7]}}, 'Input should be a valid string. Hint: put it in quotes, "7"'),
        ({"split": {"exclude_users": [False]}}, "Input should be a valid string. Hint: put it in quotes"),
        ({"split": {"exclude_users": "bob"}}, "config: split.exclude_users: 'bob' (str) is wrong"),
        ({"ingest": "x" * 500}, "x… (str) is wrong"),
        ({"name": 7}, 'config: name: 7 (int) is wrong: Input should be a valid string. Hint: put it in quotes, "7"'),
        ({1: 2}, "config: 1: 1 (int) is wrong: Keys should be strings"),
        ({"compute": {"device": "cuda\n"}}, "config: compute.device: 'cuda\\n' (str) is wrong"),
        ({"ingest": {}}, "config: ingest: give exactly one of planted, hh_rlhf, table; found none"),
        ({"ingest": {"hh_rlhf": {"files": [""]}}}, "config: ingest.hh_rlhf.files.0: '' (str) is wrong"),
        ({"backbone": {"tiny": {}, "path": "x"}}, "config: backbone: give exactly one of tiny, path, hub; found tiny, path"),
        ({"backbone": {"path": ""}}, "config: backbone.path: '' (str) is wrong"),
        ({"backbone": {"hub": "a/b"}}, "config: backbone: hub and revision go together"),
        ({"backbone": {"path": "x", "revision": REVISION}}, "config: backbone: hub and revision go together"),
        ({"backbone": {"hub": "a/b", "revision": "main"}}, "config: backbone.revision: 'main' (str) is wrong"),
        ({"backbone": {"hub": "a/b", "revision": f"{REVISION}\n"}}, "config: backbone.revision"),
        ({"backbone": {"tiny": {"hidden_size": 30, "heads": 4}}}, "config: backbone.tiny: hidden_size = 30"),
        ({"backbone": {"tiny": {"hidden_size": 4, "heads": 4}}}, "config: backbone.tiny: hidden_size = 4"),
    ],
)  # fmt: skip
def test_refusals(change, message):
    assert message in refusal(BASE | change)


@pytest.mark.parametrize("split", [{"runs": 5, "held_out": 5}, {"runs": 2, "held_out": 3}, {"held_out": 25}])
def test_an_impossible_design(split):
    assert "no run trains on anybody" in refusal(BASE | {"split": split})


def test_a_misspelt_section_is_named_although_it_leaves_another_missing():
    assert refusal({"name": "a", "ingst": {}, "backbone": {"tiny": {}}}).endswith(
        "Hint: did you mean 'ingest'?"
    )


@pytest.mark.parametrize("key", ["name", "ingest", "backbone"])
def test_a_missing_section(key):
    values = {name: value for name, value in BASE.items() if name != key}
    assert refusal(values) == f"config: key {key!r} is missing. Hint: config/README.md explains every key"


def test_no_mapping_at_all():
    assert refusal(None).startswith("config: None (NoneType) is wrong")
    assert refusal([]).startswith("config: Input should be a valid dictionary")


@pytest.mark.parametrize("text", ["1e-3", "3e-5", "1e-7", "1E5", "2.5e-4", "-1e-3"])
def test_the_number_that_the_hint_gives_is_read_by_yaml_as_what_was_meant(text):
    value = yaml.safe_load(f"learning_rate: {text}")["learning_rate"]
    if isinstance(value, str):
        hint = refusal(BASE | {"sft": {"learning_rate": value}}).rpartition("write it as a number, ")[2]
        assert yaml.safe_load(hint) == float(text)
    else:
        assert value == float(text)


@pytest.mark.parametrize("text", ["nan", "inf", "fast", ""])
def test_no_hint_at_a_number_where_the_text_is_none(text):
    assert "Hint" not in refusal(BASE | {"sft": {"learning_rate": text}})


BAD_NAMES = [
    "",
    ".",
    "..",
    "../x",
    "/etc",
    "a/b",
    "a\n",
    "\na",
    "a\x00",
    "a b",
    "A",
    "-a",
    "é",
    "a" * 65,
    "a\r",
    "a\u2028",
]


@pytest.mark.parametrize("name", BAD_NAMES)
def test_a_name_that_is_no_folder_below_results(name):
    assert refusal(BASE | {"name": name}).startswith("config: name: ")


@settings(deadline=None)
@given(st.text(alphabet=st.sampled_from("ab0_-./\\\n \x00A~é"), max_size=8))
def test_an_accepted_name_stays_in_results(name):
    if re.fullmatch(r"[a-z0-9][a-z0-9_-]*", name):
        folder = Path("results", load(BASE | {"name": name}).name).resolve()
        assert folder == Path("results").resolve() / name
    else:
        refusal(BASE | {"name": name})


def test_an_override_of_an_unknown_run():
    message = refusal(BASE | {"manifest": {"overrides": {"r26": {"exclude_users": ["u"]}}}})
    assert message == "config: manifest.overrides names unknown run 'r26'; the runs are r01 to r25"
    load(BASE | {"manifest": {"overrides": {"r25": {"exclude_users": ["u"]}}}})


def test_run_ids_are_as_long_as_the_longest():
    assert run_ids(2) == ["r01", "r02"]
    assert run_ids(100)[0] == "r001"
    assert len(set(run_ids(100))) == 100


def test_settings_cannot_be_changed():
    experiment = load(BASE)
    with pytest.raises(ValueError, match="frozen"):
        experiment.name = "b"


def test_settings_go_through_json_unchanged():
    experiment = load(yaml.safe_load((ROOT / "config" / "config.yaml").read_text()))
    assert checked(Experiment, experiment.model_dump_json(), "--source") == experiment


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "--source: '{' (str) is wrong: Invalid JSON"),
        ('{"tny": {}}', "--source: unknown key 'tny'. Hint: did you mean 'tiny'?"),
        ('{"tiny": {"layers": "2"}}', "--source: tiny.layers: '2' (str) is wrong"),
    ],
)
def test_settings_from_a_command_line(text, message):
    with pytest.raises(UserError) as caught:
        checked(BackboneSource, text, "--source")
    assert str(caught.value).startswith(message)


def panels(folder: Path) -> dict[str, str]:
    for name in ("length", "factorial", "refusal"):
        (folder / name).touch()
    return {name: str(folder / name) for name in ("length", "factorial", "refusal")}


def test_files_that_the_config_names(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows.jsonl").touch()
    (tmp_path / "model").mkdir()
    table = {"table": {"files": ["rows.jsonl"]}}
    good = BASE | {
        "ingest": table,
        "score_panels": panels(tmp_path),
        "backbone": {"path": "model", "chat_template": "rows.jsonl"},
    }
    check_files(load(good))
    wrong = [
        ({"ingest": {"table": {"files": ["rows.jsonl", "gone.jsonl"]}}}, "config: ingest: no such file 'gone.jsonl'"),
        ({"ingest": {"table": {"files": ["model"]}}}, "config: ingest: no such file 'model'"),
        ({"score_panels": panels(tmp_path) | {"length": "gone"}}, "config: score_panels: no such file 'gone'"),
        ({"backbone": {"path": "gone"}}, "config: backbone.path: no such folder 'gone'"),
        ({"backbone": {"path": "rows.jsonl"}}, "config: backbone.path: no such folder 'rows.jsonl'"),
        ({"backbone": {"tiny": {}, "chat_template": "gone"}}, "config: backbone.chat_template: no such file 'gone'"),
    ]  # fmt: skip
    for change, message in wrong:
        with pytest.raises(UserError) as caught:
            check_files(load(good | change))
        assert str(caught.value).startswith(message)
