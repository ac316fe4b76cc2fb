"""The provenance table: every job's run record in one row."""

from pathlib import Path

import polars as pl

from . import results, tables
from .hashing import canonical_json

CIRCUMSTANCES = {
    "started",
    "wall_s",
    "cpu_s",
    "peak_memory_mb",
    "host",
    "device",
    "threads",
    "git_commit",
    "git_dirty",
}


def provenance(folder: Path) -> pl.DataFrame:
    """Gather the run records of an experiment.

    Parameters
    ----------
    folder
        ``results/<name>``.

    Returns
    -------
    pl.DataFrame
        Of the contract ``provenance``, sorted by job; versions, params, inputs and outputs are canonical JSON.

    Raises
    ------
    UserError
        If a record cannot be read.
    """
    experiment = results.load(folder)
    experiment.refuse_broken()
    rows = [_row(job, record) for job, record in sorted(experiment.records.items())]
    return pl.DataFrame(
        rows, schema={name: column.dtype.type for name, column in tables.PROVENANCE.columns.items()}
    )


def _row(job: str, record: results.Record) -> dict[str, object]:
    content = record.model_dump()
    return {
        "job": job,
        "stage": record.stage,
        **record.ran.model_dump(include=CIRCUMSTANCES),
        "versions": canonical_json(record.ran.versions),
        **{name: canonical_json(content[name]) for name in ("params", "inputs", "outputs")},
    }
