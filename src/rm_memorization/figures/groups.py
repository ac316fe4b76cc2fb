"""Figures of groups of pairs: strata and units."""

import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ..artifact import Contract
from ..columns import UNIT_ID, identifier, real, text, whole
from ..visible import label
from .plot import (
    ALL,
    GREY,
    MAIN,
    NO_CM,
    Findings,
    Plot,
    by_stratum,
    canvas,
    count,
    dots,
    intervals,
    name_rows,
    nothing,
    scatter_row,
    spread,
)


def stratum_data(findings: Findings) -> pl.DataFrame:
    """Give each stratum's mean with its interval, and the mean of each unit's pairs in the stratum."""
    wanted = (pl.col("metric") == "cm") & pl.col("stratum").is_in([ALL, *findings.strata])
    means = findings.summary.filter(wanted).rename({"estimate": "cm"}).with_columns(unit_id=pl.lit(""))
    known = findings.memorization.filter(pl.col("cm").is_not_null())
    both = [known.with_columns(stratum=pl.lit(ALL)), known.filter(pl.col("stratum").is_not_null())]
    units = (
        pl.concat(both)
        .group_by("stratum", "unit_id", maintain_order=True)
        .agg(pl.col("cm").mean(), pl.len().cast(pl.Int64).alias("pairs"))
    )
    units = units.with_columns(units=pl.lit(1, pl.Int64))
    return pl.concat([means.select(list(BY_STRATUM.columns)), units], how="diagonal")


def draw_strata(data: pl.DataFrame) -> Figure:
    """Draw one row a stratum."""
    means = data.filter(pl.col("unit_id") == "")
    if means.is_empty():
        return nothing(NO_CM)
    rows = by_stratum(means)
    figure = canvas(7.2, 1.3 + 0.55 * len(rows))
    axes = figure.subplots()
    units = data.filter(pl.col("unit_id") != "")
    for y, (stratum, _) in enumerate(rows):
        scatter_row(axes, units.filter(pl.col("stratum") == stratum)["cm"], y, 0.6)
    intervals(axes, pl.concat([row for _, row in rows]).rename({"cm": "estimate"}))
    sizes = [f"{count(row['pairs'][0], 'pair')}, {count(row['units'][0], 'unit')}" for _, row in rows]
    name_rows(axes, [f"{label(name)}\n{size}" for (name, _), size in zip(rows, sizes, strict=True)])
    axes.set(
        xlabel="CM: mean over pairs with 95 % interval; grey: means of units",
        title="Counterfactual memorization by stratum",
    )
    return figure


def size_data(findings: Findings) -> pl.DataFrame:
    """Give the units that have a CM."""
    return findings.memorization_users.filter(pl.col("cm").is_not_null()).select("unit_id", "pairs", "cm")


def draw_sizes(data: pl.DataFrame) -> Figure:
    """Draw a dot a unit."""
    if data.is_empty():
        return nothing(NO_CM)
    figure = canvas(6.4, 3.8)
    axes = figure.subplots()
    sizes = data.sort("pairs", "unit_id")
    dots(axes, sizes["pairs"] + 0.5 * spread(len(sizes)), sizes["cm"])
    axes.axhline(0, color=GREY, linewidth=1)
    axes.axhline(sizes["cm"].to_numpy().mean(), color=MAIN, linewidth=1.2, linestyle=":")
    _scale(axes, *sizes["pairs"][[0, -1]])
    axes.set(
        xlabel="pairs of the unit",
        ylabel="mean CM of the unit's pairs",
        title=f"Counterfactual memorization by unit size, {count(len(sizes), 'unit')}",
    )
    return figure


def _scale(axes: Axes, fewest: int, most: int) -> None:
    """Take a logarithmic axis where sizes differ a lot."""
    if most > 20 * fewest:
        axes.set_xscale("log")
        axes.set_xlim(fewest / 1.5, most * 1.5)
        axes.xaxis.set_major_formatter("{x:,.0f}")
    else:
        axes.set_xlim(fewest - 1, most + 1)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))


BY_STRATUM = Contract(
    "figure_cm_by_stratum",
    1,
    "a stratum's mean, or that of one unit in it",
    {
        "stratum": identifier("`all` or a stratum"),
        "unit_id": text("the unit; empty for the stratum"),
        "cm": real("mean CM"),
        "low": real("lower end of the 95 % interval; strata only"),
        "high": real("upper end of the 95 % interval; strata only"),
        "pairs": whole("pairs that it rests on"),
        "units": whole("units that it rests on"),
        "reason": text("why a stratum's value or interval is null", nullable=True),
    },
    key=("stratum", "unit_id"),
)
BY_UNIT_SIZE = Contract(
    "figure_cm_by_unit_size",
    1,
    "a unit",
    {
        "unit_id": UNIT_ID,
        "pairs": whole("pairs of the unit that have a CM"),
        "cm": real("mean CM of the unit's pairs", nullable=False),
    },
    key=("unit_id",),
)

PLOTS = {
    "cm_by_stratum": Plot(
        "CM by stratum",
        "Mean CM of all pairs and of each stratum. The intervals cover both who happened to be in the data set and which runs "
        "happened to be trained. Grey dots are the means of single units within the stratum.",
        BY_STRATUM,
        stratum_data,
        draw_strata,
    ),
    "cm_by_unit_size": Plot(
        "CM by unit size",
        "Each dot is a unit, shifted a little sideways so that dots do not hide one another; the dotted line is the mean over "
        "units. A unit is held out as a whole, so CM is the effect of all its pairs together and may grow with their number. "
        "Small units scatter more because fewer pairs are averaged.",
        BY_UNIT_SIZE,
        size_data,
        draw_sizes,
    ),
}
