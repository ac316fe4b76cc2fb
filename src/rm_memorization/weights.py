"""Tensors as a table: one row a tensor."""

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import torch

from . import artifact, tables
from .errors import UserError

Tensors = dict[str, torch.Tensor]


def to_table(tensors: Tensors) -> pl.DataFrame:
    """Give tensors as a table of the weights contract.

    Examples
    --------
    >>> table = to_table({"score.weight": torch.zeros(1, 4)})
    >>> table["shape"].to_list(), from_table(table)["score.weight"].shape
    ([[1, 4]], torch.Size([1, 4]))
    """
    rows = [(name, *_pack(tensor)) for name, tensor in sorted(tensors.items())]
    columns = {"tensor": pl.String(), "dtype": pl.String(), "shape": pl.List(pl.Int64), "data": pl.Binary()}
    return pl.DataFrame(rows, schema=columns, orient="row")


def _pack(tensor: torch.Tensor) -> tuple[str, list[int], bytes]:
    plain = tensor.detach().cpu().contiguous()
    data = plain.reshape(-1).view(torch.uint8).numpy().tobytes()
    return str(plain.dtype).removeprefix("torch."), list(plain.shape), data


def from_table(table: pl.DataFrame) -> Tensors:
    """Give a table of the weights contract as tensors on the CPU."""
    return {
        row["tensor"]: _unpack(row["dtype"], row["shape"], row["data"]) for row in table.iter_rows(named=True)
    }


def _unpack(dtype: str, shape: list[int], data: bytes) -> torch.Tensor:
    flat = torch.from_numpy(np.frombuffer(data, dtype=np.uint8).copy())
    return flat.view(getattr(torch, dtype)).reshape(shape)


def save(tensors: Tensors, path: Path, properties: dict[str, Any]) -> None:
    """Write tensors; the properties say how to use them."""
    artifact.write(to_table(tensors), tables.WEIGHTS, path, properties)


def load(path: Path, stage: str, **origins: Path) -> tuple[Tensors, dict[str, Any]]:
    """Read tensors and their properties.

    Parameters
    ----------
    path
        A table of the weights contract.
    stage
        The stage that makes it, for the hint.
    **origins
        Tables that the training started from, by the name of the property that holds their content hash.

    Raises
    ------
    UserError
        If an origin is not the one that the training started from: the tensors mean nothing on top of another.
    """
    tensors = from_table(artifact.read(path, tables.WEIGHTS))
    properties = artifact.footer(path)["properties"]
    for name, origin in origins.items():
        found, wanted = artifact.footer(origin)["content_hash"], properties.get(name)
        if found != wanted:
            raise UserError(
                str(path),
                f"not trained on top of {origin}, whose content hash is {found[:12]}",
                f"The {name} it was trained on has {str(wanted)[:12]}",
                f"run {stage} again, or give the {name} it was trained on",
            )
    return tensors, properties
