"""backbone: the pretrained model as a folder of safetensors beside a table that lists it."""

import json
import shutil
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from .. import artifact, options, tables, tiny
from ..backbone_files import ALLOWED, folder_of, listing
from ..errors import UserError
from ..formatting import Formatter
from ..record import recorded
from ..sources import BackboneSource, TinyLlama


def backbone(
    source: Annotated[str, typer.Option(help="The config's section `backbone`, as JSON.")],
    backbone: options.Out,
    pairs: Annotated[Path | None, typer.Option(help="Table of pairs; a tiny backbone learns its vocabulary from it.")] = None,
    record: options.Record = None,
) -> None:
    """Write the backbone's files and their table."""
    settings = BackboneSource.model_validate_json(source)
    with recorded("backbone", record, source=settings.model_dump(exclude_none=True)):
        folder = folder_of(backbone)
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".files-") as temporary:
            fresh = Path(temporary) / "files"
            fresh.mkdir()
            _fill(settings, pairs, fresh)
            _check(fresh)
            shutil.rmtree(folder, ignore_errors=True)
            fresh.rename(folder)
        artifact.write(listing(folder), tables.BACKBONE, backbone)


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
    if not list(origin.glob("*.safetensors")):
        raise UserError(str(origin), "no safetensors file", "other weight files can run code when they are opened", "save the model with safe_serialization=True")
    for pattern in ALLOWED:
        for path in sorted(origin.glob(pattern)):
            shutil.copyfile(path, folder / path.name)


def _fetch(hub: str, revision: str) -> Path:
    """Fetch a pinned revision into the hub's cache, the only access to the network; HF_HUB_OFFLINE=1 forbids it."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError, OfflineModeIsEnabled

    try:
        return Path(snapshot_download(hub, revision=revision, allow_patterns=list(ALLOWED)))
    except (HfHubHTTPError, LocalEntryNotFoundError, OfflineModeIsEnabled, OSError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(f"backbone.hub {hub}@{revision}", f"not to be had: {reason}", hint="log in with access to the model, or give a local folder as backbone.path") from None


def _dress_tokenizer(settings: BackboneSource, folder: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    if settings.pad_token:
        if settings.pad_token not in tokenizer.get_vocab():
            raise UserError("config: backbone.pad_token", f"{settings.pad_token!r} is not in the tokenizer's vocabulary", hint="name a reserved token that the model has")
        tokenizer.pad_token = settings.pad_token
    if settings.chat_template:
        tokenizer.chat_template = Path(settings.chat_template).read_text(encoding="utf-8")
    tokenizer.save_pretrained(folder)


def _check(folder: Path) -> None:
    """Refuse a model that brings its own code, and a tokenizer without template or pad token."""
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(str(folder), "no config.json", hint="give the folder of a saved model") from None
    if "auto_map" in config:
        raise UserError("config.json", f"auto_map asks for code of the model's own: {sorted(config['auto_map'])}", hint="only architectures that transformers knows are run")
    Formatter(folder)
