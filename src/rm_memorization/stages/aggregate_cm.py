"""aggregate_cm: TM, TG and CM of every pair and unit, and the summary."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import numpy as np
import polars as pl
import typer

from .. import artifact, options, tables
from ..errors import UserError
from .. import estimators
from ..estimators import Floats, Mask, Membership, probabilities
from ..record import recorded
from ..summary import counts, summarise

Tables = Annotated[list[Path], typer.Option(help="Table, one for each run in their order; repeat it.")]


def aggregate_cm(
    pairs: options.Pairs,
    run: Annotated[list[str], typer.Option(help="Run id; repeat it.")],
    scores: Tables,
    manifest: Tables,
    trained: Tables,
    dropped: Annotated[list[Path], typer.Option(help="Ledger; repeat it.")],
    memorization: options.Out,
    memorization_users: options.Out,
    summary: options.Out,
    resamples: options.Resamples,
    seed: options.Seed,
    record: options.Record = None,
) -> None:
    """Write the three tables."""
    with recorded("aggregate_cm", record, runs=run, resamples=resamples, seed=seed):
        # The order of the runs must not matter, not even to the last bit.
        order = sorted(range(len(run)), key=lambda index: run[index])
        results, p, member = estimate(pairs, *([paths[i] for i in order] for paths in (scores, manifest, trained)))
        ledger = pl.concat([artifact.read(path, tables.DROPPED) for path in dropped])
        rows = pl.concat([summarise(results, p, member, resamples, seed), counts(results, ledger)], how="diagonal")
        artifact.write(results, tables.MEMORIZATION, memorization)
        artifact.write(by_unit(results), tables.MEMORIZATION_USERS, memorization_users)
        artifact.write(rows, tables.SUMMARY, summary)


def estimate(pairs: Path, scores: Sequence[Path], manifests: Sequence[Path], trained: Sequence[Path]) -> tuple[pl.DataFrame, Floats, Membership]:
    """Estimate every scored pair.

    Returns
    -------
    table, p, membership
        The memorization table and the matrices behind it, rows in its order.
    """
    p, pair_id = _probabilities(scores)
    who = artifact.read(pairs, tables.PAIRS, ["pair_id", "unit_id", "user_id", "stratum"])
    rows = pl.DataFrame({"pair_id": pair_id}).join(who, on="pair_id", how="left", maintain_order="left")
    if rows["unit_id"].null_count():
        first = rows.filter(pl.col("unit_id").is_null())["pair_id"][0]
        raise UserError(str(scores[0]), f"pair {first!r} is scored but is not among the pairs ({rows['unit_id'].null_count()} such)", hint="run tokenize again")
    member = estimators.membership(rows["unit_id"], _trained(pair_id, manifests, trained))
    return pl.concat([rows, estimators.memorization(p, member)], how="horizontal"), p, member


def _probabilities(scores: Sequence[Path]) -> tuple[Floats, pl.Series]:
    """Read all runs' scores into one matrix; every run must have scored the same pairs once each."""
    first = artifact.read(scores[0], tables.SCORES)
    p = np.empty((first.height, len(scores)))
    for column, path in enumerate(scores):
        frame = artifact.read(path, tables.SCORES) if column else first
        if not frame["pair_id"].equals(first["pair_id"]):
            differing = sorted(set(frame["pair_id"]) ^ set(first["pair_id"]))
            raise UserError(str(path), f"{len(differing)} pairs are not scored by every run, first {differing[0]!r}", f"compared with {scores[0]}", "run score again for both")
        p[:, column] = probabilities(frame["reward_chosen"].to_numpy(), frame["reward_rejected"].to_numpy())
    return p, first["pair_id"]


def _trained(pair_id: pl.Series, manifests: Sequence[Path], trained: Sequence[Path]) -> Mask:
    """Who trained on what: by the manifests, which must agree with what the trainers were fed."""
    mask = np.zeros((len(pair_id), len(manifests)), dtype=bool)
    for column, (path, fed_path) in enumerate(zip(manifests, trained, strict=True)):
        listed, fed = artifact.read(path, tables.MANIFEST)["pair_id"], artifact.read(fed_path, tables.TRAINED)["pair_id"]
        if differing := sorted(set(listed) ^ set(fed)):
            raise UserError(str(fed_path), f"{len(differing)} pairs differ from the manifest's, first {differing[0]!r}", "membership must be what the run really trained on", "run train_rm again")
        if unknown := sorted(set(listed) - set(pair_id)):
            raise UserError(str(path), f"{len(unknown)} pairs are in the manifest but were not scored, first {unknown[0]!r}", hint="run score again")
        mask[:, column] = pair_id.is_in(listed.implode()).to_numpy()
    return mask


def by_unit(results: pl.DataFrame) -> pl.DataFrame:
    """Average TM, TG and CM over the pairs of each unit that have a CM; gives a table of the memorization_users contract."""
    known = pl.col("cm").is_not_null()
    means = [pl.col(metric).filter(known).mean() for metric in ("tm", "tg", "cm")]
    grouped = results.sort("pair_id").group_by("unit_id", maintain_order=True)
    return grouped.agg(pl.col("user_id").first(), pl.col("stratum").first(), known.sum().cast(pl.Int64).alias("pairs"), *means)
