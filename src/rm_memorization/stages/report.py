"""report: the figures, the page of results and the page of jobs."""

from pathlib import Path
from typing import Annotated

import polars as pl
import typer

from .. import artifact, options, tables
from ..figure_names import FIGURES
from ..figures import PLOTS, Findings, save
from ..files import write_atomically
from ..page import index_page, provenance_page
from ..panels import by_run
from ..provenance import provenance
from ..record import recorded

Table = Annotated[Path, typer.Option(help="Table of this name.")]
TEXTS = ["pair_id", "prompt", "chosen", "rejected"]


def report(  # noqa: PLR0913, PLR0917 - one option a table
    pairs: options.Pairs,
    memorization: Table,
    memorization_users: Table,
    summary: Table,
    certificate: Table,
    dropped: options.Ledgers,
    run: options.Runs,
    training_log: options.RunTables,
    audit_length: Table,
    audit_factorial: Table,
    audit_refusal: Table,
    records: Annotated[Path, typer.Option(help="Folder of run records: <experiment>/run_records.")],
    folder: Annotated[Path, typer.Option(help="Folder to write to.")],
    name: Annotated[str, typer.Option(help="The experiment's name.")],
    top: Annotated[
        int, typer.Option(min=0, help="Pairs of the highest and of the lowest CM that are shown.")
    ],
    record: options.Record = None,
) -> None:
    """Write figures, pages and the provenance table."""
    with recorded("report", record, name=name, runs=run, top=top):
        findings = Findings(
            pairs=artifact.read(pairs, tables.PAIRS, TEXTS),
            dropped=pl.concat([artifact.read(path, tables.DROPPED) for path in dropped]),
            memorization=artifact.read(memorization, tables.MEMORIZATION),
            memorization_users=artifact.read(memorization_users, tables.MEMORIZATION_USERS),
            summary=artifact.read(summary, tables.SUMMARY),
            certificate=artifact.read(certificate, tables.CERTIFICATE),
            training_logs={
                key: artifact.read(path, tables.TRAINING_LOG)
                for key, path in by_run(run, training_log, "training-log").items()
            },
            audit_length=artifact.read(audit_length, tables.AUDIT),
            audit_factorial=artifact.read(audit_factorial, tables.AUDIT),
            audit_refusal=artifact.read(audit_refusal, tables.AUDIT),
        )
        figures = {figure: draw(figure, findings, folder) for figure in FIGURES}
        _write(folder / "index.html", index_page(name, findings, figures, top))
        write_provenance(name, records.parent, folder)


def draw(figure: str, findings: Findings, folder: Path) -> str:
    """Write a figure's data and draw it from them; gives the SVG."""
    plot, data, drawing = PLOTS[figure], folder / f"{figure}.parquet", folder / f"{figure}.svg"
    frame = plot.data(findings).sort(plot.contract.key)
    artifact.write(frame, plot.contract, data)
    save(plot, frame, drawing)
    return drawing.read_text(encoding="utf-8")


def write_provenance(name: str, experiment: Path, folder: Path) -> None:
    """Write what the run records say of all jobs but this one, which is still running."""
    jobs = provenance(experiment).filter(pl.col("stage") != "report")
    artifact.write(jobs, tables.PROVENANCE, folder / "provenance.parquet")
    _write(folder / "provenance.html", provenance_page(name, jobs))


def _write(path: Path, text: str) -> None:
    with write_atomically(path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")
