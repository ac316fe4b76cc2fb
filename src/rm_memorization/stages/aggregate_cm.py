"""aggregate_cm: TM, TG and CM of every pair and unit, and the summary."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl

from .. import artifact, estimators, options, tables
from ..errors import UserError
from ..estimators import Floats, Mask, Membership
from ..panels import by_run
from ..record import recorded
from ..summary import METRICS, counts, summarise


def aggregate_cm(
    pairs: options.Pairs,
    run: options.Runs,
    scores: options.RunTables,
    manifest: options.RunTables,
    trained: options.RunTables,
    dropped: options.Ledgers,
    memorization: options.Out,
    memorization_users: options.Out,
    summary: options.Out,
    resamples: options.Resamples,
    seed: options.Seed,
    record: options.Record = None,
) -> None:
    """Write the three tables."""
    with recorded("aggregate_cm", record, runs=run, resamples=resamples, seed=seed):
        # In the order of the run ids: the order they are given in must not matter, not even to the last bit.
        of_runs = [
            list(by_run(run, paths, name).values())
            for name, paths in (("scores", scores), ("manifest", manifest), ("trained", trained))
        ]
        ledger = pl.concat([artifact.read(path, tables.DROPPED) for path in dropped])
        results, p, member = estimate(pairs, ledger, *of_runs)
        rows = pl.concat([summarise(results, p, member, resamples, seed), counts(results, ledger)])
        artifact.write(results, tables.MEMORIZATION, memorization)
        artifact.write(by_unit(results), tables.MEMORIZATION_USERS, memorization_users)
        artifact.write(rows, tables.SUMMARY, summary)


def estimate(
    pairs: Path,
    ledger: pl.DataFrame,
    scores: Sequence[Path],
    manifests: Sequence[Path],
    trained: Sequence[Path],
) -> tuple[pl.DataFrame, Floats, Membership]:
    """Estimate every scored pair.

    Parameters
    ----------
    pairs
        Table of pairs.
    ledger
        What was dropped; every other pair must be scored.
    scores, manifests, trained
        A table each for every run, in one order.

    Returns
    -------
    table, p, membership
        The memorization table and the matrices behind it, rows in its order.

    Raises
    ------
    UserError
        If the tables do not belong together.
    """
    if len(scores) < 2:  # noqa: PLR2004
        raise UserError("--run", f"{len(scores)} run", "CM compares runs that trained on a pair with others")
    p, pair_id = _probabilities(scores)
    who = artifact.read(
        pairs, tables.PAIRS, ["pair_id", "unit_id", "user_id", "stratum", "source_file", "source_row"]
    )
    _refuse(
        set(pair_id) - set(who["pair_id"]),
        scores[0],
        "are scored but not among the pairs",
        hint="run tokenize again",
    )
    kept = who.join(ledger, on=["source_file", "source_row"], how="anti")
    _refuse(
        set(kept["pair_id"]) - set(pair_id),
        scores[0],
        "are neither scored nor in a ledger",
        hint="run tokenize and score again",
    )
    rows = pl.DataFrame({"pair_id": pair_id}).join(who, on="pair_id", how="left", maintain_order="left")
    member = estimators.membership(rows["unit_id"], _trained(pair_id, manifests, trained))
    rows = rows.drop("source_file", "source_row")
    return pl.concat([rows, estimators.memorization(p, member)], how="horizontal"), p, member


def _probabilities(scores: Sequence[Path]) -> tuple[Floats, pl.Series]:
    """Read all runs' scores into one matrix; every run must have scored the same pairs."""
    frames = [artifact.read(path, tables.SCORES) for path in scores]
    pair_id = frames[0]["pair_id"]
    for path, frame in zip(scores, frames, strict=True):
        differing = set(frame["pair_id"]) ^ set(pair_id)
        _refuse(
            differing,
            path,
            f"are scored here or in {scores[0]}, not in both",
            hint="run score again for both",
        )
    rewards = [(frame["reward_chosen"].to_numpy(), frame["reward_rejected"].to_numpy()) for frame in frames]
    return np.column_stack([estimators.probabilities(*sides) for sides in rewards]), pair_id


def _trained(pair_id: pl.Series, manifests: Sequence[Path], trained: Sequence[Path]) -> Mask:
    """Who trained on what: by the manifests, which must agree with what the trainers were fed."""
    mask = np.zeros((len(pair_id), len(manifests)), dtype=bool)
    for column, (path, fed_path) in enumerate(zip(manifests, trained, strict=True)):
        listed, fed = (
            artifact.read(path, tables.MANIFEST)["pair_id"],
            artifact.read(fed_path, tables.TRAINED)["pair_id"],
        )
        why = "Membership must be what the run really trained on"
        _refuse(set(listed) ^ set(fed), fed_path, f"differ from those of {path}", why, "run train_rm again")
        _refuse(set(listed) - set(pair_id), path, "are trained on but not scored", hint="run score again")
        mask[:, column] = pair_id.is_in(listed.implode()).to_numpy()
    return mask


def _refuse(offenders: set[str], where: Path, what: str, why: str = "", hint: str = "") -> None:
    """Refuse if there is any offending pair, and name the first and their number."""
    if offenders:
        raise UserError(
            str(where), f"{len(offenders)} pairs, {min(offenders)!r} the first, {what}", why, hint
        )


def by_unit(results: pl.DataFrame) -> pl.DataFrame:
    """Average TM, TG and CM over the pairs of each unit that have a CM.

    Parameters
    ----------
    results
        A table of the memorization contract.

    Returns
    -------
    pl.DataFrame
        Of the memorization_users contract. A unit whose pairs are of several users or strata has neither.
    """
    results = results.sort("pair_id")
    names, unit = np.unique(results["unit_id"].to_numpy(), return_inverse=True)
    known = results["cm"].is_not_null().to_numpy()
    values = np.column_stack([np.ones(known.sum()), results.filter(known).select(METRICS).to_numpy()])
    sums = estimators.sums_by_unit(unit[known], values, len(names))
    with np.errstate(invalid="ignore"):
        means = pl.DataFrame(sums[:, 1:] / sums[:, :1], schema=list(METRICS)).fill_nan(None)
    only = [
        pl.when(pl.col(name).n_unique() == 1).then(pl.col(name).first()) for name in ("user_id", "stratum")
    ]
    who = results.group_by("unit_id").agg(only).sort("unit_id")
    pairs = pl.Series("pairs", sums[:, 0], dtype=pl.Float64).cast(pl.Int64)
    return pl.concat([who.with_columns(pairs), means], how="horizontal")
