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
        {"file": [f.name for f in files], "bytes": [f.stat().st_size for f in files], "sha256": [file_digest(f) for f in files]}
    )


def checked_files(backbone: Path) -> Path:
    """Check the files against the table and give their folder.

    Raises
    ------
    UserError
        If a file is missing or differs.
    """
    folder = folder_of(backbone)
    for row in artifact.read(backbone, tables.BACKBONE).iter_rows(named=True):
        path = folder / row["file"]
        if not path.is_file():
            raise UserError(str(path), "the backbone's file is missing", hint=f"run `snakemake --force {backbone}`")
        if path.stat().st_size != row["bytes"] or file_digest(path) != row["sha256"]:
            raise UserError(str(path), "the backbone's file is not the one that was listed", hint=f"run `snakemake --force {backbone}`")
    return folder
