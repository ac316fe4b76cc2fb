"""A small made-up experiment for the tests of the report: 40 units of 10 pairs, 10 runs, 4 strata."""

from dataclasses import replace

import numpy as np
import polars as pl
from scipy import stats

from rm_memorization import tables
from rm_memorization.artifact import Contract
from rm_memorization.figures import Findings

RUNS = [f"r{run:02d}" for run in range(1, 11)]
STRATA = [
    "controversy guided",
    "unguided",
    "values guided",
    "with a rather long name of more than forty letters",
]
PROMPT = [
    {"role": "user", "content": "Hello"},
    {"role": "assistant", "content": "Hi!"},
    {"role": "user", "content": "Why is the sky blue?\n\n  Be brief."},
]


def table(columns: dict[str, object], contract: Contract) -> pl.DataFrame:
    """Give a frame of the contract's columns and types; what is not given is null."""
    types = {name: column.dtype.type for name, column in contract.columns.items()}
    frame = pl.DataFrame(
        columns, schema_overrides={n: t for n, t in types.items() if n in columns}, strict=False
    )
    return frame.with_columns(pl.lit(None, types[n]).alias(n) for n in types if n not in columns).select(
        list(types)
    )


def findings(strata: list[str] | None = STRATA, units: int = 40, each: int = 10) -> Findings:
    """Make up all tables; without strata the column is null."""
    rng = np.random.default_rng(5)
    unit = np.repeat([f"user{number:03d}" for number in range(units)], each)
    stratum = [strata[int(name[4:]) % len(strata)] for name in unit] if strata else None
    memorized = memorization(unit, stratum, rng)
    return Findings(
        pairs=pairs(memorized),
        dropped=dropped(),
        memorization=memorized,
        memorization_users=by_unit(memorized),
        summary=summary(memorized),
        certificate=certificate(),
        training_logs={run: training_log(rng) for run in RUNS},
        audit_length=audit_length(rng),
        audit_factorial=audit_factorial(rng),
        audit_refusal=audit_refusal(rng),
    )


def without_cm(found: Findings, which: pl.Expr) -> Findings:
    """Take the CM of some pairs away."""
    gone = [
        pl.when(which).then(None).otherwise(pl.col(name)).alias(name)
        for name in ("tg", "cm", "se", "df", "low", "high")
    ]
    reason = pl.when(which).then(pl.lit("fewer_than_2_runs_out")).alias("reason")
    memorized = found.memorization.with_columns(
        *gone, reason, n_out=pl.when(which).then(0).otherwise("n_out")
    )
    return replace(
        found, memorization=memorized, memorization_users=by_unit(memorized), summary=summary(memorized)
    )


def memorization(unit: np.ndarray, stratum: list[str] | None, rng: np.random.Generator) -> pl.DataFrame:
    n, hard = len(unit), rng.normal(0.6, 1.1, len(unit))
    tg = 1 / (1 + np.exp(-hard))
    tm = 1 / (1 + np.exp(-(hard + np.abs(rng.normal(0.2, 0.7, n)) - 0.15)))
    se = rng.uniform(0.02, 0.08, n)
    half = stats.t.ppf(0.975, 4) * se
    columns = {
        "pair_id": [f"{number:032x}" for number in rng.permutation(n)], "unit_id": unit, "user_id": unit, "stratum": stratum,
        "n_in": [8] * n, "n_out": [2] * n, "tm": tm, "tg": tg, "cm": tm - tg, "se": se, "df": [4.0] * n,
        "low": tm - tg - half, "high": tm - tg + half,
    }  # fmt: skip
    return table(
        {name: values for name, values in columns.items() if values is not None}, tables.MEMORIZATION
    ).sort("pair_id")


def pairs(memorized: pl.DataFrame) -> pl.DataFrame:
    n = memorized.height
    columns = {
        "prompt": [PROMPT] * n, "chosen": ["Air scatters blue light more than red light.\n\n* Rayleigh, 1871"] * n,
        "rejected": ["It mirrors the sea."] * n, "source_file": ["pairs.jsonl"] * n, "source_row": range(1, n + 1), "extra": ["{}"] * n,
    }  # fmt: skip
    names = ("pair_id", "unit_id", "user_id", "stratum")
    return table({**{name: memorized[name] for name in names}, **columns}, tables.PAIRS)


def by_unit(memorized: pl.DataFrame) -> pl.DataFrame:
    known = pl.col("cm").is_not_null()
    means = [pl.col(name).filter(known).mean() for name in ("tm", "tg", "cm")]
    first = [pl.col(name).first() for name in ("user_id", "stratum")]
    return (
        memorized.group_by("unit_id")
        .agg(*first, known.sum().cast(pl.Int64).alias("pairs"), *means)
        .select(list(tables.MEMORIZATION_USERS.columns))
    )


def summary(memorized: pl.DataFrame) -> pl.DataFrame:
    known = memorized.filter(pl.col("cm").is_not_null())
    strata = known["stratum"].drop_nulls().unique().sort().to_list()
    groups = {"all": known, **{name: known.filter(pl.col("stratum") == name) for name in strata}}
    rows = [
        row(name, metric, group, group[metric].mean())
        for name, group in groups.items()
        for metric in ("tm", "tg", "cm")
    ]
    for number, a in enumerate(strata):
        for b in strata[number + 1 :]:
            difference = groups[a]["cm"].mean() - groups[b]["cm"].mean()
            rows.append(row(f"{a} - {b}", "cm", pl.concat([groups[a], groups[b]]), difference))
    numbers = {
        "pairs": memorized.height,
        "units": memorized["unit_id"].n_unique(),
        "dropped:too_long": 2,
        "dropped:no_user_id": 1,
    }
    numbers |= {
        f"without_cm:{reason}": count
        for reason, count in memorized.filter(pl.col("cm").is_null()).group_by("reason").len().iter_rows()
    }
    rows += [
        row("all", metric, memorized, value) | {"se": None, "low": None, "high": None, "reason": "count"}
        for metric, value in numbers.items()
    ]
    return table({name: [each[name] for each in rows] for name in rows[0]}, tables.SUMMARY)


def row(stratum: str, metric: str, group: pl.DataFrame, value: float | None) -> dict[str, object]:
    common = {
        "stratum": stratum,
        "metric": metric,
        "estimate": value,
        "pairs": group.height,
        "units": group["unit_id"].n_unique(),
    }
    if value is None:
        return common | {"se": None, "low": None, "high": None, "reason": "no_pairs"}
    se = 0.3 / np.sqrt(group.height)
    return common | {"se": se, "low": value - 1.96 * se, "high": value + 1.96 * se, "reason": None}


def dropped() -> pl.DataFrame:
    columns = {
        "source_file": ["pairs.jsonl"] * 3, "source_row": [3, 17, 40],
        "reason": ["too_long", "too_long", "no_user_id"], "detail": ["1,300 tokens", "1,025 tokens", ""],
    }  # fmt: skip
    return table(columns, tables.DROPPED)


def certificate() -> pl.DataFrame:
    names = [
        "held_out_pairs_worst_deviation",
        "held_out_runs_per_unit_max",
        "held_out_units_per_run_pair_max",
    ]
    return table(
        {"property": names, "bound": [0.0, None, 2.0], "achieved": [0.0125, 2.0, 3.0]}, tables.CERTIFICATE
    )


def training_log(rng: np.random.Generator, steps: int = 150) -> pl.DataFrame:
    step = np.arange(1, steps + 1)
    loss = 0.35 + 0.35 * np.exp(-step / 40) + rng.normal(0, 0.03, steps)
    accuracy = np.clip(0.85 - 0.35 * np.exp(-step / 40) + rng.normal(0, 0.05, steps), 0, 1)
    logged = [
        pl.DataFrame({"step": step, "metric": name, "pair_id": "", "value": values})
        for name, values in (("loss", loss), ("accuracy", accuracy), ("grad_norm", loss))
    ]
    check = pl.DataFrame(
        {"step": [steps], "metric": ["reward_chosen"], "pair_id": ["f" * 32], "value": [1.5]}
    )
    return pl.concat([*logged, check])


def audit(
    means: dict[tuple[str, str], float], n: int, clusters: int, rng: np.random.Generator, width: float = 0.1
) -> pl.DataFrame:
    rows = [
        {
            "run": run,
            "stratum": stratum,
            "metric": metric,
            "estimate": value,
            "low": value - width,
            "high": value + width,
        }
        for run in ("all", *RUNS)
        for (stratum, metric), mean in means.items()
        for value in [mean + (0 if run == "all" else rng.normal(0, width / 2))]
    ]
    columns = {name: [each[name] for each in rows] for name in rows[0]}
    return table({**columns, "n": [n] * len(rows), "clusters": [clusters] * len(rows)}, tables.AUDIT)


def audit_length(rng: np.random.Generator) -> pl.DataFrame:
    values = {
        "pooled_pearson": 0.35,
        "pooled_slope_per_100_tokens": 0.4,
        "pooled_spearman": 0.3,
        "within_prompt_pearson": 0.15,
        "within_prompt_slope_per_100_tokens": 0.2,
        "within_prompt_spearman": 0.12,
    }
    rows = audit(
        {(stratum, metric): value for stratum in ("panel", "pairs") for metric, value in values.items()},
        120,
        40,
        rng,
    )
    single = (pl.col("run") != "all") & (pl.col("stratum") == "pairs")
    ends = [pl.when(single).then(None).otherwise(pl.col(name)).alias(name) for name in ("low", "high")]
    return rows.with_columns(*ends, reason=pl.when(single).then(pl.lit("not_resampled")))


def audit_factorial(rng: np.random.Generator) -> pl.DataFrame:
    cells = {
        "mean_reward_correct_concise": 0.1,
        "mean_reward_correct_expanded": 0.6,
        "mean_reward_incorrect_concise": -0.5,
        "mean_reward_incorrect_expanded": -0.2,
    }
    values = {
        **cells,
        "correctness": 0.7,
        "expansion": 0.4,
        "interaction": 0.2,
        "correctness_when_concise": 0.6,
        "trap": 0.3,
        "share_trap_won": 0.7,
        "share_tied": 0.0,
    }
    return audit({("all", metric): value for metric, value in values.items()}, 30, 30, rng)


def audit_refusal(rng: np.random.Generator) -> pl.DataFrame:
    values = {"benign_plain": -0.9, "benign_safety_terms": -0.2, "unsafe_control": 0.4}
    metrics = {"mean_difference": 1.0, "share_refusal_preferred": 0.3, "share_tied": 0.0}
    return audit(
        {
            (stratum, metric): value * factor
            for stratum, value in values.items()
            for metric, factor in metrics.items()
        },
        25,
        25,
        rng,
    )
