"""Figures of pairs: TM against TG, and how CM spreads."""

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.colorbar import Colorbar
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.patches import StepPatch
from matplotlib.ticker import LogLocator
from pandera.polars import Check, Column

from ..artifact import Contract
from ..columns import identifier, real, whole
from ..visible import label
from .plot import (
    ALL,
    COLOURS,
    GREY,
    INK,
    NO_CM,
    Findings,
    Plot,
    by_stratum,
    canvas,
    count,
    nothing,
)

MAP_BINS = 40
SCALE = "probability of the chosen reply"
MOST_OVERLAID = 6


def _edge(description: str) -> Column:
    return real(description, nullable=False)


def map_data(findings: Findings) -> pl.DataFrame:
    """Count pairs with a CM in square bins of TM and TG."""
    known = findings.memorization.filter(pl.col("cm").is_not_null())
    bins = [(pl.col(name) * MAP_BINS).floor().clip(0, MAP_BINS - 1).alias(name) for name in ("tg", "tm")]
    counts = known.group_by(bins).agg(pl.len().cast(pl.Int64).alias("pairs"))
    edges = {
        f"{name}_{end}": ((pl.col(name) + step) / MAP_BINS).round(3)
        for name in ("tg", "tm")
        for end, step in (("low", 0), ("high", 1))
    }
    return counts.select(**edges, pairs="pairs")


def draw_map(data: pl.DataFrame) -> Figure:
    """Draw the bins, with the sums over rows and columns at the sides."""
    if data.is_empty():
        return nothing(NO_CM)
    figure = canvas(6.4, 5.6)
    grid = figure.add_gridspec(2, 3, width_ratios=(6, 1, 0.2), height_ratios=(1, 6))
    axes = figure.add_subplot(grid[1, 0])
    _squares(axes, figure.add_subplot(grid[1, 2]), data)
    axes.plot([0, 1], [0, 1], color=INK, linewidth=0.8, linestyle="--")
    axes.text(0.03, 0.97, "TM > TG: memorized", va="top", color=GREY)
    axes.text(0.97, 0.03, "TM < TG", ha="right", color=GREY)
    axes.set(
        xlim=(0, 1), ylim=(0, 1), xlabel=f"TG: {SCALE}, user held out", ylabel=f"TM: {SCALE}, pair trained on"
    )
    above = figure.add_subplot(grid[0, 0], sharex=axes)
    above.set_title(f"Training against generalisation, {count(int(data['pairs'].sum()), 'pair')}")
    _margin(above, data, "tg", "vertical")
    _margin(figure.add_subplot(grid[1, 1], sharey=axes), data, "tm", "horizontal")
    return figure


def _squares(axes: Axes, bar: Axes, data: pl.DataFrame) -> None:
    """Draw a square a bin, and a bar that explains the colours."""
    ends = [("tg_low", "tm_low"), ("tg_high", "tm_low"), ("tg_high", "tm_high"), ("tg_low", "tm_high")]
    corners = list(np.stack([data.select(corner).to_numpy() for corner in ends], axis=1))
    pairs = data["pairs"].to_numpy()
    norm = LogNorm(0.3, max(2, pairs.max()))  # from below one, so that single pairs are seen
    drawn = PolyCollection(corners, array=pairs, norm=norm, cmap="Blues", edgecolors="face", linewidths=0.3)
    axes.add_collection(drawn)
    Colorbar(bar, drawn, format="{x:,.0f}", ticks=LogLocator(subs=(1, 2, 5)), label="pairs in a bin")
    bar.set_ylim(1, max(2, pairs.max()))
    bar.minorticks_off()


def _margin(axes: Axes, data: pl.DataFrame, name: str, orientation: str) -> None:
    sums = data.group_by(f"{name}_low").agg(pl.col("pairs").sum()).sort(f"{name}_low")
    bars = axes.bar if orientation == "vertical" else axes.barh
    bars(sums[f"{name}_low"] + 0.5 / MAP_BINS, sums["pairs"], 0.9 / MAP_BINS, color=GREY)
    axes.set_axis_off()


def histogram_data(findings: Findings) -> pl.DataFrame:
    """Count pairs by CM in bins that have an edge at zero: in each stratum if there are a few, else in all."""
    known = findings.memorization.filter(pl.col("cm").is_not_null())
    groups = {ALL: known}
    if 1 < len(findings.strata) <= MOST_OVERLAID:
        groups |= {name: known.filter(pl.col("stratum") == name) for name in findings.strata}
    width = _width(known["cm"].to_numpy())
    return pl.concat([_binned(name, group["cm"], known["cm"], width) for name, group in groups.items()])


def _width(cm: np.ndarray) -> float:
    """Give the width of a bin by Freedman and Diaconis's rule, in whole hundredths between 0.01 and 0.1."""
    lower, upper = np.quantile(cm, [0.25, 0.75]) if len(cm) else (0, 0)
    width = 2 * (upper - lower) / max(1, len(cm)) ** (1 / 3)
    return float(np.clip(np.ceil(width * 100), 1, 10)) / 100


def _binned(stratum: str, cm: pl.Series, of_all: pl.Series, width: float) -> pl.DataFrame:
    """Count values in bins that lie at multiples of the width and cover those of all pairs."""
    every, own = ((values / width).floor().cast(pl.Int64) for values in (of_all, cm))
    first, last = (every.min(), every.max()) if len(every) else (0, 0)
    bins = pl.DataFrame({"bin": pl.int_range(first, last + 1, eager=True)})  # type: ignore[operator, arg-type]
    counted = bins.select(
        "bin", pairs=pl.Series(np.bincount(own - first, minlength=len(bins)), dtype=pl.Int64)
    )
    edges = {"low": (pl.col("bin") * width).round(2), "high": ((pl.col("bin") + 1) * width).round(2)}
    return counted.select("pairs", **edges, stratum=pl.lit(stratum), mean=pl.lit(cm.mean(), pl.Float64))


def draw_histogram(data: pl.DataFrame) -> Figure:
    """Draw all pairs as an area and each stratum as a line, as shares."""
    if not data["pairs"].sum():
        return nothing(NO_CM)
    strata = by_stratum(data)
    figure = canvas(7.2, 3.8 + 0.22 * len(strata))
    axes = figure.subplots()
    handles, labels = [], []
    axes.axvline(0, color=INK, linewidth=1)
    for colour, (stratum, bins) in zip((GREY, *COLOURS), strata, strict=False):
        pairs = int(bins["pairs"].sum())
        if pairs:
            handles.append(_steps(axes, bins, colour, filled=stratum == ALL))
            labels.append(f"{label(stratum)}: {count(pairs, 'pair')}, mean {bins['mean'][0]:.3f}")
    figure.legend(handles, labels, loc="outside lower left")
    axes.set(
        xlabel="CM: TM − TG", ylabel="share of the pairs (%)", title="Counterfactual memorization of pairs"
    )
    axes.set_ylim(bottom=0)
    return figure


def _steps(axes: Axes, bins: pl.DataFrame, colour: str, *, filled: bool) -> StepPatch:
    edges = [*bins["low"], bins["high"][-1]]
    axes.axvline(bins["mean"][0], color=colour, linewidth=1.3, linestyle=":")
    shares = 100 * bins["pairs"] / bins["pairs"].sum()
    return axes.stairs(shares, edges, color=colour, fill=filled, alpha=0.4 if filled else 1.0, linewidth=1.5)


MAP = Contract(
    "figure_memorization_map",
    1,
    "a bin that holds pairs",
    {
        "tg_low": _edge("lower edge in TG"),
        "tg_high": _edge("upper edge in TG"),
        "tm_low": _edge("lower edge in TM"),
        "tm_high": _edge("upper edge in TM"),
        "pairs": Column(pl.Int64, Check.ge(1), description="pairs in the bin"),
    },
    key=("tg_low", "tm_low"),
)
HISTOGRAM = Contract(
    "figure_cm_histogram",
    1,
    "a bin of a stratum",
    {
        "stratum": identifier("`all` or a stratum"),
        "low": _edge("lower edge in CM"),
        "high": _edge("upper edge in CM"),
        "pairs": whole("pairs in the bin"),
        "mean": real("mean CM of the stratum; null if no pair has one"),
    },
    key=("stratum", "low"),
)

PLOTS = {
    "memorization_map": Plot(
        "Memorization map",
        "Each pair lies where its training probability TM (upwards) meets its held-out probability TG (to the right); darker "
        "bins hold more pairs, on a logarithmic scale, and the grey bars sum over rows and columns. On the dashed line "
        "training on the user changes nothing. Pairs at the top right are easy; pairs at the top left are right only "
        "when their user was trained on: they are memorized.",
        MAP,
        map_data,
        draw_map,
    ),
    "cm_histogram": Plot(
        "Distribution of CM",
        "How CM spreads over pairs, as shares, so that strata of different size compare; the area is all pairs. The solid "
        "vertical line marks zero, dotted ones the means. A pair's own CM is noisy: the spread holds both real differences "
        "and the noise of a handful of runs, so a wide histogram alone is no evidence of memorization.",
        HISTOGRAM,
        histogram_data,
        draw_histogram,
    ),
}
