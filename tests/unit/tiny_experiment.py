"""A very small experiment, built once a session: planted pairs, a tiny backbone, one run trained both ways."""

import json
from dataclasses import dataclass
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
SOURCE = {"rule_users": 4, "flipped_users": 2, "arbitrary_users": 1, "length_users": 1, "pairs_per_user": 4, "seed": 7}
LORA = {"rank": 4, "alpha": 8}
SETTINGS: dict[str, Any] = {"batch_size": 8, "learning_rate": 0.003, "init_seed": 3, "data_seed": 5}
EPOCHS = 2


@dataclass(frozen=True)
class Trained:
    """What the trainings of a run wrote, under a folder."""

    folder: Path
    lora: dict[str, Any] | None

    @property
    def settings(self) -> dict[str, Any]:
        return SETTINGS | {"lora": self.lora}

    def __getattr__(self, name: str) -> Path:
        return self.folder / f"{name}.parquet"


@dataclass(frozen=True)
class Experiment:
    """The tables of the experiment; ``lora`` and ``full`` are the two trainings of its first run."""

    folder: Path

    @property
    def lora(self) -> Trained:
        return Trained(self.folder / "lora", LORA)

    @property
    def full(self) -> Trained:
        return Trained(self.folder / "full", None)

    @property
    def backbone(self) -> Path:
        return self.folder / "backbone" / "backbone.parquet"

    @property
    def other_backbone(self) -> Path:
        """The same tokenizer and shapes, weights of another seed."""
        return self.folder / "other_backbone" / "backbone.parquet"

    def __getattr__(self, name: str) -> Path:
        return self.folder / f"{name}.parquet"

    def train_sft(self, out: Trained, **changes: Any) -> None:
        settings = json.dumps(out.settings | {"epochs": 1} | changes)
        sft(self.manifest, self.tokens, self.backbone, settings, out.sft, out.sft_log, threads=1, device="cpu")

    def train_rm(self, out: Trained, sft_weights: Path | None = None, **changes: Any) -> None:
        settings = json.dumps(out.settings | {"epochs": EPOCHS} | changes)
        paths = (settings, out.weights, out.log, out.trained)
        train_rm(self.manifest, self.tokens, self.backbone, sft_weights or out.sft, *paths, threads=1, device="cpu")


def build(folder: Path) -> Experiment:
    """Run the flow up to the trained reward models of the first run."""
    made = Experiment(folder)
    pairs, _ = read_source(Source.model_validate({"planted": SOURCE}))
    artifact.write(pairs, tables.PAIRS, made.pairs)
    for path, seed in ((made.backbone, 0), (made.other_backbone, 1)):
        tiny = {"hidden_size": 32, "layers": 1, "vocabulary": 400, "seed": seed}
        backbone(json.dumps({"tiny": tiny}), path, made.pairs)
    tokenize(made.pairs, made.backbone, made.tokens, made.dropped, max_length=64)
    assignments = [folder / "split" / f"{run}.parquet" for run in RUNS]
    split(made.tokens, RUNS, assignments, made.design, made.certificate, held_out=1, seed=42)
    manifest(assignments[0], made.manifest)
    for out in (made.lora, made.full):
        made.train_sft(out)
        made.train_rm(out)
    return made
