"""The configuration of one experiment, checked.

Each section is named after its stage. `workflow/schemas/config.schema.json` is generated from here.
"""

from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from .errors import UserError
from .recipe import RewardTraining, Training
from .settings import Count, Seed, Settings, Text, checked
from .sources import BackboneSource, Source

NAME = "^[a-z0-9][a-z0-9_-]{0,63}$"
Resamples = Annotated[int, Field(ge=100)]


class Compute(Settings):
    """What a job computes on."""

    threads: Count = Field(
        1, description="CPU threads of a job that trains or scores; part of what the weights depend on"
    )
    device: Annotated[str, Field(pattern="^(cpu|cuda)$")] = Field("cpu", description="cpu or cuda")


class Tokenize(Settings):
    """How pairs become tokens."""

    max_length: Annotated[int, Field(ge=2)] = Field(
        1024, description="longest sequence in tokens; pairs with a longer one are dropped into the ledger"
    )


class Override(Settings):
    """A change to one run's manifest."""

    exclude_users: Annotated[list[Text], Field(min_length=1)] = Field(
        description="units that this run does not train on"
    )


class Split(Settings):
    """Who is held out of which run."""

    runs: Annotated[int, Field(ge=2)] = Field(25, description="number of runs")
    held_out: Count = Field(5, description="runs that each unit is held out of")
    seed: Seed = Field(42, description="seed of the design")
    exclude_users: list[Text] = Field(
        [], description="withdrawn units: no run trains on them; the others' design stays"
    )

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.held_out >= self.runs:
            raise ValueError(
                f"held_out = {self.held_out} must be smaller than runs = {self.runs}, or no run trains on anybody"
            )
        return self


class Manifest(Settings):
    """Changes to single runs."""

    overrides: dict[str, Override] = Field({}, description="by run id, such as r03")


class Score(Settings):
    """How pairs are scored."""

    batch_tokens: Count = Field(16384, description="tokens in a batch, padding included")


class Panels(Settings):
    """Files of audit answers."""

    length: Text = Field("config/panels/length.jsonl", description="prompts with answers of different length")
    factorial: Text = Field(
        "config/panels/factorial.jsonl",
        description="prompts with correct/incorrect × concise/expanded answers",
    )
    refusal: Text = Field(
        "config/panels/refusal.jsonl", description="prompts with a refusal and a helpful answer"
    )

    @property
    def files(self) -> list[str]:
        """The files, in the order of the audits."""
        return [self.length, self.factorial, self.refusal]


class Resampling(Settings):
    """A bootstrap."""

    resamples: Resamples = Field(2000, description="bootstrap resamples")
    seed: Seed = Field(1, description="seed of the resamples")


class Report(Settings):
    """What the report shows."""

    top: Annotated[int, Field(ge=0)] = Field(
        10, description="pairs of the highest and of the lowest CM that are shown with text"
    )


class Experiment(Settings):
    """One experiment: a data set, a backbone, a design, the trainings and the audits."""

    name: Annotated[str, Field(pattern=NAME)] = Field(description="everything lies under results/<name>/")
    compute: Compute = Field(Compute(), description="what a job computes on")
    ingest: Source = Field(description="the data set")
    backbone: BackboneSource = Field(description="the pretrained model")
    tokenize: Tokenize = Field(Tokenize(), description="how pairs become tokens")
    split: Split = Field(Split(), description="who is held out of which run")
    manifest: Manifest = Field(Manifest(), description="changes to single runs")
    sft: Training = Field(Training(), description="supervised fine-tuning on the chosen replies")
    train_rm: RewardTraining = Field(RewardTraining(), description="Bradley–Terry training")
    score: Score = Field(Score(), description="how pairs are scored")
    score_panels: Panels = Field(Panels(), description="files of audit answers")
    aggregate_cm: Resampling = Field(Resampling(), description="intervals of the summary")
    audit_length: Resampling = Field(Resampling(), description="intervals of the length audit")
    audit_factorial: Resampling = Field(Resampling(), description="intervals of the 2×2 audit")
    audit_refusal: Resampling = Field(Resampling(), description="intervals of the refusal audit")
    report: Report = Field(Report(), description="what the report shows")

    @model_validator(mode="after")
    def _known_runs(self) -> Self:
        unknown = sorted(set(self.manifest.overrides) - set(self.runs))
        if unknown:
            raise ValueError(
                f"manifest.overrides names unknown run {unknown[0]!r}; the runs are {self.runs[0]} to {self.runs[-1]}"
            )
        return self

    @property
    def runs(self) -> list[str]:
        """Run ids, see `run_ids`."""
        return run_ids(self.split.runs)


def run_ids(runs: int) -> list[str]:
    """Name the runs, with as many digits as their number needs, two at least.

    Examples
    --------
    >>> run_ids(3)
    ['r01', 'r02', 'r03']
    >>> run_ids(100)[-1]
    'r100'
    """
    digits = max(2, len(str(runs)))
    return [f"r{run:0{digits}d}" for run in range(1, runs + 1)]


def load(values: dict[str, Any]) -> Experiment:
    """Check a configuration.

    Parameters
    ----------
    values
        The parsed YAML.

    Raises
    ------
    UserError
        With the key, what was found and, for a typo, the nearest key.

    Examples
    --------
    >>> load({"name": "a", "ingest": {"planted": {}}, "backbone": {"tiny": {}}, "splt": {}})
    Traceback (most recent call last):
    ...
    rm_memorization.errors.UserError: config: unknown key 'splt'. Hint: did you mean 'split'?
    """
    return checked(Experiment, values, "config")


def check_files(experiment: Experiment) -> None:
    """Check that the files and the folder which the config names exist, and that Snakemake can take them as inputs.

    Raises
    ------
    UserError
        For the first one that does not, or whose name has a brace.
    """
    backbone = experiment.backbone
    named = [("ingest", file) for file in experiment.ingest.files]
    named += [("score_panels", file) for file in experiment.score_panels.files]
    named += [("backbone.chat_template", backbone.chat_template)] if backbone.chat_template else []
    for key, file in named:
        if set(file) & set("{}"):
            raise UserError(
                f"config: {key}",
                f"a brace in {file!r}",
                "Snakemake reads it as a wildcard",
                "rename the file",
            )
        if not Path(file).is_file():
            raise _not_there(key, "file", file)
    if backbone.path and not Path(backbone.path).is_dir():
        raise _not_there("backbone.path", "folder", backbone.path)


def _not_there(key: str, kind: str, path: str) -> UserError:
    return UserError(
        f"config: {key}", f"no such {kind} {path!r}", hint="paths start at the folder that snakemake runs in"
    )
