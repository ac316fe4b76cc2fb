"""The contracts of every table, in the order of the flow.

``docs/tables.md`` is generated from this module.
"""

import polars as pl
from pandera.polars import Check, Column

from .artifact import Contract
from .columns import (
    COUNT,
    MESSAGES,
    PAIR_ID,
    PROBABILITY,
    REASON,
    TOKEN_HASH,
    TOKENS,
    UNIT_ID,
    USER_ID,
    identifier,
    one_of,
    positive,
    real,
    text,
    whole,
)

# One line a column: contracts read as tables.
# fmt: off
PAIRS = Contract("pairs", 1, "a preference pair", {
    "pair_id": PAIR_ID,
    "unit_id": UNIT_ID,
    "user_id": USER_ID,
    "stratum": text(
        "group of users or prompts for which results are given apart; null if none", nullable=True
    ),
    "prompt": Column(MESSAGES, description="messages before the reply, the last one the user's"),
    "chosen": identifier("the preferred reply"),
    "rejected": identifier("the other reply"),
    "source_file": identifier("name of the file the pair was read from"),
    "source_row": positive("row or line in that file, from 1"),
    "extra": text("the source row's other columns, as a JSON object"),
}, key=("pair_id",))

DROPPED = Contract("dropped", 1, "a refused source row", {
    "source_file": identifier("name of the file"),
    "source_row": positive("row or line in that file, from 1"),
    "reason": identifier("reason code"),
    "detail": text("what was found"),
}, key=("source_file", "source_row"))

BACKBONE = Contract("backbone", 1, "a file of the backbone", {
    "file": identifier("name in the folder `files` beside this table"),
    "bytes": whole("size"),
    "sha256": Column(pl.String, Check.str_length(64, 64), description="digest of the file"),
}, key=("file",))

TOKENIZED = Contract("tokens", 1, "a pair as token ids", {
    "pair_id": PAIR_ID,
    "unit_id": UNIT_ID,
    "prefix_ids": Column(TOKENS, description="longest common token prefix of both full sequences"),
    "chosen_ids": Column(TOKENS, description="what follows the prefix in the chosen sequence"),
    "rejected_ids": Column(TOKENS, description="what follows the prefix in the rejected sequence"),
    "n_prompt": positive("tokens of the prompt alone; the reply starts behind them"),
    "token_hash": TOKEN_HASH,
}, key=("pair_id",))

ASSIGNMENT = Contract(
    "assignment",
    1,
    "a pair that the design includes in the run",
    {"unit_id": UNIT_ID, "pair_id": PAIR_ID, "token_hash": TOKEN_HASH},
    key=("unit_id", "pair_id"),
)

DESIGN = Contract("design", 1, "a unit and a run that holds it out", {
    "unit_id": UNIT_ID,
    "held_out": identifier("a run that does not train on the unit"),
    "pairs": whole("pairs of the unit"),
}, key=("unit_id", "held_out"))

CERTIFICATE = Contract("certificate", 1, "a property of the design", {
    "property": identifier("what is measured"),
    "bound": real("the best value that any design can have; null where none is known"),
    "achieved": real("what this design has", nullable=False),
}, key=("property",))

MANIFEST = Contract("manifest", 1, "a pair that the run trains on", ASSIGNMENT.columns, key=ASSIGNMENT.key)

WEIGHTS = Contract("weights", 1, "a trained tensor", {
    "tensor": identifier("name, relative to the decoder; the reward head is score.weight"),
    "dtype": one_of(["float32", "bfloat16", "float16"], "element type"),
    "shape": Column(pl.List(pl.Int64), description="dimensions"),
    "data": Column(pl.Binary, description="elements, little-endian, row-major"),
}, key=("tensor",))

TRAINING_LOG = Contract("training_log", 1, "a logged value", {
    "step": whole("optimizer steps done"),
    "metric": identifier(
        "loss, learning_rate, ...; reward_chosen and reward_rejected are check scores after the last step"
    ),
    "pair_id": text("the pair of a check score, else empty"),
    "value": real("the value", nullable=False),
}, key=("step", "metric", "pair_id"))

TRAINED = Contract(
    "trained",
    1,
    "a pair that the trainer was fed",
    {"pair_id": PAIR_ID, "seen": positive("how many times")},
    key=("pair_id",),
)

SCORES = Contract("scores", 1, "a pair's rewards under one run's reward model", {
    "pair_id": PAIR_ID,
    "reward_chosen": real("reward of the chosen reply", nullable=False, dtype=pl.Float32),
    "reward_rejected": real("reward of the rejected reply", nullable=False, dtype=pl.Float32),
}, key=("pair_id",))

PANEL = Contract("panel", 1, "an answer of an audit panel", {
    "panel": one_of(["length", "factorial", "refusal"], "which audit it serves"),
    "item_id": identifier("the prompt, by an opaque id"),
    "stratum": identifier("group of prompts"),
    "cell": identifier("which answer to the prompt"),
    "prompt": identifier("text of the prompt"),
    "response": identifier("text of the answer"),
    "content_checked": Column(pl.Boolean, Check.isin([True]), description="a person has read the answer"),
}, key=("panel", "item_id", "cell"))

PANEL_SCORES = Contract("panel_scores", 1, "an answer's reward under one run's reward model", {
    "panel": PANEL.columns["panel"],
    "item_id": PANEL.columns["item_id"],
    "stratum": PANEL.columns["stratum"],
    "cell": PANEL.columns["cell"],
    "n_tokens": positive("tokens of the answer alone"),
    "reward": real("reward of the answer", nullable=False, dtype=pl.Float32),
}, key=("panel", "item_id", "cell"))

MEMORIZATION = Contract("memorization", 1, "a pair", {
    "pair_id": PAIR_ID,
    "unit_id": UNIT_ID,
    "user_id": USER_ID,
    "stratum": PAIRS.columns["stratum"],
    "n_in": whole("runs that trained on the pair"),
    "n_out": whole("runs that trained on nothing of its unit"),
    "tm": real("training memorization: mean of p over the n_in runs", PROBABILITY),
    "tg": real("generalisation: mean of p over the n_out runs", PROBABILITY),
    "cm": real("counterfactual memorization tm − tg, not clipped", Check.in_range(-1.0, 1.0)),
    "se": real("standard error of cm (Welch)", Check.ge(0.0)),
    "df": real("Welch–Satterthwaite degrees of freedom", Check.ge(0.0)),
    "low": real("lower end of the interval of cm"),
    "high": real("upper end of the interval of cm"),
    "reason": REASON,
}, key=("pair_id",))

MEMORIZATION_USERS = Contract("memorization_users", 1, "a unit", {
    "unit_id": UNIT_ID,
    "user_id": USER_ID,
    "stratum": PAIRS.columns["stratum"],
    "pairs": whole("pairs of the unit that have a cm"),
    "tm": real("mean over its pairs", PROBABILITY),
    "tg": real("mean over its pairs", PROBABILITY),
    "cm": real("mean over its pairs", Check.in_range(-1.0, 1.0)),
}, key=("unit_id",))

SUMMARY = Contract("summary", 1, "a quantity of the whole experiment or of a stratum", {
    "stratum": identifier("`all`, a stratum, or a contrast `a - b` of two"),
    "metric": identifier("tm, tg, cm, counts"),
    "estimate": real("value"),
    "se": real("standard error: users and runs together", Check.ge(0.0)),
    "low": real("lower end of the 95 % interval"),
    "high": real("upper end of the 95 % interval"),
    "pairs": whole("pairs that it rests on"),
    "units": whole("units that it rests on"),
    "reason": REASON,
}, key=("stratum", "metric"))

AUDIT = Contract("audit", 1, "a metric in a stratum, under one run or the mean reward of all", {
    "run": identifier("a run, or `all`: rewards averaged over the runs"),
    "stratum": identifier("group of prompts"),
    "metric": identifier("what is estimated"),
    "estimate": real("value"),
    "low": real("lower end of the 95 % interval, prompts resampled"),
    "high": real("upper end of the 95 % interval, prompts resampled"),
    "n": whole("answers or contrasts"),
    "clusters": whole("prompts"),
    "reason": REASON,
}, key=("run", "stratum", "metric"))

PROVENANCE = Contract("provenance", 1, "a job", {
    "job": identifier("name of its run record"),
    "stage": identifier("stage"),
    "started": identifier("start, UTC"),
    "wall_s": real("wall-clock seconds", COUNT, nullable=False),
    "cpu_s": real("CPU seconds", COUNT, nullable=False),
    "peak_memory_mb": real("peak resident memory, MiB", COUNT, nullable=False),
    "host": identifier("host name"),
    "device": identifier("what it computed on"),
    "threads": Column(
        pl.Int64, nullable=True, description="torch threads; null where torch was not used"
    ),
    "git_commit": text("commit of the package's checkout; null outside one", nullable=True),
    "git_dirty": Column(pl.Boolean, nullable=True, description="whether the checkout had changes"),
    "versions": text("package versions, JSON"),
    "params": text("what the job was told, JSON"),
    "inputs": text("content hash by input, JSON"),
    "outputs": text("content hash and byte digest by output, JSON"),
}, key=("job",), volatile=True)

DIAGNOSTIC = Contract("diagnostic", 1, "a check under one seed", {
    "seed": Column(pl.Int64, description="seed of the random tensors"),
    "check": identifier("what is checked"),
    "value": real("what was found", nullable=False),
    "bound": real("largest value that passes", nullable=False),
    "passed": Column(pl.Boolean, description="whether |value| ≤ bound"),
    "device": identifier("where the tensors lay"),
    "code": identifier("digest of the code that was checked"),
}, key=("seed", "check"))

CONTRACTS = {
    contract.name: contract
    for contract in (
        PAIRS, DROPPED, BACKBONE, TOKENIZED, ASSIGNMENT, DESIGN, CERTIFICATE, MANIFEST, WEIGHTS, TRAINING_LOG, TRAINED,
        SCORES, PANEL, PANEL_SCORES, MEMORIZATION, MEMORIZATION_USERS, SUMMARY, AUDIT, PROVENANCE, DIAGNOSTIC,
    )
}
