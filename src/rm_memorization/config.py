"""The configuration of one experiment, checked.

Each section is named after its stage. `workflow/schemas/config.schema.json` is generated from here.
"""

import difflib
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BaseModel, Field, ValidationError, model_validator

from .errors import UserError
from .recipe import RewardTraining, Training
from .sources import BackboneSource, Count, Seed, Settings, Source

NAME = "^[a-z0-9][a-z0-9_-]*$"
Resamples = Annotated[int, Field(ge=100)]


class Compute(Settings):
    """What a job computes on."""

    threads: Count = Field(1, description="CPU threads of a job that trains or scores; part of what the weights depend on")
    device: Annotated[str, Field(pattern="^(cpu|cuda)$")] = Field("cpu", description="cpu or cuda")


class Tokenize(Settings):
    """How pairs become tokens."""

    max_length: Count = Field(1024, description="longest sequence in tokens; pairs with a longer one are dropped into the ledger")


class Override(Settings):
    """A change to one run's manifest."""

    exclude_users: Annotated[list[str], Field(min_length=1)] = Field(description="units that this run does not train on")


class Split(Settings):
    """Who is held out of which run."""

    runs: Annotated[int, Field(ge=2)] = Field(25, description="number of runs")
    held_out: Count = Field(5, description="runs that each unit is held out of")
    seed: Seed = Field(42, description="seed of the design")
    exclude_users: list[str] = Field([], description="withdrawn units: no run trains on them; the others' design stays")

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.held_out >= self.runs:
            raise ValueError(f"held_out = {self.held_out} must be smaller than runs = {self.runs}, or no run trains on anybody")
        return self


class Manifest(Settings):
    """Changes to single runs."""

    overrides: dict[str, Override] = Field({}, description="by run id, such as r03")


class Score(Settings):
    """How pairs are scored."""

    batch_tokens: Count = Field(16384, description="tokens in a batch, padding included")


class Panels(Settings):
    """Files of audit answers."""

    length: str = Field("config/panels/length.jsonl", description="prompts with answers of different length")
    factorial: str = Field("config/panels/factorial.jsonl", description="prompts with correct/incorrect × concise/expanded answers")
    refusal: str = Field("config/panels/refusal.jsonl", description="prompts with a refusal and a helpful answer")

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

    top: Annotated[int, Field(ge=0)] = Field(10, description="pairs of the highest and of the lowest CM that are shown with text")


class Experiment(Settings):
    """One experiment: a data set, a backbone, a design, the trainings and the audits."""

    name: Annotated[str, Field(pattern=NAME)] = Field(description="everything lies under results/<name>/")
    compute: Compute = Field(Compute(), description="what a job computes on")  # type: ignore[call-arg]
    ingest: Source = Field(description="the data set")
    backbone: BackboneSource = Field(description="the pretrained model")
    tokenize: Tokenize = Field(Tokenize(), description="how pairs become tokens")  # type: ignore[call-arg]
    split: Split = Field(Split(), description="who is held out of which run")  # type: ignore[call-arg]
    manifest: Manifest = Field(Manifest(), description="changes to single runs")  # type: ignore[call-arg]
    sft: Training = Field(Training(), description="supervised fine-tuning on the chosen replies")  # type: ignore[call-arg]
    train_rm: RewardTraining = Field(RewardTraining(), description="Bradley–Terry training")  # type: ignore[call-arg]
    score: Score = Field(Score(), description="how pairs are scored")  # type: ignore[call-arg]
    score_panels: Panels = Field(Panels(), description="files of audit answers")  # type: ignore[call-arg]
    aggregate_cm: Resampling = Field(Resampling(), description="intervals of the summary")  # type: ignore[call-arg]
    audit_length: Resampling = Field(Resampling(), description="intervals of the length audit")  # type: ignore[call-arg]
    audit_factorial: Resampling = Field(Resampling(), description="intervals of the 2×2 audit")  # type: ignore[call-arg]
    audit_refusal: Resampling = Field(Resampling(), description="intervals of the refusal audit")  # type: ignore[call-arg]
    report: Report = Field(Report(), description="what the report shows")  # type: ignore[call-arg]

    @model_validator(mode="after")
    def _known_runs(self) -> Self:
        unknown = sorted(set(self.manifest.overrides) - set(self.runs))
        if unknown:
            raise ValueError(f"manifest.overrides names unknown run {unknown[0]!r}; the runs are {self.runs[0]} to {self.runs[-1]}")
        return self

    @property
    def runs(self) -> list[str]:
        """Run ids: r01, r02, ...

        Examples
        --------
        >>> run_ids(3)
        ['r01', 'r02', 'r03']
        """
        return run_ids(self.split.runs)


def run_ids(runs: int) -> list[str]:
    """Name the runs: r01, r02, ..., with as many digits as the number needs, two at least."""
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
    try:
        return Experiment.model_validate(values)
    except ValidationError as error:
        raise _explain(error) from None


def check_files(experiment: Experiment) -> None:
    """Check that the files which the config names exist.

    Raises
    ------
    UserError
        For the first one that does not.
    """
    named = [("ingest", file) for file in experiment.ingest.files]
    named += [("score_panels", file) for file in experiment.score_panels.files]
    named += [(f"backbone.{key}", value) for key in ("path", "chat_template") if (value := getattr(experiment.backbone, key))]
    for key, file in named:
        if not Path(file).exists():
            raise UserError(f"config: {key}", f"no such file {file!r}", hint="paths start at the folder that snakemake runs in")


def _explain(error: ValidationError) -> UserError:
    first = error.errors(include_url=False)[0]
    key = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        near = difflib.get_close_matches(str(first["loc"][-1]), _keys_at(first["loc"][:-1]), n=1, cutoff=0.5)
        known = ", ".join(_keys_at(first["loc"][:-1]))
        return UserError("config", f"unknown key {key!r}", hint=f"did you mean {near[0]!r}?" if near else f"known keys: {known}")
    if first["type"] == "missing":
        return UserError("config", f"key {key!r} is missing", hint="config/README.md explains every key")
    message = re.sub("^Value error, ", "", first["msg"])
    where = f"config: {key}" if key else "config"
    if isinstance(first["input"], dict | list):
        return UserError(where, message)
    hint = f"write it as a number, {float(first['input']):.12g}" if _is_number(first["input"]) else ""
    return UserError(where, f"{first['input']!r} ({type(first['input']).__name__}) is wrong: {message}", hint=hint)


def _is_number(value: object) -> bool:
    """Whether it is text such as 1e-3, which YAML does not read as a number."""
    try:
        return isinstance(value, str) and bool(float(value) + 1)
    except ValueError:
        return False


def _keys_at(location: Iterable[int | str]) -> list[str]:
    model: type[BaseModel] | None = Experiment
    for part in location:
        model = _model_of(model, str(part))
    return list(model.model_fields) if model else []


def _model_of(model: type[BaseModel] | None, name: str) -> type[BaseModel] | None:
    """Find the settings class of a field, also inside `X | None` and `dict[str, X]`."""
    if model is None:
        return None
    if name not in model.model_fields:
        return model
    annotation = model.model_fields[name].annotation
    candidates = [annotation, *getattr(annotation, "__args__", ())]
    return next((c for c in candidates if isinstance(c, type) and issubclass(c, BaseModel)), None)
