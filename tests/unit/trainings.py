"""What the tests of both trainings share."""

import subprocess
import sys
from pathlib import Path

import polars as pl
import trl

from rm_memorization import artifact, tables, weights

HERE = Path(__file__).parent


def spy(monkeypatch, name):
    """Collect the trainers that are made under this name in trl, each with the batches that it trained on."""
    made = []

    class Spy(getattr(trl, name)):
        def __init__(self, **options):
            self.batches = []
            super().__init__(**options)
            made.append(self)

        def compute_loss(self, model, inputs, *args, **options):
            self.batches.append({key: value.tolist() for key, value in inputs.items() if key != "use_cache"})
            self.modes = {module.training for module in model.modules()}
            return super().compute_loss(model, inputs, *args, **options)

    monkeypatch.setattr(trl, name, Spy)
    return made


def losses(log):
    """Give the losses of a training log, in the order of the steps."""
    frame = artifact.read(log, tables.TRAINING_LOG).filter(pl.col("metric") == "loss").sort("step")
    return frame["value"].to_list()


def distance(first, second):
    """Give the largest difference between two weights tables."""
    a, b = weights.load(first, "sft")[0], weights.load(second, "sft")[0]
    assert set(a) == set(b)
    return max(float((a[name] - b[name]).abs().max()) for name in a)


def content_hash(path):
    return artifact.footer(path)["content_hash"]


def in_fresh_process(code):
    """Run code in another process, with these helpers at hand."""
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=HERE)
    assert done.returncode == 0, done.stderr
    return done.stdout


def overlong(data, folder, length=1100):
    """Make the first pair of the manifest longer than any of TRL's defaults, by repeating its prompt."""
    tokens, manifest = (
        artifact.read(data.tokens, tables.TOKENIZED),
        artifact.read(data.manifest, tables.MANIFEST),
    )
    name = manifest["pair_id"].min()
    first = pl.col("pair_id") == name
    filler = tokens.filter(first)["prefix_ids"][0].to_list() * (length // 5)
    longer = pl.lit(pl.Series([filler[:length]], dtype=pl.List(pl.Int32)).first(), dtype=pl.List(pl.Int32))
    changed = tokens.with_columns(
        prefix_ids=pl.when(first).then(pl.concat_list(longer, "prefix_ids")).otherwise("prefix_ids"),
        n_prompt=pl.when(first).then(pl.col("n_prompt") + length).otherwise("n_prompt"),
    )
    artifact.write(changed, tables.TOKENIZED, folder / "tokens.parquet")
    return data.change(tokens=folder / "tokens.parquet")
