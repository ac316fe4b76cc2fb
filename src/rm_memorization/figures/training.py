"""The figure of the reward models' training."""

import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from pandera.polars import Check, Column

from ..artifact import Contract
from ..columns import RUN, identifier, real
from .plot import GREY, INK, Findings, Plot, canvas, count, nothing

METRICS = {"loss": "loss", "accuracy": "share of the batch ranked right"}
WINDOWS = 100


def curve_data(findings: Findings) -> pl.DataFrame:
    """Average loss and accuracy of each run over windows of steps, so that no more than a hundred points a curve are left."""
    logs = [frame.with_columns(run=pl.lit(run)) for run, frame in findings.training_logs.items()]
    logged = pl.concat(logs).filter(pl.col("metric").is_in(list(METRICS)))
    last = logged["step"].to_numpy().max(initial=1)
    width = int(-(-last // WINDOWS))
    window = logged.sort("step").group_by("run", "metric", (pl.col("step") - 1) // width, maintain_order=True)
    averaged = window.agg(
        pl.col("step").max().alias("last"), pl.len().cast(pl.Int64).alias("steps"), pl.col("value").mean()
    )
    return averaged.select("run", "metric", "steps", "value", step="last")


def draw_curves(data: pl.DataFrame) -> Figure:
    """Draw a panel a metric and a line a run."""
    if data.is_empty():
        return nothing("No training was logged.")
    figure = canvas(8.4, 3.4)
    for axes, (metric, words) in zip(figure.subplots(1, 2), METRICS.items(), strict=True):
        _panel(axes, data.filter(pl.col("metric") == metric))
        axes.set(xlabel="optimizer step", ylabel=words)
    runs, steps = data["run"].n_unique(), data["steps"].to_numpy().max()
    mean = f", means over {steps} steps" if steps > 1 else ""
    figure.axes[0].set_title(f"Reward model training, {count(runs, 'run')}{mean}")
    return figure


def _panel(axes: Axes, curves: pl.DataFrame) -> None:
    for _, curve in curves.group_by("run", maintain_order=True):
        axes.plot(curve["step"], curve["value"], color=GREY, linewidth=0.7, alpha=0.7)
    middle = curves.group_by("step").agg(pl.col("value").median()).sort("step")
    axes.plot(middle["step"], middle["value"], color=INK, linewidth=1.6)


CURVES = Contract(
    "figure_training_curves",
    1,
    "a metric of a run over a window of steps",
    {
        "run": RUN,
        "metric": identifier("loss or accuracy"),
        "step": Column(pl.Int64, Check.ge(0), description="last step of the window"),
        "steps": Column(pl.Int64, Check.ge(1), description="logged steps in the window"),
        "value": real("mean over the window", nullable=False),
    },
    key=("run", "metric", "step"),
)

PLOTS = {
    "training_curves": Plot(
        "Training of the reward models",
        "Loss and accuracy on the batches that the reward model trains on, one thin line a run; the dark line is the median over the "
        "runs. Long trainings are shown as means over windows of steps. Runs should agree: one that stands apart deserves a look "
        "before its scores enter TM and TG.",
        CURVES,
        curve_data,
        draw_curves,
    )
}
