"""The backbone's folder: which files belong to it, and that they are what its table lists."""

from pathlib import Path

import polars as pl

from . import artifact, tables
from .errors import UserError
from .hashing import file_digest

# Weights come as safetensors alone: a pickle runs code when it is opened.
ALLOWED = ("*.safetensors", "*.safetensors.index.json", "config.json", "tokenizer.json", "tokenizer_config.json",
           "special_tokens_map.json", "added_tokens.json", "vocab.json", "merges.txt", "tokenizer.model", "chat_template.jinja")  # fmt: skip


def folder_of(backbone: Path) -> Path:
    """Give the folder of files that lies beside a backbone table."""
    return backbone.parent / "files"


def listing(folder: Path) -> pl.DataFrame:
    """List a folder's files with size and digest, as a table of the backbone contract."""
    files = sorted(path for path in folder.iterdir() if path.is_file())
    return pl.DataFrame(
        {
            "file": [file.name for file in files],
            "bytes": [file.stat().st_size for file in files],
            "sha256": [file_digest(file) for file in files],
        }
    )


def checked_files(backbone: Path) -> Path:
    """Check the files against the table and give their folder.

    Raises
    ------
    UserError
        If a file is missing, differs or is not listed.
    """
    folder = folder_of(backbone)
    listed = artifact.read(backbone, tables.BACKBONE)
    for row in listed.iter_rows(named=True):
        path = folder / row["file"]
        if not path.is_file():
            raise _wrong(path, "the backbone's file is missing", backbone)
        if path.stat().st_size != row["bytes"] or file_digest(path) != row["sha256"]:
            raise _wrong(path, "the backbone's file is not the one that was listed", backbone)
    # A file that somebody put there, such as a chat template, would be read with the others.
    for path in sorted(folder.iterdir()):
        if path.name not in listed["file"]:
            raise _wrong(path, "it is not among the backbone's files", backbone)
    return folder


def _wrong(path: Path, found: str, backbone: Path) -> UserError:
    return UserError(str(path), found, hint=f"run `snakemake --force {backbone}`")
