"""The stage that brings the backbone: what it takes, what it refuses, and that nothing half-done stays."""

import json
import os
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from huggingface_hub import constants
from model_folders import EOS, PAD, TEMPLATE, UNUSED, pairs_table, save_model, save_tokenizer
from safetensors.numpy import save_file
from typer.testing import CliRunner

from rm_memorization import artifact, tables
from rm_memorization.backbone_files import checked_files
from rm_memorization.cli import app
from rm_memorization.errors import UserError
from rm_memorization.formatting import Formatter
from rm_memorization.stages import backbone as stage
from rm_memorization.stages.backbone import backbone

REVISION = "0123456789abcdef0123456789abcdef01234567"
TINY = {"hidden_size": 8, "heads": 2, "layers": 1, "vocabulary": 300}


@pytest.fixture
def origin(tmp_path) -> Path:
    return save_model(tmp_path / "origin")


@pytest.fixture
def table(tmp_path) -> Path:
    return tmp_path / "results" / "x" / "backbone" / "backbone.parquet"


def bring(table: Path, **source) -> Path:
    """Run the stage and give the folder of checked files."""
    backbone(json.dumps(source), table)
    return checked_files(table)


def refusal(table: Path, **source) -> str:
    with pytest.raises(UserError) as caught:
        backbone(json.dumps(source), table)
    text = str(caught.value)
    assert len(text.splitlines()) == 1
    assert ".files-" not in text
    return text


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def leftovers(table: Path) -> list[str]:
    return sorted({path.name for path in table.parent.iterdir()} - {"files", table.name})


def test_a_folder_is_copied_and_listed(table, origin):
    assert contents(bring(table, path=str(origin))) == contents(origin)
    listed = artifact.read(table, tables.BACKBONE)
    assert sorted(listed["file"]) == sorted(path.name for path in origin.iterdir())
    assert leftovers(table) == []
    assert table.parent.stat().st_mode == (table.parent / "files").stat().st_mode


def test_only_what_belongs_to_a_model_is_copied(table, origin):
    expected = contents(origin)
    for name in (
        "pytorch_model.bin",
        "training_args.bin",
        "modeling_own.py",
        "README.md",
        "consolidated.00.pth",
        "x.pkl",
    ):
        (origin / name).write_bytes(b"")
    (origin / "onnx").mkdir()
    (origin / "onnx" / "model.safetensors").touch()
    assert contents(bring(table, path=str(origin))) == expected


def test_links_are_followed(table, origin, tmp_path):
    linked = tmp_path / "linked"
    linked.mkdir()
    for path in origin.iterdir():
        (linked / path.name).symlink_to(path)
    folder = bring(table, path=str(linked))
    assert contents(folder) == contents(origin)
    assert not any(path.is_symlink() for path in folder.iterdir())


def test_a_link_that_leads_nowhere(table, origin):
    (origin / "merges.txt").symlink_to(origin / "gone")
    assert "merges.txt: it is no file, or a link to one that is gone" in refusal(table, path=str(origin))


@pytest.mark.parametrize("weights", [None, "pytorch_model.bin", "model.safetensors/"])
def test_no_safetensors(table, origin, weights):
    (origin / "model.safetensors").unlink()
    if weights == "model.safetensors/":
        (origin / weights).mkdir()
    elif weights:
        (origin / weights).touch()
    message = refusal(table, path=str(origin))
    assert message.startswith(f"{origin}: no safetensors file. other weight files can run code")
    assert refusal(table, path=str(origin / "nowhere")).startswith(f"{origin}/nowhere: no safetensors file")


def shard(origin: Path, *names: str) -> None:
    (origin / "model.safetensors").unlink()
    for name in names:
        save_file({name: np.zeros(1, dtype=np.float32)}, origin / f"model-{name}.safetensors")
    index = {"metadata": {}, "weight_map": {"a": "model-a.safetensors", "b": "model-b.safetensors"}}
    (origin / "model.safetensors.index.json").write_text(json.dumps(index))


def test_weights_in_several_files(table, origin):
    shard(origin, "a", "b")
    assert contents(bring(table, path=str(origin))) == contents(origin)


def test_a_missing_part_of_the_weights(table, origin):
    shard(origin, "a")
    message = refusal(table, path=str(origin))
    assert message.startswith(
        "the backbone's model.safetensors.index.json: model-b.safetensors is missing (1 such files)"
    )


@pytest.mark.parametrize("name", ["config.json", "tokenizer_config.json"])
def test_code_of_the_model_s_own(table, origin, name):
    content = json.loads((origin / name).read_text()) | {"auto_map": {"AutoModel": "modeling_own.Own"}}
    (origin / name).write_text(json.dumps(content))
    (origin / "modeling_own.py").write_text("raise SystemExit('this code ran')")
    assert refusal(table, path=str(origin)).startswith(
        f"the backbone's {name}: auto_map asks for code of the model's own"
    )


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "the backbone's config.json: no such file"),
        ("", "the backbone's config.json: it is no JSON"),
        ("{", "the backbone's config.json: it is no JSON"),
        ("[]", "the backbone's config.json: it is no JSON object"),
        (b"\xff", "the backbone's config.json: it is no JSON"),
    ],
)
def test_a_config_that_is_none(table, origin, content, message):
    (origin / "config.json").unlink()
    if isinstance(content, bytes):
        (origin / "config.json").write_bytes(content)
    elif content is not None:
        (origin / "config.json").write_text(content)
    assert refusal(table, path=str(origin)).startswith(message)


def test_a_tokenizer_that_is_missing_or_broken(table, origin):
    (origin / "tokenizer.json").write_text("{")
    assert refusal(table, path=str(origin)).startswith("the backbone's tokenizer: it cannot be loaded")
    for path in origin.glob("tokenizer*"):
        path.unlink()
    assert refusal(table, path=str(origin)).startswith("the backbone's tokenizer: ")


def test_a_chat_template_from_a_file(table, origin, tmp_path):
    save_tokenizer(origin, None)
    (origin / "chat_template.jinja").unlink(missing_ok=True)
    assert "it has no chat template. Hint: set backbone.chat_template" in refusal(table, path=str(origin))
    (tmp_path / "t.jinja").write_text(TEMPLATE, encoding="utf-8")
    folder = bring(table, path=str(origin), chat_template=str(tmp_path / "t.jinja"))
    assert Formatter(folder).tokenizer.chat_template == TEMPLATE


def test_a_chat_template_that_cannot_be_read(table, origin, tmp_path):
    message = refusal(table, path=str(origin), chat_template=str(tmp_path / "gone"))
    assert message.startswith("config: backbone.chat_template: ")
    (tmp_path / "t.jinja").write_bytes(b"\xff")
    assert "cannot be read" in refusal(table, path=str(origin), chat_template=str(tmp_path / "t.jinja"))


@pytest.mark.parametrize("pad", [None, EOS])
def test_a_pad_token_from_the_config(table, origin, pad):
    save_tokenizer(origin, pad=pad)
    (origin / "special_tokens_map.json").write_text(json.dumps({"pad_token": EOS, "eos_token": EOS}))
    assert "Hint: set backbone.pad_token" in refusal(table, path=str(origin))
    folder = bring(table, path=str(origin), pad_token=UNUSED)
    assert Formatter(folder).tokenizer.pad_token == UNUSED
    assert Formatter(folder).tokenizer.eos_token == EOS


def test_dressing_changes_no_token(table, origin, tmp_path):
    plain = Formatter(bring(table, path=str(origin))).encode(["hello <|user|>there</s>"])
    (tmp_path / "t.jinja").write_text("{{ messages }}")
    folder = bring(table, path=str(origin), pad_token=UNUSED, chat_template=str(tmp_path / "t.jinja"))
    assert Formatter(folder).encode(["hello <|user|>there</s>"]) == plain


def test_a_pad_token_that_is_no_token(table, origin):
    message = refusal(table, path=str(origin), pad_token=f"{PAD}x")
    assert message.startswith("config: backbone.pad_token: '<pad>x' is not in the tokenizer's vocabulary")


def test_a_pad_token_without_an_embedding(table, origin):
    config = json.loads((origin / "config.json").read_text())
    for size, fits in ((1, True), (0, False)):
        (origin / "config.json").write_text(json.dumps(config | {"vocab_size": size}))
        if fits:
            assert Formatter(bring(table, path=str(origin))).pad_id == 0
        else:
            assert "its pad token has the id 0, the model has embeddings for 0 tokens" in refusal(
                table, path=str(origin)
            )


def test_settings_that_are_wrong(table):
    assert refusal(table, tny={}) == "--source: unknown key 'tny'. Hint: did you mean 'tiny'?"
    assert (
        refusal(table, tiny={}) == "backbone.tiny: no pairs to learn the vocabulary from. Hint: pass --pairs"
    )


def test_a_tiny_one(table, tmp_path):
    artifact.write(pairs_table([("u", "coffee?", "yes", "no")]), tables.PAIRS, tmp_path / "pairs.parquet")
    backbone(json.dumps({"tiny": TINY}), table, tmp_path / "pairs.parquet")
    first = contents(checked_files(table))
    backbone(json.dumps({"tiny": TINY}), table, tmp_path / "pairs.parquet")
    assert contents(checked_files(table)) == first
    assert "model.safetensors" in first


@pytest.fixture
def cache(tmp_path, monkeypatch) -> Path:
    """Give an empty cache of the hub, and no network."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    return tmp_path / "hub"


def snapshot(cache: Path, origin: Path, revision: str = REVISION) -> None:
    """Lay a model into the cache as the hub's client does: links into a folder of blobs."""
    model = cache / "models--someone--model"
    (model / "blobs").mkdir(parents=True, exist_ok=True)
    (model / "snapshots" / revision).mkdir(parents=True)
    for path in origin.iterdir():
        (model / "blobs" / path.name).write_bytes(path.read_bytes())
        (model / "snapshots" / revision / path.name).symlink_to(Path("../../blobs") / path.name)


def test_a_pinned_revision_from_the_cache_without_network(table, origin, cache):
    snapshot(cache, origin)
    folder = bring(table, hub="someone/model", revision=REVISION)
    assert contents(folder) == contents(origin)
    assert not any(path.is_symlink() for path in folder.iterdir())


def test_a_revision_that_is_not_in_the_cache(table, origin, cache):
    snapshot(cache, origin, "f" * 40)
    message = refusal(table, hub="someone/model", revision=REVISION)
    assert message.startswith(f"backbone.hub someone/model@{REVISION}: not to be had: ")
    assert message.endswith("give a local folder as backbone.path")
    assert not table.exists()


@pytest.mark.parametrize("hub", ["a/b/c", "../x", "with space", "-"])
def test_a_hub_name_that_is_none(table, cache, hub):
    assert refusal(table, hub=hub, revision=REVISION).startswith(
        f"backbone.hub {hub}@{REVISION}: not to be had: "
    )


def test_an_error_without_words_is_named(table, monkeypatch):
    def fail(*_args, **_options):
        raise TimeoutError

    monkeypatch.setattr("huggingface_hub.snapshot_download", fail)
    assert "not to be had: TimeoutError" in refusal(table, hub="a/b", revision=REVISION)


def fails_at(monkeypatch, name: str, error: type[BaseException]) -> None:
    def fail(*_args, **_options):
        raise error

    monkeypatch.setattr(stage, name, fail)


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
@pytest.mark.parametrize("step", ["_fill", "check", "listing"])
def test_a_build_that_is_cut_off_leaves_the_old_one(table, origin, monkeypatch, step, error):
    folder = bring(table, path=str(origin))
    before = contents(folder), table.read_bytes()
    (origin / "config.json").write_text("{}")
    fails_at(monkeypatch, step, error)
    with pytest.raises(error):
        bring(table, path=str(origin))
    assert (contents(folder), table.read_bytes()) == before
    assert leftovers(table) == []


def test_a_first_build_that_is_cut_off_leaves_nothing(table, origin, monkeypatch):
    fails_at(monkeypatch, "check", KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt):
        bring(table, path=str(origin))
    assert list(table.parent.iterdir()) == []


def test_a_folder_that_cannot_be_moved_leaves_the_old_one(table, origin, monkeypatch):
    before = contents(bring(table, path=str(origin)))
    rename = Path.rename

    def fail(path, target):
        if path.name == "fresh":
            raise PermissionError(path)
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", fail)
    with pytest.raises(PermissionError):
        bring(table, path=str(origin))
    assert contents(table.parent / "files") == before
    assert leftovers(table) == []


def test_a_refused_model_leaves_the_old_one(table, origin):
    before = contents(bring(table, path=str(origin)))
    (origin / "config.json").unlink()
    refusal(table, path=str(origin))
    assert contents(checked_files(table)) == before


def test_a_new_build_replaces_the_old_one_wholly(table, origin):
    (origin / "merges.txt").write_text("")
    assert "merges.txt" in contents(bring(table, path=str(origin)))
    (origin / "merges.txt").unlink()
    assert "merges.txt" not in contents(bring(table, path=str(origin)))


def test_the_record_holds_no_folder(table, origin, tmp_path):
    (tmp_path / "t.jinja").write_text(TEMPLATE)
    record = table.parents[1] / "run_records" / "backbone.json"
    source = {"path": str(origin), "chat_template": str(tmp_path / "t.jinja"), "pad_token": PAD}
    backbone(json.dumps(source), table, record=record)
    content = json.loads(record.read_text())
    assert content["params"] == {"source": {"path": "origin", "chat_template": "t.jinja", "pad_token": PAD}}
    assert list(content["inputs"]) == ["source:t.jinja"]
    assert list(content["outputs"]) == ["backbone/backbone.parquet"]
    assert str(tmp_path) not in record.read_text()


def test_the_command(table, origin):
    done = CliRunner().invoke(
        app, ["backbone", "--source", json.dumps({"path": str(origin)}), "--backbone", os.fspath(table)]
    )
    assert done.exit_code == 0, done.output
    assert artifact.read(table, tables.BACKBONE).filter(pl.col("file") == "model.safetensors").height == 1
