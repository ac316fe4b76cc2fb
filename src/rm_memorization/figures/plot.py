"""What every figure has: its data under a contract, its drawing, its words; and the tables that figures draw on."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import matplotlib.style
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..artifact import Contract
from ..files import write_atomically

ALL = "all"
NO_CM = "No pair has a CM."
# Okabe and Ito's palette, which the colour-blind can tell apart.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
MAIN = COLOURS[0]
GREY, INK = "#7f8793", "#2b2f36"
STYLE = {
    "svg.hashsalt": "rm-memorization",
    "svg.fonttype": "none",
    "text.parse_math": False,  # a dollar sign in a name is a dollar sign
    "text.color": INK,
    "font.family": ["DejaVu Sans"],
    "font.size": 9.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": GREY,
    "axes.labelcolor": INK,
    "axes.titlesize": 10.5,
    "axes.titlelocation": "left",
    "axes.titlepad": 10.0,
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": "#e8eaee",
    "xtick.color": GREY,
    "ytick.color": GREY,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "legend.frameon": False,
}
METADATA = dict.fromkeys(("Creator", "Date", "Format", "Type"))


@dataclass(frozen=True)
class Findings:
    """The tables that the report shows, each of the contract that bears its name.

    Parameters
    ----------
    pairs
        Columns pair_id, prompt, chosen and rejected suffice.
    dropped
        All ledgers, one under the other.
    training_logs
        The reward models' logs, by run.
    """

    pairs: pl.DataFrame
    dropped: pl.DataFrame
    memorization: pl.DataFrame
    memorization_users: pl.DataFrame
    summary: pl.DataFrame
    certificate: pl.DataFrame
    training_logs: dict[str, pl.DataFrame]
    audit_length: pl.DataFrame
    audit_factorial: pl.DataFrame
    audit_refusal: pl.DataFrame

    @property
    def strata(self) -> list[str]:
        """Names of the strata, sorted; empty where the data set has none."""
        return self.memorization["stratum"].drop_nulls().unique().sort().to_list()


@dataclass(frozen=True)
class Plot:
    """A figure.

    Parameters
    ----------
    title, caption
        For the page.
    contract
        Of its data.
    data
        Picks or computes what is drawn.
    draw
        Draws that and nothing else.
    """

    title: str
    caption: str
    contract: Contract
    data: Callable[[Findings], pl.DataFrame]
    draw: Callable[[pl.DataFrame], Figure]


def save(plot: Plot, data: pl.DataFrame, path: Path) -> None:
    """Draw a figure and write it as SVG: equal data give equal bytes.

    Parameters
    ----------
    plot
        The figure.
    data
        Of its contract.
    path
        Where it goes.
    """
    with matplotlib.style.context(["default", STYLE]), warnings.catch_warnings():
        # The font that measures the text lacks a glyph; the reader's browser writes the text with its own fonts.
        warnings.filterwarnings("ignore", "Glyph .* missing from", UserWarning)
        figure = plot.draw(data)
        with write_atomically(path) as temporary:
            figure.savefig(temporary, format="svg", metadata=METADATA)


def canvas(width: float, height: float) -> Figure:
    """Give an empty figure, measured in inches."""
    return Figure(figsize=(width, height), layout="constrained")


def nothing(message: str) -> Figure:
    """Give a figure that says why there is nothing to draw."""
    figure = canvas(6.4, 1.2)
    figure.text(0.5, 0.5, message, ha="center", va="center", color=GREY)
    return figure


def by_stratum(data: pl.DataFrame) -> list[tuple[str, pl.DataFrame]]:
    """Give the rows of `all`, then those of each stratum."""
    strata = data["stratum"].unique().sort()
    names = [ALL, *strata.filter(strata != ALL)]
    return [(name, data.filter(pl.col("stratum") == name)) for name in names]


def count(number: int, noun: str) -> str:
    """Write a number of things.

    Examples
    --------
    >>> count(1, "pair"), count(2000, "pair")
    ('1 pair', '2,000 pairs')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def intervals(axes: Axes, rows: pl.DataFrame, colour: str = MAIN) -> None:
    """Draw estimates with their intervals, one below the other; where one is null its reason stands instead.

    Parameters
    ----------
    axes
        Where to.
    rows
        Columns estimate, low, high, reason; the first row is drawn at y = 0, the next at y = 1.
    colour
        Of points and lines.
    """
    for y, (value, low, high, reason) in enumerate(
        rows.select("estimate", "low", "high", "reason").iter_rows()
    ):
        if low is not None:
            axes.plot([low, high], [y, y], color=colour, linewidth=2.2, solid_capstyle="butt")
        if value is not None:
            axes.plot(value, y, "o", color=colour, markersize=6)
        if reason is not None:
            note = f"no {'value' if value is None else 'interval'}: {reason}"
            axes.text(
                0.99,
                y - 0.14,
                note,
                transform=axes.get_yaxis_transform(),
                ha="right",
                color=GREY,
                fontsize=7.5,
            )


def name_rows(axes: Axes, names: list[str]) -> None:
    """Name the rows of a chart of intervals, the first on top, and mark zero."""
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.grid(visible=False, axis="y")
    axes.axvline(0, color=GREY, linewidth=1, zorder=0)


def spread(number: int) -> pl.Series:
    """Give offsets between −0.5 and 0.5 that are spread evenly and look random without being so."""
    golden = 0.6180339887498949
    return pl.int_range(1, number + 1, eager=True) * golden % 1 - 0.5


def scatter_row(axes: Axes, values: pl.Series, y: float, height: float) -> None:
    """Draw single values as small dots around a row's height."""
    dots(axes, values, y + height * spread(len(values)))


def dots(axes: Axes, x: pl.Series, y: pl.Series) -> None:
    """Draw many small dots; from some thousands on as pixels, or the file would outgrow the page."""
    many = 3000
    axes.plot(
        x,
        y,
        "o",
        color=GREY,
        alpha=0.5,
        markersize=3.6,
        markeredgewidth=0,
        zorder=1,
        rasterized=len(x) > many,
    )
