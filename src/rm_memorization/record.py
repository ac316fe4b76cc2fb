"""Run records: what a job read, wrote and ran on, as a JSON file beside the results.

A record holds all that is volatile (time, host, versions), so that the tables themselves hold nothing of it. It names
paths relative to the experiment's folder and holds no user name, environment or absolute path.
"""

import contextlib
import contextvars
import importlib.metadata
import itertools
import json
import os
import platform
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from .errors import UserError
from .files import write_atomically
from .hashing import canonical_json, file_digest, text_digest

PACKAGES = (
    "rm-memorization",
    "torch",
    "transformers",
    "trl",
    "peft",
    "polars",
    "pyarrow",
    "pandera",
    "snakemake",
    "numpy",
)
RECORDS = "run_records"
SOURCE = "source:"


@dataclass
class Job:
    """A running job's reads and writes.

    Parameters
    ----------
    stage
        The stage's name.
    root
        The experiment's folder; paths are recorded relative to it.
    params
        What the job was told, as JSON values.
    """

    stage: str
    root: Path
    params: dict[str, Any]
    inputs: dict[str, str] = field(default_factory=dict)
    outputs: dict[str, dict[str, str]] = field(default_factory=dict)
    device: str = "cpu"

    def name(self, path: Path) -> str:
        """Give a path relative to the experiment's folder, or the bare file name of a file outside it."""
        path = _absolute(path)
        return (
            path.relative_to(self.root).as_posix()
            if path.is_relative_to(self.root)
            else f"{SOURCE}{path.name}"
        )

    def free_name(self, path: Path, digest: str) -> str:
        """Give the name of an input; sources that share a file name but not their content are numbered."""
        name = self.name(path)
        if not name.startswith(SOURCE):
            return name
        names = itertools.chain([name], (f"{name}#{number}" for number in itertools.count(2)))
        return next(name for name in names if self.inputs.get(name, digest) == digest)


def _absolute(path: Path) -> Path:
    """Make a path absolute without following links: a stage's folder may be a link to another disk."""
    return Path(os.path.normpath(path.absolute()))


_job: contextvars.ContextVar[Job | None] = contextvars.ContextVar("job", default=None)


def note_input(path: Path, digest: str) -> None:
    """Note that the running job read a file of this content."""
    if job := _job.get():
        job.inputs[job.free_name(path, digest)] = digest


def note_source(path: Path) -> None:
    """Note that the running job read a source file, by the digest of its bytes."""
    if _job.get():
        note_input(path, file_digest(path))


def note_output(path: Path, content_hash: str) -> None:
    """Note that the running job wrote a table.

    Raises
    ------
    UserError
        If the table lies outside the experiment's folder, where `verify` would not find it.
    """
    if job := _job.get():
        name = job.name(path)
        if name.startswith(SOURCE):
            raise UserError(
                str(path),
                f"a recorded job writes outside its experiment's folder {job.root.name}",
                hint="give --record beside it",
            )
        job.outputs[name] = {"content_hash": content_hash, "sha256": file_digest(path)}


def note_device(device: str) -> None:
    """Note what the job computes on."""
    if job := _job.get():
        job.device = device


@contextlib.contextmanager
def recorded(stage: str, record: Path | None, **params: Any) -> Iterator[None]:
    """Run the block as a job and write its record when it ends well.

    Parameters
    ----------
    stage
        The stage's name.
    record
        Where the record goes, ``<experiment>/run_records/<job>.json``; nothing is recorded without it.
    **params
        What the job was told.
    """
    if record is None:
        yield
        return
    started, wall = datetime.now(UTC), time.perf_counter()
    job, params_digest = (
        Job(stage, _absolute(record).parent.parent, params),
        text_digest(canonical_json(params)),
    )
    token = _job.set(job)
    try:
        yield
    finally:
        _job.reset(token)
    content = {
        "stage": stage,
        "params": params,
        "params_digest": params_digest,
        "inputs": job.inputs,
        "outputs": job.outputs,
        "ran": _circumstances(job, started, time.perf_counter() - wall),
    }
    with write_atomically(record) as temporary:
        temporary.write_text(json.dumps(content, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def _circumstances(job: Job, started: datetime, wall: float) -> dict[str, Any]:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "started": started.isoformat(timespec="seconds"),
        "wall_s": round(wall, 3),
        "cpu_s": round(usage.ru_utime + usage.ru_stime, 3),
        "peak_memory_mb": round(usage.ru_maxrss / 1024, 1),
        "host": platform.node(),
        "machine": f"{platform.system()} {platform.machine()}",
        "device": job.device,
        "threads": _threads(),
        "python": platform.python_version(),
        "versions": {name: _version(name) for name in PACKAGES},
        **_commit(),
    }


def _threads() -> int | None:
    torch = sys.modules.get("torch")
    return int(torch.get_num_threads()) if torch else None


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _commit() -> dict[str, Any]:
    """Commit and dirty state of the checkout that the package lies in; null outside one."""
    folder = os.fspath(Path(__file__).parent)

    def git(*arguments: str) -> str | None:
        try:
            done = subprocess.run(
                ["git", "-C", folder, *arguments], capture_output=True, text=True, check=True, timeout=10
            )
        except (OSError, subprocess.SubprocessError):
            return None
        return done.stdout.strip()

    commit = git("rev-parse", "HEAD")
    return {"git_commit": commit, "git_dirty": bool(git("status", "--porcelain")) if commit else None}
