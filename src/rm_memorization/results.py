"""Experiments on disk: their tables, their run records, and which job made which table."""

import glob
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from .errors import UserError
from .record import RECORDS


class _Read(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True)


class Written(_Read):
    """What a job noted of a table that it wrote."""

    content_hash: str
    sha256: str


class Ran(_Read):
    """When, where and on what a job ran."""

    started: str
    wall_s: float
    cpu_s: float
    peak_memory_mb: float
    host: str
    device: str
    threads: int | None
    git_commit: str | None
    git_dirty: bool | None
    versions: dict[str, str | None]


class Record(_Read):
    """A run record, as `record.recorded` writes it. Paths are relative to the experiment's folder."""

    stage: str
    params: dict[str, Any]
    params_digest: str
    inputs: dict[str, str]
    outputs: dict[str, Written]
    ran: Ran


@dataclass(frozen=True)
class Experiment:
    """An experiment's folder and what its run records say.

    Parameters
    ----------
    folder
        ``results/<name>``.
    records
        By job, in the order in which the jobs started.
    broken
        Why a record cannot be read, by job.
    """

    folder: Path
    records: dict[str, Record]
    broken: dict[str, UserError]

    @cached_property
    def producers(self) -> dict[str, str]:
        """The job that wrote a table, by the table's path."""
        return {path: job for job, record in self.records.items() for path in record.outputs}

    def written(self, path: str) -> Written | None:
        """Give what the producing job noted of a table; None if no record claims it."""
        job = self.producers.get(path)
        return self.records[job].outputs[path] if job else None

    def refuse_broken(self) -> None:
        """Insist that every record can be read.

        Raises
        ------
        UserError
            For the first one that cannot.
        """
        for error in self.broken.values():
            raise error


def find(folder: Path) -> list[Experiment]:
    """Find the experiments of a results folder.

    Parameters
    ----------
    folder
        ``results/<name>``, or ``results`` for all of them. Once one folder holds run records, folders beside it that
        hold tables count too: somebody has lost their records.

    Raises
    ------
    UserError
        If there is none.
    """
    if (folder / RECORDS).is_dir():
        return [load(folder)]
    below = sorted(path for path in folder.iterdir() if path.is_dir()) if folder.is_dir() else []
    if not any((path / RECORDS).is_dir() for path in below):
        found = f"no {RECORDS} in it or in the folders below" if folder.is_dir() else "no such folder"
        raise UserError(str(folder), found, hint="give results, or results/<name> of one experiment")
    return [load(path) for path in below if (path / RECORDS).is_dir() or files(path, "*.parquet")]


def enclosing(path: Path) -> Experiment:
    """Find the experiment that a file belongs to.

    Raises
    ------
    UserError
        If no folder above the file holds run records.
    """
    for folder in path.parents:
        if (folder / RECORDS).is_dir():
            return load(folder)
    raise UserError(
        str(path), f"no folder above it holds {RECORDS}", hint="give a table below results/<name>"
    )


def load(folder: Path) -> Experiment:
    """Read an experiment's run records; those that cannot be read are kept as errors."""
    records: dict[str, Record] = {}
    broken: dict[str, UserError] = {}
    for path in sorted((folder / RECORDS).glob("*.json")):
        try:
            records[path.stem] = read_record(path)
        except UserError as error:
            broken[path.stem] = error
    ordered = sorted(records.items(), key=lambda item: (item[1].ran.started, item[0]))
    return Experiment(folder, dict(ordered), broken)


def read_record(path: Path) -> Record:
    """Read a run record.

    Raises
    ------
    UserError
        If it is no JSON, or if a field is missing or of another type.
    """
    try:
        return Record.model_validate_json(path.read_bytes())
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(str(part) for part in first["loc"])
        found = f"not a run record ({field + ': ' if field else ''}{first['msg']})"
        raise UserError(
            str(path), found, hint="run `rm-memorization verify` for the command that mends it"
        ) from None


def files(folder: Path, pattern: str) -> list[str]:
    """List the files below a folder whose name fits, as relative paths in order; hidden ones are left out.

    Links to folders are followed: a stage's folder may lie on another disk.
    """
    found: Iterator[str] = glob.iglob(f"**/{pattern}", root_dir=folder, recursive=True)  # noqa: PTH207 - Path.glob follows no links
    return sorted(Path(path).as_posix() for path in found if (folder / path).is_file())
