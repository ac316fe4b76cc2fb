"""backbone: the pretrained model as a folder of safetensors beside a table that lists it."""

import json
import shutil
import tempfile
from fnmatch import fnmatch
from pathlib import Path
from typing import Annotated, Any

import typer

from .. import artifact, options, tables, tiny
from ..backbone_files import ALLOWED, folder_of, listing
from ..errors import UserError
from ..formatting import Formatter, load_tokenizer
from ..record import note_source, recorded
from ..settings import checked
from ..sources import BackboneSource, TinyLlama


def backbone(
    source: Annotated[str, typer.Option(help="The config's section `backbone`, as JSON.")],
    backbone: options.Out,
    pairs: Annotated[
        Path | None, typer.Option(help="Table of pairs; a tiny backbone learns its vocabulary from it.")
    ] = None,
    record: options.Record = None,
) -> None:
    """Write the backbone's files and their table."""
    settings = checked(BackboneSource, source, "--source")
    folder = folder_of(backbone)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (
        recorded("backbone", record, source=without_folders(settings)),
        tempfile.TemporaryDirectory(dir=folder.parent, prefix=".files-") as temporary,
    ):
        fresh = Path(temporary) / "fresh"
        fresh.mkdir()
        _fill(settings, pairs, fresh)
        check(fresh)
        files = listing(fresh)
        _replace(folder, fresh, Path(temporary) / "old")
        artifact.write(files, tables.BACKBONE, backbone)


def without_folders(settings: BackboneSource) -> dict[str, Any]:
    """Give the settings with bare file names, as a run record holds them."""
    values: dict[str, Any] = settings.model_dump(exclude_none=True)
    names = {key: Path(values[key]).name for key in ("path", "chat_template") if key in values}
    return values | names


def _replace(folder: Path, fresh: Path, old: Path) -> None:
    """Put a folder in another's place; if that fails, the other stays."""
    if folder.exists():
        folder.rename(old)
    try:
        fresh.rename(folder)
    except BaseException:
        if old.exists():
            old.rename(folder)
        raise


def _fill(settings: BackboneSource, pairs: Path | None, folder: Path) -> None:
    if settings.tiny:
        _build_tiny(settings.tiny, pairs, folder)
    elif settings.path:
        _copy(Path(settings.path), folder)
    else:
        _copy(_fetch(str(settings.hub), str(settings.revision)), folder)
    if settings.pad_token or settings.chat_template:
        _dress_tokenizer(settings, folder)


def _build_tiny(settings: TinyLlama, pairs: Path | None, folder: Path) -> None:
    if pairs is None:
        raise UserError("backbone.tiny", "no pairs to learn the vocabulary from", hint="pass --pairs")
    frame = artifact.read(pairs, tables.PAIRS)
    contents = frame["prompt"].explode().struct.field("content")
    tiny.build(settings, [*contents, *frame["chosen"], *frame["rejected"]], folder)


def _copy(origin: Path, folder: Path) -> None:
    """Copy what belongs to a model; weights in any other format than safetensors are not even looked at."""
    if not any(path.is_file() for path in origin.glob("*.safetensors")):
        raise UserError(
            str(origin),
            "no safetensors file",
            "other weight files can run code when they are opened",
            "save the model with safe_serialization=True",
        )
    for path in sorted(origin.iterdir()):
        if any(fnmatch(path.name, pattern) for pattern in ALLOWED):
            if not path.is_file():
                raise UserError(
                    str(path), "it is no file, or a link to one that is gone", hint="copy the model again"
                )
            shutil.copyfile(path, folder / path.name)


def _fetch(hub: str, revision: str) -> Path:
    """Fetch a pinned revision into the hub's cache, the only access to the network; HF_HUB_OFFLINE=1 forbids it."""
    from huggingface_hub import snapshot_download

    try:
        # The patterns' star stands for a slash too; what lies in a model's subfolders is in other formats.
        found = snapshot_download(hub, revision=revision, allow_patterns=list(ALLOWED), ignore_patterns="*/*")
    except Exception as error:  # noqa: BLE001 - the hub's errors, its client's and the disk's have no common class
        raise UserError(
            f"backbone.hub {hub}@{revision}",
            f"not to be had: {str(error) or type(error).__name__}",
            hint="log in with access to the model, or give a local folder as backbone.path",
        ) from None
    return Path(found)


def _dress_tokenizer(settings: BackboneSource, folder: Path) -> None:
    tokenizer = load_tokenizer(folder)
    if settings.pad_token:
        if settings.pad_token not in tokenizer.get_vocab():
            raise UserError(
                "config: backbone.pad_token",
                f"{settings.pad_token!r} is not in the tokenizer's vocabulary",
                hint="name a reserved token that the model has",
            )
        tokenizer.pad_token = settings.pad_token
    if settings.chat_template:
        tokenizer.chat_template = _read_template(Path(settings.chat_template))
    tokenizer.save_pretrained(folder)
    # An older model's second list of special tokens is now in tokenizer_config.json, which it would overrule.
    (folder / "special_tokens_map.json").unlink(missing_ok=True)


def _read_template(path: Path) -> str:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError("config: backbone.chat_template", f"{path} cannot be read: {error}") from None
    note_source(path)
    return text


def check(folder: Path) -> None:
    """Check that a folder holds a model which can be run as it is.

    Raises
    ------
    UserError
        If it brings its own code, lacks a file of weights, or has a tokenizer without template or a usable pad token.
    """
    config = _read_json(folder, "config.json")
    for name in ("config.json", "tokenizer_config.json"):
        if (folder / name).exists() and "auto_map" in _read_json(folder, name):
            raise UserError(
                f"the backbone's {name}",
                "auto_map asks for code of the model's own",
                hint="only architectures that transformers knows are run",
            )
    for index in sorted(folder.glob("*.safetensors.index.json")):
        _check_shards(folder, index.name)
    _check_pad(Formatter(folder).pad_id, config)


def _read_json(folder: Path, name: str) -> dict[str, Any]:
    try:
        content = json.loads((folder / name).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(
            f"the backbone's {name}", "no such file", hint="give the folder of a saved model"
        ) from None
    except ValueError as error:
        raise UserError(
            f"the backbone's {name}", f"it is no JSON: {error}", hint="copy the model again"
        ) from None
    if not isinstance(content, dict):
        raise UserError(f"the backbone's {name}", "it is no JSON object", hint="copy the model again")
    return content


def _check_shards(folder: Path, index: str) -> None:
    shards = set(_read_json(folder, index).get("weight_map", {}).values())
    absent = sorted(shards - {path.name for path in folder.iterdir()})
    if absent:
        raise UserError(
            f"the backbone's {index}",
            f"{absent[0]} is missing ({len(absent)} such files)",
            hint="copy the model again",
        )


def _check_pad(pad_id: int, config: dict[str, Any]) -> None:
    """Refuse a pad token that was added to the tokenizer alone: padding passes through the model."""
    size = config.get("vocab_size", pad_id + 1)
    if pad_id >= size:
        raise UserError(
            "the backbone's tokenizer",
            f"its pad token has the id {pad_id}, the model has embeddings for {size} tokens",
            hint="name a reserved token of the model as backbone.pad_token",
        )
