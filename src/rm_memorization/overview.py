"""What a finished experiment found, on one screen."""

from pathlib import Path
from typing import Annotated, Any

import polars as pl
import typer

from . import artifact, tables
from .provenance import provenance
from .strata import ALL

SLOWEST = 5


def overview(folder: Annotated[Path, typer.Argument(help="The experiment: results/<name>.")]) -> None:
    """Print where the results are, the main numbers and the slowest steps."""
    summary = artifact.read(folder / "aggregate_cm" / "summary.parquet", tables.SUMMARY)
    places = {
        "report": folder / "report" / "index.html",
        "every pair": folder / "aggregate_cm" / "memorization.parquet",
        "every unit": folder / "aggregate_cm" / "memorization_users.parquet",
        "summary": folder / "aggregate_cm" / "summary.parquet",
    }
    lines = [f"{name:<12} {path}" for name, path in places.items()]
    typer.echo("\n".join([*lines, "", *numbers(summary), "", *slowest(provenance(folder))]))


def numbers(summary: pl.DataFrame) -> list[str]:
    """Mean TM, TG and CM by stratum and the strata's differences, a line each.

    Parameters
    ----------
    summary
        A table of this contract.
    """
    means = summary.filter(pl.col("metric").is_in(["tm", "tg", "cm"]))
    means = means.sort(pl.col("stratum") != ALL, "stratum")
    rows = means.with_columns(
        text=pl.struct("estimate", "low", "high", "reason").map_elements(_interval, return_dtype=pl.String)
    )
    wide = rows.pivot(on="metric", index=["stratum", "pairs", "units"], values="text", maintain_order=True)
    width = max(len("stratum"), *map(len, wide["stratum"]))
    header = f"{'stratum':<{width}} {'pairs':>6} {'units':>5}  {'TM':<23} {'TG':<23} CM = TM - TG"
    columns = [
        wide[name] if name in wide.columns else pl.Series([None] * wide.height) for name in ("tm", "tg", "cm")
    ]
    cells = zip(wide["stratum"], wide["pairs"], wide["units"], *columns, strict=True)
    return [
        header,
        *(
            f"{s:<{width}} {n:>6} {u:>5}  {tm or '':<23} {tg or '':<23} {cm or ''}".rstrip()
            for s, n, u, tm, tg, cm in cells
        ),
    ]


def _interval(row: dict[str, Any]) -> str:
    if row["estimate"] is None:
        return f"- ({row['reason']})"
    if row["low"] is None:
        return f"{row['estimate']:.3f} ({row['reason']})"
    return f"{row['estimate']:.3f} [{row['low']:.3f}, {row['high']:.3f}]"


def slowest(jobs: pl.DataFrame) -> list[str]:
    """Name the stages that took longest, a line each.

    Parameters
    ----------
    jobs
        A table of the provenance contract.
    """
    stages = jobs.group_by("stage").agg(
        pl.len(), pl.col("wall_s").sum(), pl.col("wall_s").max().alias("longest")
    )
    rows = stages.sort("wall_s", "stage", descending=[True, False]).head(SLOWEST)
    return [
        "slowest steps",
        *(
            f"{stage:<14} {jobs:>3} jobs {wall:>8.1f} s, longest {longest:.1f} s"
            for stage, jobs, wall, longest in rows.iter_rows()
        ),
    ]
