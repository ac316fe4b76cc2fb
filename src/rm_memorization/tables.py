"""The contracts of every table, in the order of the flow.

``docs/tables.md`` is generated from this module.
"""

from typing import Any

import polars as pl
from pandera.polars import Check, Column

from .artifact import Contract

MESSAGES = pl.List(pl.Struct({"role": pl.String, "content": pl.String}))
TOKENS = pl.List(pl.Int32)

NOT_EMPTY = Check.str_length(min_value=1)
FINITE = Check(
    lambda data: data.lazyframe.select(pl.col(data.key).is_finite()), name="finite", error="finite"
)
PROBABILITY = Check.in_range(0.0, 1.0)
COUNT = Check.ge(0)


def _id(description: str) -> Column:
    return Column(pl.String, NOT_EMPTY, description=description)


def _text(description: str, *, nullable: bool = False) -> Column:
    return Column(pl.String, nullable=nullable, description=description)


def _count(description: str) -> Column:
    return Column(pl.Int64, COUNT, description=description)


def _real(description: str, *checks: Check, nullable: bool = True, dtype: Any = pl.Float64) -> Column:
    return Column(dtype, [FINITE, *checks], nullable=nullable, description=description)


PAIR_ID = _id("digest of unit, prompt and both replies: a pair keeps its name wherever it stands")
UNIT_ID = _id("what is held out as a whole: the user, or the prompt where a data set has no users")
USER_ID = _text("the annotator; null where the data set has none", nullable=True)
RUN = _id("a training run, such as r07")
TOKEN_HASH = _id("digest of the pair's token ids")
REASON = _text("why the value is null", nullable=True)

PAIRS = Contract(
    "pairs",
    1,
    "a preference pair",
    {
        "pair_id": PAIR_ID,
        "unit_id": UNIT_ID,
        "user_id": USER_ID,
        "stratum": _text(
            "group of users or prompts for which results are given apart; null if none", nullable=True
        ),
        "prompt": Column(MESSAGES, description="messages before the reply, the last one the user's"),
        "chosen": _id("the preferred reply"),
        "rejected": _id("the other reply"),
        "source_file": _id("name of the file the pair was read from"),
        "source_row": Column(pl.Int64, Check.ge(1), description="row or line in that file, from 1"),
        "extra": _text("the source row's other columns, as a JSON object"),
    },
    key=("pair_id",),
)

DROPPED = Contract(
    "dropped",
    1,
    "a refused source row",
    {
        "source_file": _id("name of the file"),
        "source_row": Column(pl.Int64, Check.ge(1), description="row or line in that file, from 1"),
        "reason": _id("reason code"),
        "detail": _text("what was found"),
    },
    key=("source_file", "source_row"),
)

BACKBONE = Contract(
    "backbone",
    1,
    "a file of the backbone",
    {
        "file": _id("name in the folder `files` beside this table"),
        "bytes": _count("size"),
        "sha256": Column(pl.String, Check.str_length(64, 64), description="digest of the file"),
    },
    key=("file",),
)

TOKENIZED = Contract(
    "tokens",
    1,
    "a pair as token ids",
    {
        "pair_id": PAIR_ID,
        "unit_id": UNIT_ID,
        "prefix_ids": Column(TOKENS, description="longest common token prefix of both full sequences"),
        "chosen_ids": Column(TOKENS, description="what follows the prefix in the chosen sequence"),
        "rejected_ids": Column(TOKENS, description="what follows the prefix in the rejected sequence"),
        "n_prompt": Column(
            pl.Int64, Check.ge(1), description="tokens of the prompt alone; the reply starts behind them"
        ),
        "token_hash": TOKEN_HASH,
    },
    key=("pair_id",),
)

ASSIGNMENT = Contract(
    "assignment",
    1,
    "a pair that the design includes in the run",
    {"unit_id": UNIT_ID, "pair_id": PAIR_ID, "token_hash": TOKEN_HASH},
    key=("unit_id", "pair_id"),
)

DESIGN = Contract(
    "design",
    1,
    "a unit and a run that holds it out",
    {
        "unit_id": UNIT_ID,
        "held_out": _id("a run that does not train on the unit"),
        "pairs": _count("pairs of the unit"),
    },
    key=("unit_id", "held_out"),
)

CERTIFICATE = Contract(
    "certificate",
    1,
    "a property of the design",
    {
        "property": _id("what is measured"),
        "bound": _real("the best value that any design can have; null where none is known"),
        "achieved": _real("what this design has", nullable=False),
    },
    key=("property",),
)

MANIFEST = Contract("manifest", 1, "a pair that the run trains on", ASSIGNMENT.columns, key=ASSIGNMENT.key)

WEIGHTS = Contract(
    "weights",
    1,
    "a trained tensor",
    {
        "tensor": _id("name, relative to the decoder; the reward head is score.weight"),
        "dtype": Column(
            pl.String, Check.isin(["float32", "bfloat16", "float16"]), description="element type"
        ),
        "shape": Column(pl.List(pl.Int64), description="dimensions"),
        "data": Column(pl.Binary, description="elements, little-endian, row-major"),
    },
    key=("tensor",),
)

TRAINING_LOG = Contract(
    "training_log",
    1,
    "a logged value",
    {
        "step": _count("optimizer steps done"),
        "metric": _id(
            "loss, learning_rate, ...; reward_chosen and reward_rejected are check scores after the last step"
        ),
        "pair_id": _text("the pair of a check score, else empty"),
        "value": _real("the value", nullable=False),
    },
    key=("step", "metric", "pair_id"),
)

TRAINED = Contract(
    "trained",
    1,
    "a pair that the trainer was fed",
    {"pair_id": PAIR_ID, "seen": Column(pl.Int64, Check.ge(1), description="how many times")},
    key=("pair_id",),
)

SCORES = Contract(
    "scores",
    1,
    "a pair's rewards under one run's reward model",
    {
        "pair_id": PAIR_ID,
        "reward_chosen": _real("reward of the chosen reply", nullable=False, dtype=pl.Float32),
        "reward_rejected": _real("reward of the rejected reply", nullable=False, dtype=pl.Float32),
    },
    key=("pair_id",),
)

PANEL = Contract(
    "panel",
    1,
    "an answer of an audit panel",
    {
        "panel": Column(
            pl.String, Check.isin(["length", "factorial", "refusal"]), description="which audit it serves"
        ),
        "item_id": _id("the prompt, by an opaque id"),
        "stratum": _id("group of prompts"),
        "cell": _id("which answer to the prompt"),
        "prompt": _id("text of the prompt"),
        "response": _id("text of the answer"),
        "content_checked": Column(pl.Boolean, Check.isin([True]), description="a person has read the answer"),
    },
    key=("panel", "item_id", "cell"),
)

PANEL_SCORES = Contract(
    "panel_scores",
    1,
    "an answer's reward under one run's reward model",
    {
        "panel": PANEL.columns["panel"],
        "item_id": PANEL.columns["item_id"],
        "stratum": PANEL.columns["stratum"],
        "cell": PANEL.columns["cell"],
        "n_tokens": Column(pl.Int64, Check.ge(1), description="tokens of the answer alone"),
        "reward": _real("reward of the answer", nullable=False, dtype=pl.Float32),
    },
    key=("panel", "item_id", "cell"),
)

MEMORIZATION = Contract(
    "memorization",
    1,
    "a pair",
    {
        "pair_id": PAIR_ID,
        "unit_id": UNIT_ID,
        "user_id": USER_ID,
        "stratum": PAIRS.columns["stratum"],
        "n_in": _count("runs that trained on the pair"),
        "n_out": _count("runs that trained on nothing of its unit"),
        "tm": _real("training memorization: mean of p over the n_in runs", PROBABILITY),
        "tg": _real("generalisation: mean of p over the n_out runs", PROBABILITY),
        "cm": _real("counterfactual memorization tm − tg, not clipped", Check.in_range(-1.0, 1.0)),
        "se": _real("standard error of cm (Welch)", Check.ge(0.0)),
        "df": _real("Welch–Satterthwaite degrees of freedom", Check.ge(0.0)),
        "low": _real("lower end of the interval of cm"),
        "high": _real("upper end of the interval of cm"),
        "reason": REASON,
    },
    key=("pair_id",),
)

MEMORIZATION_USERS = Contract(
    "memorization_users",
    1,
    "a unit",
    {
        "unit_id": UNIT_ID,
        "user_id": USER_ID,
        "stratum": PAIRS.columns["stratum"],
        "pairs": _count("pairs of the unit that have a cm"),
        "tm": _real("mean over its pairs", PROBABILITY),
        "tg": _real("mean over its pairs", PROBABILITY),
        "cm": _real("mean over its pairs", Check.in_range(-1.0, 1.0)),
    },
    key=("unit_id",),
)

SUMMARY = Contract(
    "summary",
    1,
    "a quantity of the whole experiment or of a stratum",
    {
        "stratum": _id("`all`, a stratum, or a contrast `a - b` of two"),
        "metric": _id("tm, tg, cm, counts"),
        "estimate": _real("value"),
        "se": _real("standard error: users and runs together", Check.ge(0.0)),
        "low": _real("lower end of the 95 % interval"),
        "high": _real("upper end of the 95 % interval"),
        "pairs": _count("pairs that it rests on"),
        "units": _count("units that it rests on"),
        "reason": REASON,
    },
    key=("stratum", "metric"),
)

AUDIT = Contract(
    "audit",
    1,
    "a metric in a stratum, under one run or the mean reward of all",
    {
        "run": _id("a run, or `all`: rewards averaged over the runs"),
        "stratum": _id("group of prompts"),
        "metric": _id("what is estimated"),
        "estimate": _real("value"),
        "low": _real("lower end of the 95 % interval, prompts resampled"),
        "high": _real("upper end of the 95 % interval, prompts resampled"),
        "n": _count("answers or contrasts"),
        "clusters": _count("prompts"),
        "reason": REASON,
    },
    key=("run", "stratum", "metric"),
)

PROVENANCE = Contract(
    "provenance",
    1,
    "a job",
    {
        "job": _id("name of its run record"),
        "stage": _id("stage"),
        "started": _id("start, UTC"),
        "wall_s": _real("wall-clock seconds", COUNT, nullable=False),
        "cpu_s": _real("CPU seconds", COUNT, nullable=False),
        "peak_memory_mb": _real("peak resident memory, MiB", COUNT, nullable=False),
        "host": _id("host name"),
        "device": _id("what it computed on"),
        "threads": Column(
            pl.Int64, nullable=True, description="torch threads; null where torch was not used"
        ),
        "git_commit": _text("commit of the package's checkout; null outside one", nullable=True),
        "git_dirty": Column(pl.Boolean, nullable=True, description="whether the checkout had changes"),
        "versions": _text("package versions, JSON"),
        "params": _text("what the job was told, JSON"),
        "inputs": _text("content hash by input, JSON"),
        "outputs": _text("content hash and byte digest by output, JSON"),
    },
    key=("job",),
    volatile=True,
)

DIAGNOSTIC = Contract(
    "diagnostic",
    1,
    "a check under one seed",
    {
        "seed": Column(pl.Int64, description="seed of the random tensors"),
        "check": _id("what is checked"),
        "value": _real("what was found", nullable=False),
        "bound": _real("largest value that passes", nullable=False),
        "passed": Column(pl.Boolean, description="whether |value| ≤ bound"),
        "device": _id("where the tensors lay"),
        "code": _id("digest of the code that was checked"),
    },
    key=("seed", "check"),
)

CONTRACTS = {
    contract.name: contract
    for contract in (
        PAIRS, DROPPED, BACKBONE, TOKENIZED, ASSIGNMENT, DESIGN, CERTIFICATE, MANIFEST, WEIGHTS, TRAINING_LOG, TRAINED,
        SCORES, PANEL, PANEL_SCORES, MEMORIZATION, MEMORIZATION_USERS, SUMMARY, AUDIT, PROVENANCE, DIAGNOSTIC,
    )
}  # fmt: skip
