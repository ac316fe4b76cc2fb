"""lineage: what a result was made from, down to the source files."""

from pathlib import Path
from typing import Annotated

import typer

from . import artifact
from .errors import UserError
from .results import Experiment, enclosing


def lineage(artifact_path: Annotated[Path, typer.Argument(help="A table below results/<name>.")]) -> None:
    """Print the ancestry of a table as a tree, by the run records; an ancestor is expanded where it first appears."""
    experiment = enclosing(artifact_path.absolute())
    experiment.refuse_broken()
    path = artifact_path.absolute().relative_to(experiment.folder).as_posix()
    written = experiment.written(path)
    if written is None:
        raise UserError(
            str(artifact_path),
            "no run record claims it",
            hint="give a table; a figure's lies beside it as Parquet",
        )
    if artifact.footer(artifact_path)["content_hash"] != written.content_hash:
        raise UserError(
            str(artifact_path),
            "it is not the table that the run record describes",
            hint="run `rm-memorization verify`",
        )
    for line in tree(experiment, path):
        typer.echo(line)


def tree(experiment: Experiment, path: str) -> list[str]:
    """Draw the ancestry of a table.

    Parameters
    ----------
    experiment
        Its records.
    path
        A table that a record claims, relative to the experiment's folder.

    Returns
    -------
    list of str
        A line each: path, content hash, and of the job that made it the stage, the start and the digest of its
        parameters. Inputs that stand further up already share one line.
    """
    written = experiment.written(path)
    digest = written.content_hash if written else ""
    return [_line(experiment, path, digest), *_branches(experiment, path, digest, {(path, digest)})]


def _line(experiment: Experiment, path: str, digest: str) -> str:
    written, job = experiment.written(path), experiment.producers.get(path)
    if written is None or job is None:
        return f"{path}  {digest[:12]}"
    if written.content_hash != digest:
        return f"{path}  {digest[:12]}  since made anew as {written.content_hash[:12]}"
    record = experiment.records[job]
    return f"{path}  {digest[:12]}  {record.stage}  {record.ran.started}  params {record.params_digest[:12]}"


def _branches(experiment: Experiment, path: str, digest: str, seen: set[tuple[str, str]]) -> list[str]:
    """Draw a table's inputs; an earlier version of a table is a leaf, for its record is gone."""
    written = experiment.written(path)
    if written is None or written.content_hash != digest:
        return []
    blocks, above = [], []
    for item in experiment.records[experiment.producers[path]].inputs.items():
        if item in seen:
            above.append(item[0])
        else:
            seen.add(item)
            blocks.append([_line(experiment, *item), *_branches(experiment, *item, seen)])
    if above:
        blocks.append([f"see above: {', '.join(above)}"])
    return _hang(blocks)


def _hang(blocks: list[list[str]]) -> list[str]:
    """Hang subtrees on one branch; the first line of each is its root."""
    lines = []
    for index, (root, *below) in enumerate(blocks):
        knot, rope = ("└─ ", "   ") if index == len(blocks) - 1 else ("├─ ", "│  ")
        lines += [knot + root, *(rope + line for line in below)]
    return lines
