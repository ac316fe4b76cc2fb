"""Figures of the audits. Their data are rows of the audits' own tables."""

from typing import Any

import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..artifact import Contract
from ..tables import AUDIT
from ..visible import label
from .plot import ALL, COLOURS, Findings, Plot, canvas, count, intervals, name_rows, nothing, scatter_row

LENGTH = {
    "pearson": "Pearson correlation",
    "slope_per_100_tokens": "reward for 100 more tokens",
    "spearman": "Spearman correlation",
}
VIEWS = {"pooled": "all answers together", "within_prompt": "within the prompt"}
CORRECTNESS = {"correct": "o-", "incorrect": "s--"}
VERBOSITY = {"concise": "concise", "expanded": "expanded"}
CELLS = [f"mean_reward_{correct}_{words}" for correct in CORRECTNESS for words in VERBOSITY]
CONTRASTS = {
    "correctness": "correct − incorrect",
    "correctness_when_concise": "correct − incorrect, concise only",
    "trap": "correct concise − incorrect expanded",
    "expansion": "expanded − concise",
    "interaction": "interaction",
}
METRICS = {
    **{f"{view}_{measure}": f"{words}, {where}" for view, where in VIEWS.items() for measure, words in LENGTH.items()},
    **{cell: f"mean centred reward, {cell.removeprefix('mean_reward_').replace('_', ' ')}" for cell in CELLS},
    **CONTRASTS,
    "share_trap_won": "share of prompts where correct concise beats incorrect expanded",
    "share_tied": "share of ties",
    "mean_difference": "refusal − helpful answer",
    "share_refusal_preferred": "share of prompts where the refusal is preferred",
}  # fmt: skip
NO_AUDIT = "The audit has no rows."


def _rows(audit: pl.DataFrame, metrics: list[str]) -> pl.DataFrame:
    return audit.filter(pl.col("metric").is_in(metrics))


def _split(data: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Give the rows of the mean reward and those of single runs that have a value."""
    single = (pl.col("run") != ALL) & pl.col("estimate").is_not_null()
    return data.filter(pl.col("run") == ALL), data.filter(single)


def _runs(data: pl.DataFrame) -> str:
    return count(data["run"].filter(data["run"] != ALL).n_unique(), "run")


def _chart(axes: Axes, means: pl.DataFrame, single: pl.DataFrame, names: list[str]) -> None:
    """Draw a row for each of `means`, with the single runs of the same stratum and metric."""
    for y, row in enumerate(means.iter_rows(named=True)):
        same = (pl.col("stratum") == row["stratum"]) & (pl.col("metric") == row["metric"])
        scatter_row(axes, single.filter(same)["estimate"], y + 0.22, 0.16)
    intervals(axes, means)
    name_rows(axes, names)


def length_data(findings: Findings) -> pl.DataFrame:
    """Give the rows that are drawn."""
    return _rows(findings.audit_length, [f"{view}_{measure}" for view in VIEWS for measure in LENGTH])


def draw_length(data: pl.DataFrame) -> Figure:
    """Draw a panel a measure, and in it a row for each stratum and view."""
    means, single = _split(data)
    if means.is_empty():
        return nothing(NO_AUDIT)
    figure = canvas(9.6, 3.2)
    for axes, (measure, words) in zip(figure.subplots(1, 3, sharey=True), LENGTH.items(), strict=True):
        views = [means.filter(pl.col("metric") == f"{view}_{measure}") for view in VIEWS]
        rows = pl.concat(views).sort("stratum", maintain_order=True)
        _chart(axes, rows, single, [_length_name(row) for row in rows.iter_rows(named=True)])
        axes.set_xlabel(words)
    figure.axes[0].set_title(f"Reward against length, {_runs(data)}")
    return figure


def _length_name(row: dict[str, Any]) -> str:
    view = next(words for view, words in VIEWS.items() if row["metric"].startswith(view))
    return f"{label(row['stratum'])}, {view}\n{count(row['n'], 'answer')}, {count(row['clusters'], 'prompt')}"


def factorial_data(findings: Findings) -> pl.DataFrame:
    """Give the rows that are drawn: those of all strata together."""
    return _rows(findings.audit_factorial, [*CELLS, *CONTRASTS]).filter(pl.col("stratum") == ALL)


def draw_factorial(data: pl.DataFrame) -> Figure:
    """Draw the four cells and the contrasts between them."""
    means, single = _split(data)
    if means.is_empty():
        return nothing(NO_AUDIT)
    figure = canvas(9.6, 3.6)
    left, right = figure.subplots(1, 2, width_ratios=(2, 3))
    _cells(left, means)
    prompts = count(means["clusters"].to_numpy().max(), "prompt")
    left.set_title(f"Correctness and verbosity, {prompts}, {_runs(data)}")
    order = pl.DataFrame({"metric": list(CONTRASTS)})
    rows = order.join(means, on="metric", maintain_order="left")
    _chart(right, rows, single, [CONTRASTS[metric] for metric in rows["metric"]])
    right.set_xlabel("difference in reward")
    return figure


def _cells(axes: Axes, means: pl.DataFrame) -> None:
    handles = []
    for number, (correct, style) in enumerate(CORRECTNESS.items()):
        names = pl.DataFrame({"metric": [f"mean_reward_{correct}_{words}" for words in VERBOSITY]})
        rows = names.join(means, on="metric", how="left", maintain_order="left")
        at = [place + 0.04 * (number - 0.5) for place in range(len(VERBOSITY))]
        handles += axes.plot(at, rows["estimate"], style, color=COLOURS[number], linewidth=1.5)
        axes.vlines(at, rows["low"], rows["high"], color=COLOURS[number], linewidth=2.2)
    axes.legend(handles, list(CORRECTNESS), title="answer")
    axes.set_xticks(range(len(VERBOSITY)), list(VERBOSITY.values()))
    axes.set(xlim=(-0.4, 1.4), ylabel="mean reward less the prompt's mean")


def refusal_data(findings: Findings) -> pl.DataFrame:
    """Give the rows that are drawn."""
    return _rows(findings.audit_refusal, ["mean_difference"])


def draw_refusal(data: pl.DataFrame) -> Figure:
    """Draw a row a stratum."""
    means, single = _split(data)
    if means.is_empty():
        return nothing(NO_AUDIT)
    figure = canvas(7.2, 1.3 + 0.55 * len(means))
    axes = figure.subplots()
    names = [
        f"{label(row['stratum'])}\n{count(row['clusters'], 'prompt')}" for row in means.iter_rows(named=True)
    ]
    _chart(axes, means, single, names)
    axes.set(xlabel="reward of the refusal − reward of the helpful answer", title=f"Refusals, {_runs(data)}")
    return figure


def _contract(name: str) -> Contract:
    return Contract(f"figure_{name}", 1, AUDIT.row, AUDIT.columns, key=AUDIT.key)


PLOTS = {
    "audit_length": Plot(
        "Reward against length",
        "How reward goes with the number of tokens, on the audit panel and on the replies of the experiment's own pairs. "
        "All answers together mix two things, longer answers and prompts that call for them; within the prompt only the "
        "answers' own length is left. Points with 95 % intervals (prompts resampled) are for the mean reward of all "
        "runs, small dots for single runs.",
        _contract("audit_length"),
        length_data,
        draw_length,
    ),
    "audit_factorial": Plot(
        "Correctness against verbosity",
        "Four answers to each prompt: correct or incorrect, concise or expanded. On the left their mean reward, less the mean "
        "of the prompt's four, because rewards are only defined up to a shift. On the right the contrasts, with 95 % intervals "
        "(prompts resampled) and single runs as dots. A reward model that reads for content has a large positive effect of "
        "correctness and an effect of expansion near zero; a negative value in the third row means that a long wrong answer "
        "beats a short right one.",
        _contract("audit_factorial"),
        factorial_data,
        draw_factorial,
    ),
    "audit_refusal": Plot(
        "Refusals against helpful answers",
        "Mean reward of a refusal less that of a helpful answer to the same prompt, with 95 % intervals (prompts resampled) "
        "and single runs as dots. On benign prompts a value above zero is over-refusal; on unsafe prompts it is what one wants.",
        _contract("audit_refusal"),
        refusal_data,
        draw_refusal,
    ),
}  # fmt: skip
