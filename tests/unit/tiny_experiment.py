"""A very small experiment, built once a session: planted pairs, a tiny backbone, one run trained both ways."""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rm_memorization import artifact, tables
from rm_memorization.readers import read_source
from rm_memorization.sources import Source
from rm_memorization.stages.backbone import backbone
from rm_memorization.stages.manifest import manifest
from rm_memorization.stages.sft import sft
from rm_memorization.stages.split import split
from rm_memorization.stages.tokenize import tokenize
from rm_memorization.stages.train_rm import train_rm

RUNS = ["r01", "r02", "r03", "r04"]
SOURCE = {
    "rule_users": 4, "flipped_users": 2, "arbitrary_users": 1, "length_users": 1, "pairs_per_user": 4, "seed": 7,
}  # fmt: skip
SETTINGS = {"batch_size": 8, "learning_rate": 0.003, "init_seed": 3, "data_seed": 5}
LORA = {"rank": 4, "alpha": 8}
EPOCHS = 2


@dataclass(frozen=True)
class Data:
    """What a training starts from."""

    manifest: Path
    tokens: Path
    backbone: Path

    def change(self, **paths: Path) -> "Data":
        return replace(self, **paths)


@dataclass(frozen=True)
class Trained:
    """A run's two trainings: their settings and what they write."""

    folder: Path
    lora: dict[str, Any] | None

    @property
    def sft(self) -> Path:
        return self.folder / "sft.parquet"

    @property
    def sft_log(self) -> Path:
        return self.folder / "sft_log.parquet"

    @property
    def weights(self) -> Path:
        return self.folder / "weights.parquet"

    @property
    def log(self) -> Path:
        return self.folder / "log.parquet"

    @property
    def trained(self) -> Path:
        return self.folder / "trained.parquet"

    def train_sft(self, data: Data, **changes: Any) -> None:
        settings = json.dumps(SETTINGS | {"lora": self.lora, "epochs": 1} | changes)
        sft(
            data.manifest,
            data.tokens,
            data.backbone,
            settings,
            self.sft,
            self.sft_log,
            threads=1,
            device="cpu",
        )

    def train_rm(self, data: Data, sft: Path | None = None, **changes: Any) -> None:
        settings = json.dumps(SETTINGS | {"lora": self.lora, "epochs": EPOCHS} | changes)
        out = (self.weights, self.log, self.trained)
        train_rm(
            data.manifest,
            data.tokens,
            data.backbone,
            sft or self.sft,
            settings,
            *out,
            threads=1,
            device="cpu",
        )


@dataclass(frozen=True)
class Experiment:
    """The tables; ``lora`` and ``full`` are the two ways in which the first run is trained."""

    folder: Path

    @property
    def pairs(self) -> Path:
        return self.folder / "pairs.parquet"

    @property
    def dropped(self) -> Path:
        return self.folder / "dropped.parquet"

    @property
    def data(self) -> Data:
        backbone = self.folder / "backbone" / "backbone.parquet"
        return Data(self.folder / "manifest.parquet", self.folder / "tokens.parquet", backbone)

    @property
    def other_backbone(self) -> Path:
        """The same tokenizer and shapes, weights of another seed."""
        return self.folder / "other_backbone" / "backbone.parquet"

    @property
    def lora(self) -> Trained:
        return Trained(self.folder / "lora", LORA)

    @property
    def full(self) -> Trained:
        return Trained(self.folder / "full", None)


def build(folder: Path) -> Experiment:
    """Run the flow up to the trained reward models of the first run."""
    made = Experiment(folder)
    pairs, dropped = read_source(Source.model_validate({"planted": SOURCE}))
    artifact.write(pairs, tables.PAIRS, made.pairs)
    assert dropped.is_empty()
    for path, seed in ((made.data.backbone, 0), (made.other_backbone, 1)):
        tiny = {"hidden_size": 32, "layers": 1, "vocabulary": 400, "seed": seed}
        backbone(json.dumps({"tiny": tiny}), path, made.pairs)
    tokenize(made.pairs, made.data.backbone, made.data.tokens, made.dropped, max_length=64)
    assignments = [folder / "split" / f"{run}.parquet" for run in RUNS]
    design, certificate = folder / "design.parquet", folder / "certificate.parquet"
    split(made.data.tokens, RUNS, assignments, design, certificate, held_out=1, seed=42)
    manifest(assignments[0], made.data.tokens, made.data.manifest)
    for out in (made.lora, made.full):
        out.train_sft(made.data)
        out.train_rm(made.data)
    return made


def scored(experiment: Experiment, trained: Trained, scores: Path) -> None:
    """Score every pair with one of the two."""
    from rm_memorization.stages.score import score

    data = experiment.data
    paths = (data.tokens, data.backbone, trained.sft, trained.weights, trained.log, scores)
    score(*paths, batch_tokens=256, threads=1, device="cpu")
