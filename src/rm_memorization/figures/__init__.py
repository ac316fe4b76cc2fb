"""The report's figures. Each is drawn from a table of its own, which is kept beside it, and from nothing else."""

from . import audits, groups, pairs, training
from .plot import Findings, Plot, save

PLOTS: dict[str, Plot] = pairs.PLOTS | groups.PLOTS | training.PLOTS | audits.PLOTS

__all__ = ["PLOTS", "Findings", "Plot", "save"]
