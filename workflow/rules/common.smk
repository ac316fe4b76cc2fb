# Paths, parameters and the one way to depend on what the checkpoint decides.
#
# REQUIRED INPUTS: the config
# OUTPUTS:         EXPERIMENT, RUNS, and the helpers that the rule files use
# STEPS:           check the config; name tables, logs and records after their stage

import shlex
import sys
from pathlib import Path

# The environment's commands are found without activating it.
shell.prefix(f"export PATH={shlex.quote(str(Path(sys.executable).parent))}:$PATH; ")

from rm_memorization import warm
from rm_memorization.code_digest import code_digest
from rm_memorization.config import check_files, load
from rm_memorization.errors import UserError
from rm_memorization.figure_names import FIGURES
from rm_memorization.hashing import canonical_json
from rm_memorization.recipe import RECIPE

try:
    EXPERIMENT = load(config)
    check_files(EXPERIMENT)
except UserError as error:
    sys.exit(f"error: {error}")

RESULTS = f"results/{EXPERIMENT.name}"
RUNS = EXPERIMENT.runs
THREADS = EXPERIMENT.compute.threads
DEVICE = EXPERIMENT.compute.device


wildcard_constraints:
    run="|".join(RUNS),


def table(stage, name):
    """Path of a stage's table."""
    return f"{RESULTS}/{stage}/{name}.parquet"


def run_table(stage, name):
    """Path of a stage's table for one run."""
    return f"{RESULTS}/{stage}/{{run}}/{name}.parquet"


def of_runs(pattern):
    """The paths of all runs, in their order."""
    return expand(pattern, run=RUNS)


def log_of(job):
    return f"{RESULTS}/logs/{job}.log"


def record_of(job):
    return f"{RESULTS}/run_records/{job}.json"


def code(stage, *folders):
    """Digest of the stage's code: a rule runs again when its code changes, not when a comment does."""
    return code_digest(f"stages.{stage}", *folders)


def verbatim(value):
    """A value that Snakemake takes as it is: braces in a user's text are no wildcards."""
    return lambda wildcards: value


def section(name):
    """The config's section, defaults filled in, as the stage's command takes it."""
    return verbatim(canonical_json(getattr(EXPERIMENT, name).model_dump()))


def repeated(name, values):
    """Text of a repeated command-line option."""
    return " ".join(f"{name} {shlex.quote(str(value))}" for value in values)


def flags(name, values):
    """A repeated command-line option as a parameter."""
    return verbatim(repeated(name, values))


def settled(pattern, **wildcards):
    """Inputs that exist once the checkpoint `split` has decided who is in which run.

    Only jobs that depend directly on a finished checkpoint are spared when its output turns out the same, so every
    rule below it takes its inputs through here.
    """

    def resolve(own):
        checkpoints.split.get()
        return [
            path.format(**dict(own.items()))
            for path in expand(pattern, allow_missing=True, **wildcards)
        ]

    return resolve


def excluded_from(run):
    """Units that the config takes out of one run."""
    override = EXPERIMENT.manifest.overrides.get(run)
    return override.exclude_users if override else []


def backbone_inputs():
    """What the backbone is made from: the pairs for a tiny one, the files of a local folder, a chat template."""
    source = EXPERIMENT.backbone
    files = sorted(map(str, Path(source.path).glob("*.*"))) if source.path else []
    files += [source.chat_template] if source.chat_template else []
    return {"files": files} | (
        {"pairs": rules.ingest.output.pairs} if source.tiny else {}
    )


def worth_warming():
    """Whether enough jobs on this machine will import torch that one process should do it for them all."""
    if not workflow.local_exec or workflow.touch:
        return False
    importing = {"backbone", "tokenize", "sft", "train_rm", "score", "score_panels"}
    return sum(job.rule.name in importing for job in workflow.dag.needrun_jobs()) > 2
