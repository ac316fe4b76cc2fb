"""hashes: the content hash of every table, to compare two builds."""

from pathlib import Path
from typing import Annotated

import typer

from . import artifact, tables
from .errors import UserError
from .results import files


def hashes(folder: Annotated[Path, typer.Argument(help="results, or any folder below.")]) -> None:
    """Print `<content hash>  <path>` for each table, computed from its values, in the order of the paths."""
    found = content_hashes(folder)
    if not found:
        raise UserError(str(folder), "no table in it", hint="give results, or a folder below")
    for path, digest in found.items():
        typer.echo(f"{digest}  {path}")


def content_hashes(folder: Path) -> dict[str, str]:
    """Compute the content hashes of a folder's tables.

    Parameters
    ----------
    folder
        Where to look, folders below included.

    Returns
    -------
    dict
        Content hash by path relative to `folder`, in the order of the paths. Volatile tables, which hold times and
        hosts, are left out.

    Raises
    ------
    UserError
        If a Parquet file is unreadable or is no table of this package.
    """
    return {
        path: artifact.recompute(folder / path)
        for path in files(folder, "*.parquet")
        if not _volatile(folder / path)
    }


def _volatile(path: Path) -> bool:
    contract = tables.CONTRACTS.get(artifact.footer(path)["contract"])
    return contract is not None and contract.volatile
