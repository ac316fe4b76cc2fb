"""verify: whether every result is whole and was made from what lies here now.

One cause gives one finding. A table that differs from its record is itself the finding; what was made from it is judged
by the record, for the mended table will be the recorded one again.
"""

import functools
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from . import artifact, hashing, tables
from .errors import UserError
from .record import RECORDS, SOURCE
from .results import Experiment, Record, Written, files, find

BACKBONE = "backbone/backbone.parquet"
ADVICE = (
    "Run these commands in the folder of the Snakefile, with the experiment's --configfile if it has one; "
    "then `snakemake all` with the same options; then verify again."
)
Digest = Callable[[Path], str]


@dataclass(frozen=True)
class Finding:
    """Something that is not as it should be.

    Parameters
    ----------
    path
        The file.
    kind
        ``missing``, ``damaged`` (other bytes than recorded), ``false hash`` (content and recorded content hash differ),
        ``stale`` (made from an earlier input), ``unclaimed`` (no record) or ``record`` (the run record is at fault).
    detail
        What was found.
    mend
        The command that mends it.
    """

    path: str
    kind: str
    detail: str
    mend: str

    def __str__(self) -> str:
        return " ".join(f"{self.path}: {self.kind}: {self.detail}. Mend: {self.mend}".split())


def verify(
    folder: Annotated[Path, typer.Argument(help="results, or results/<name> of one experiment.")],
) -> None:
    """Print what is wrong, one finding a line; exit code 1 if anything is."""
    experiments = find(folder)
    found = [finding for experiment in experiments for finding in findings(experiment)]
    for finding in found:
        typer.echo(finding)
    if found:
        typer.echo(ADVICE)
        raise typer.Exit(1)
    n_tables = sum(len(experiment.producers) for experiment in experiments)
    typer.echo(
        f"{n_tables} tables, {sum(len(experiment.records) for experiment in experiments)} jobs: all whole"
    )


def findings(experiment: Experiment) -> list[Finding]:
    """Check an experiment's files against its run records.

    Returns
    -------
    list of Finding
        Broken records, the backbone's files, then job by job in the order in which they started, so that mending in
        this order mends inputs before what is made from them; last the tables that nothing claims.
    """
    digest = functools.cache(hashing.file_digest)
    found = [*_records(experiment), *_backbone(experiment, digest)]
    for job, record in experiment.records.items():
        outputs = [
            _output(experiment, job, path, written, digest) for path, written in record.outputs.items()
        ]
        found += [finding for finding in outputs if finding]
        found += _stale(experiment, job, record, digest)
    return [*found, *_unclaimed(experiment)]


def _shown(experiment: Experiment, path: str) -> str:
    """Give a path as one would type it: from the current folder if it lies below."""
    whole = (experiment.folder / path).absolute()
    return str(whole.relative_to(Path.cwd()) if whole.is_relative_to(Path.cwd()) else whole)


def _made_again(experiment: Experiment, path: str) -> str:
    """Give the command that runs the job of a table, which without --force Snakemake may think up to date."""
    return shlex.join(["snakemake", "--cores", "2", "--force", _shown(experiment, path)])


def _removed(path: str) -> str:
    return shlex.join(["rm", path])


def _folder(job: str) -> str:
    """Give the folder in which a job writes: ``score/r03/`` for ``score.r03``."""
    return job.replace(".", "/", 1) + "/"


def _records(experiment: Experiment) -> Iterator[Finding]:
    for job, error in experiment.broken.items():
        there = [_folder(job) + name for name in files(experiment.folder / _folder(job), "*.parquet")]
        yield _record_finding(experiment, job, error.found, there)
    for job, record in experiment.records.items():
        if hashing.text_digest(hashing.canonical_json(record.params)) != record.params_digest:
            yield _record_finding(
                experiment, job, "the parameters are not those of params_digest", list(record.outputs)
            )


def _record_finding(experiment: Experiment, job: str, detail: str, outputs: list[str]) -> Finding:
    path = _shown(experiment, f"{RECORDS}/{job}.json")
    return Finding(path, "record", detail, _made_again(experiment, outputs[0]) if outputs else _removed(path))


def _output(experiment: Experiment, job: str, path: str, written: Written, digest: Digest) -> Finding | None:
    file, found = experiment.folder / path, functools.partial(Finding, _shown(experiment, path))
    mend = _made_again(experiment, path)
    if not file.is_file():
        return found("missing", f"{job} has written it, but it is not there", mend)
    if digest(file) != written.sha256:
        return found("damaged", _difference(experiment, file, digest), mend)
    try:
        claimed, actual = artifact.footer(file)["content_hash"], artifact.recompute(file)
    except UserError as error:
        return found("false hash", error.found, mend)
    if not claimed == actual == written.content_hash:
        hashes = f"values {actual[:12]}, footer {claimed[:12]}, record {written.content_hash[:12]}"
        return found("false hash", f"its content hashes differ: {hashes}", mend)
    return None


def _difference(experiment: Experiment, file: Path, digest: Digest) -> str:
    """Say how a file differs from its record, without parsing bytes that may be anything."""
    for job, record in experiment.records.items():
        for path, written in record.outputs.items():
            if written.sha256 == digest(file):
                return f"swapped: it holds what {job} wrote as {path}"
    if file.read_bytes()[-4:] != b"PAR1":
        return f"cut short or overwritten: its {file.stat().st_size} bytes do not end as Parquet does"
    return f"its bytes have changed (sha256 {digest(file)[:12]})"


def _stale(experiment: Experiment, job: str, record: Record, digest: Digest) -> Iterator[Finding]:
    inputs = {path: then for path, then in record.inputs.items() if not path.startswith(SOURCE)}
    now = {path: _current(experiment, path, digest) for path in inputs}
    earlier = [
        f"{path} ({then[:12]} then, {now[path][:12]} now)"
        for path, then in inputs.items()
        if then != now[path]
    ]
    if earlier:
        path = next(iter(record.outputs), f"{RECORDS}/{job}.json")
        detail = f"{job} made it from an earlier {', '.join(earlier)}"
        yield Finding(_shown(experiment, path), "stale", detail, _made_again(experiment, path))


def _current(experiment: Experiment, path: str, digest: Digest) -> str:
    """Give an input's content hash by its record; without one, by the file."""
    if written := experiment.written(path):
        return written.content_hash
    file = experiment.folder / path
    if not file.is_file():
        return "nothing"
    try:
        return artifact.recompute(file) if file.suffix == ".parquet" else digest(file)
    except UserError:
        return "unreadable"


def _backbone(experiment: Experiment, digest: Digest) -> Iterator[Finding]:
    """Check the backbone's files against the table that lists them, if that is whole itself."""
    table, written = experiment.folder / BACKBONE, experiment.written(BACKBONE)
    if written is None or not table.is_file() or digest(table) != written.sha256:
        return
    folder, mend = Path(BACKBONE).parent / "files", _made_again(experiment, BACKBONE)
    try:
        listed = artifact.read(table, tables.BACKBONE)
    except UserError as error:
        yield Finding(_shown(experiment, BACKBONE), "damaged", error.found, mend)
        return
    for name, size, sha256 in listed.iter_rows():
        file, shown = experiment.folder / folder / name, _shown(experiment, f"{folder}/{name}")
        if not file.is_file():
            yield Finding(shown, "missing", f"{BACKBONE} lists it, but it is not there", mend)
        elif file.stat().st_size != size:
            yield Finding(shown, "damaged", f"{file.stat().st_size} bytes instead of {size}", mend)
        elif digest(file) != sha256:
            yield Finding(shown, "damaged", f"its bytes have changed (sha256 {digest(file)[:12]})", mend)
    for name in sorted(set(files(experiment.folder / folder, "*")) - set(listed["file"])):
        shown = _shown(experiment, f"{folder}/{name}")
        yield Finding(shown, "unclaimed", f"{BACKBONE} does not list it", _removed(shown))


def _unclaimed(experiment: Experiment) -> Iterator[Finding]:
    """Find tables that no record claims; those of a job whose record is broken are that finding's."""
    explained = tuple(_folder(job) for job in experiment.broken)
    for path in files(experiment.folder, "*.parquet"):
        if path not in experiment.producers and not path.startswith(explained):
            detail = "no run record claims it; delete it if no rule makes it"
            yield Finding(_shown(experiment, path), "unclaimed", detail, _made_again(experiment, path))
