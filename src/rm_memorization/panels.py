"""Audit panels: their answers, their rewards under every run, and the table that an audit writes."""

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from . import artifact, tables
from .errors import UserError
from .readers.formats import read_rows
from .readers.rows import show
from .resampling import Estimate

TYPES = {name: bool if name == "content_checked" else str for name in tables.PANEL.columns}
CELLS = {
    "factorial": ("correct_concise", "correct_expanded", "incorrect_concise", "incorrect_expanded"),
    "refusal": ("refusal", "helpful"),
}
PANELS = ("length", *CELLS)
REFUSAL_STRATA = ("benign_plain", "benign_safety_terms", "unsafe_control")
FORMATS = (".jsonl", ".parquet")
ALL = "all"
Row = tuple[str, dict[str, Any]]


def read_panels(paths: Sequence[Path]) -> pl.DataFrame:
    """Read panel files.

    Parameters
    ----------
    paths
        JSON lines (``.jsonl``) or Parquet (``.parquet``) with the columns of the contract ``panel``; an item's answers
        may stand in several files.

    Returns
    -------
    DataFrame
        Contract ``panel``, in key order.

    Raises
    ------
    UserError
        For the first thing that is wrong, with its file and row.
    """
    rows = [(f"{path}:{number}", row) for path in paths for number, row in read_rows(path, FORMATS)]
    for where, row in rows:
        _check_row(where, row)
    for item in _items(rows).values():
        _check_item(item)
    schema = {name: pl.Boolean if kind is bool else pl.String for name, kind in TYPES.items()}
    return pl.DataFrame([row for _, row in rows], schema=schema).sort(tables.PANEL.key)


def _check_row(where: str, row: dict[str, Any]) -> None:
    _check_columns(where, row)
    for name, kind in TYPES.items():
        _check_value(where, name, row[name], kind)
    _check_known(where, "panel", row["panel"], PANELS)
    _check_known(where, "cell", row["cell"], CELLS.get(row["panel"], (row["cell"],)))
    if row["panel"] == "refusal":
        _check_known(where, "stratum", row["stratum"], REFUSAL_STRATA)
    if row["stratum"] == ALL:
        raise UserError(
            where, f"column 'stratum' holds {ALL!r}", "the audits use this name for all strata together"
        )


def _check_value(where: str, name: str, value: Any, kind: type) -> None:
    found = f"column {name!r} holds {show(value)}"
    if not isinstance(value, kind):
        raise UserError(where, f"{found} ({type(value).__name__})", hint=f"it must be {kind.__name__}")
    if value is False:
        raise UserError(where, found, hint="read the answer, and set true if it may be scored")
    if isinstance(value, str) and not value.strip():
        raise UserError(where, f"{found}, which is empty")
    if isinstance(value, str) and value.encode(errors="replace").decode() != value:
        raise UserError(where, f"{found}, which holds half a surrogate pair and is no Unicode text")


def _check_columns(where: str, row: dict[str, Any]) -> None:
    for name in sorted(set(row) - set(TYPES)):
        raise UserError(where, f"unknown column {name!r}", hint=_nearest(name, TYPES))
    for name in TYPES:
        if name not in row:
            raise UserError(
                where, f"column {name!r} is missing", hint=f"a panel has the columns {', '.join(TYPES)}"
            )


def _check_known(where: str, column: str, value: str, known: Iterable[str]) -> None:
    if value not in known:
        raise UserError(where, f"column {column!r} holds {value!r}", hint=_nearest(value, known))


def _nearest(value: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(value, list(known), n=1)
    return f"did you mean {near[0]!r}?" if near else f"known: {', '.join(known)}"


def _items(rows: list[Row]) -> dict[tuple[str, str], list[Row]]:
    items: dict[tuple[str, str], list[Row]] = {}
    for where, row in rows:
        items.setdefault((row["panel"], row["item_id"]), []).append((where, row))
    return items


def _check_item(rows: list[Row]) -> None:
    """Check that an item's answers belong together and that none is missing."""
    first_where, first = rows[0]
    seen: dict[str, str] = {}
    for where, row in rows:
        if row["cell"] in seen:
            raise UserError(
                where, f"item_id {row['item_id']!r} has cell {row['cell']!r} already, at {seen[row['cell']]}"
            )
        seen[row["cell"]] = where
        for name in ("prompt", "stratum"):
            if row[name] != first[name]:
                raise UserError(
                    where,
                    f"column {name!r} of item_id {row['item_id']!r} holds {show(row[name])}, but {show(first[name])} at {first_where}",
                    hint="answers to another prompt need another item_id",
                )
    _check_complete(first_where, first["panel"], first["item_id"], seen)


def _check_complete(where: str, panel: str, item_id: str, cells: Iterable[str]) -> None:
    missing = sorted(set(CELLS.get(panel, ())) - set(cells))
    if missing:
        raise UserError(
            where,
            f"item_id {item_id!r} of panel {panel!r} has no cell {missing[0]!r}",
            "the audit compares all cells",
        )
    if len(set(cells)) < 2:  # noqa: PLR2004
        raise UserError(
            where,
            f"item_id {item_id!r} of panel {panel!r} has one answer",
            "the audit compares answers to one prompt",
        )


@dataclass(frozen=True)
class PanelRewards:
    """A panel's answers and their rewards.

    Parameters
    ----------
    answers
        Columns item_id, stratum, cell and n_tokens; one row an answer, sorted by item_id and cell.
    rewards
        By run, in the order of the answers: float32; under `all` their mean over the runs, float64.
    """

    answers: pl.DataFrame
    rewards: dict[str, NDArray[Any]]

    def cells(self, names: Sequence[str]) -> list[NDArray[np.int64]]:
        """Give the row numbers of each cell's answers; all cells list the items in the same order."""
        return [np.flatnonzero((self.answers["cell"] == name).to_numpy()) for name in names]


def read_panel_rewards(paths: Sequence[Path], runs: Sequence[str], panel: str) -> PanelRewards:
    """Read one panel's rewards under every run.

    Parameters
    ----------
    paths
        A table of contract ``panel_scores`` a run.
    runs
        Run ids, in the order of the tables.
    panel
        The panel; others are left aside.

    Raises
    ------
    UserError
        If tables and runs do not match, the runs scored different answers, or a cell is missing.
    """
    scores = {
        run: artifact.read(path, tables.PANEL_SCORES)
        for run, path in by_run(runs, paths, "panel-scores").items()
    }
    return panel_rewards(
        {run: frame.filter(pl.col("panel") == panel) for run, frame in scores.items()}, panel
    )


def panel_rewards(scores: dict[str, pl.DataFrame], panel: str) -> PanelRewards:
    """Bring the runs' scores of one panel together; see `read_panel_rewards`."""
    frames = {run: frame.sort("item_id", "cell") for run, frame in scores.items()}
    answers = {run: frame.select("item_id", "stratum", "cell", "n_tokens") for run, frame in frames.items()}
    first, *others = answers
    for run in others:
        check_same(answers[first], answers[run], f"panel-scores of {run}", f"panel-scores of {first}")
    if answers[first].is_empty():
        raise UserError("panel-scores", f"no answer of panel {panel!r} was scored")
    for (item_id,), item in answers[first].group_by("item_id", maintain_order=True):
        _check_complete("panel-scores", panel, str(item_id), item["cell"])
    return PanelRewards(
        answers[first], with_mean({run: frame["reward"].to_numpy() for run, frame in frames.items()})
    )


def by_run(runs: Sequence[str], paths: Sequence[Path], option: str) -> dict[str, Path]:
    """Match tables with runs, in the order of the run ids.

    Raises
    ------
    UserError
        If there are more of one than of the other, or if a run is named twice or is called `all`.
    """
    if len(paths) != len(runs):
        raise UserError(
            f"--{option}",
            f"{len(paths)} tables for {len(runs)} runs",
            hint="give one table a --run, in the same order",
        )
    if len(set(runs)) < len(runs) or ALL in runs:
        raise UserError("--run", f"{', '.join(runs)}: a run stands twice or is called {ALL!r}")
    return dict(sorted(zip(runs, paths, strict=True)))


def check_same(expected: pl.DataFrame, found: pl.DataFrame, where: str, reference: str) -> None:
    """Check that two frames hold the same rows in the same order.

    Raises
    ------
    UserError
        With the first row that only one of them holds.
    """
    if found.equals(expected):
        return
    for here, there, verb in ((found, expected, "is not in"), (expected, found, "is only in")):
        for row in here.join(
            there, on=here.columns, how="anti", nulls_equal=True, maintain_order="left"
        ).iter_rows(named=True):
            what = ", ".join(f"{name}={value!r}" for name, value in row.items())
            raise UserError(
                where,
                f"{what} {verb} {reference}",
                "all runs must score the same",
                "run the scoring stage again",
            )


def with_mean(rewards: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Add `all`, the mean over the runs in float64, to rewards by run."""
    return {**rewards, ALL: np.stack(list(rewards.values())).mean(axis=0, dtype=np.float64)}


def audit_rows(
    run: str, stratum: str, estimates: dict[str, Estimate], n: int, clusters: int
) -> list[dict[str, Any]]:
    """Give the rows of the table ``audit``, one a metric."""
    shared = {"run": run, "stratum": stratum, "n": n, "clusters": clusters}
    return [{**shared, "metric": metric, **asdict(estimate)} for metric, estimate in estimates.items()]


def audit_table(rows: list[dict[str, Any]]) -> pl.DataFrame:
    """Give the table ``audit``, in key order."""
    types = {name: column.dtype.type for name, column in tables.AUDIT.columns.items()}
    return pl.DataFrame(rows, schema=types).sort(tables.AUDIT.key)
