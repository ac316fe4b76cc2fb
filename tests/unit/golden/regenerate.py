"""Measure the recipe: the losses of five steps of each training, and a digest of the code that shapes trainings.

    python tests/unit/golden/regenerate.py

writes them to `recipe.json`, which `test_recipe_golden.py` holds against what it measures itself.
"""

import ast
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from rm_memorization import artifact, tables, tiny
from rm_memorization.backbone_files import folder_of, listing
from rm_memorization.code_digest import PACKAGE
from rm_memorization.hashing import canonical_json, text_digest
from rm_memorization.recipe import RECIPE
from rm_memorization.sources import TinyLlama
from rm_memorization.stages.sft import sft
from rm_memorization.stages.train_rm import train_rm

GOLDEN = Path(__file__).with_name("recipe.json")
TOLERANCE = 1e-4
# Settings and arithmetic of the trainings. What decides the tokens, the manifests and the backbone has hashes of its own.
MODULES = ("recipe", "reward_model", "training", "stages.sft", "stages.train_rm")
PAIRS, BATCH = 40, 8
WAYS = {"lora": {"rank": 4, "alpha": 8}, "all_weights": None}


def measure(folder: Path) -> dict[str, Any]:
    """Train in an empty folder and give what is committed: recipe, code, losses by training."""
    losses = {}
    manifest, tokens = _pairs(folder)
    backbone = _backbone(folder)
    for way, lora in WAYS.items():
        settings = json.dumps({"lora": lora, "epochs": 1, "batch_size": BATCH, "learning_rate": 0.003})
        names = ("sft", "sft_log", "weights", "log", "trained")
        out = {name: folder / way / f"{name}.parquet" for name in names}
        inputs = (manifest, tokens, backbone)
        sft(*inputs, settings, out["sft"], out["sft_log"], threads=1, device="cpu")
        made = (out["weights"], out["log"], out["trained"])
        train_rm(*inputs, out["sft"], settings, *made, threads=1, device="cpu")
        losses |= {f"sft.{way}": _losses(out["sft_log"]), f"train_rm.{way}": _losses(out["log"])}
    return {"recipe": RECIPE, "code": code(), "losses": losses}


def _pairs(folder: Path) -> tuple[Path, Path]:
    """Plant pairs as token ids: the chosen reply opens with one of ten tokens, the rejected one with one of ten others."""
    rng = np.random.default_rng(0)
    rows = []
    for number in range(PAIRS):
        prompt, tails = rng.integers(100, 250, rng.integers(3, 8)), rng.integers(100, 250, (2, 4))
        openings = [[20 + int(rng.integers(10))], [40 + int(rng.integers(10))]]
        chosen, rejected = ([*head, *tail.tolist(), 2] for head, tail in zip(openings, tails, strict=True))
        rows.append(
            (
                f"p{number:02d}",
                f"u{number // 4}",
                [1, *prompt.tolist()],
                chosen,
                rejected,
                1 + len(prompt),
                "0",
            )
        )
    schema = {name: column.dtype.type for name, column in tables.TOKENIZED.columns.items()}
    frame = pl.DataFrame(rows, schema=schema, orient="row")
    artifact.write(frame, tables.TOKENIZED, folder / "tokens.parquet")
    included = frame.select("unit_id", "pair_id", "token_hash")
    artifact.write(included, tables.MANIFEST, folder / "manifest.parquet")
    return folder / "manifest.parquet", folder / "tokens.parquet"


def _backbone(folder: Path) -> Path:
    table = folder / "backbone" / "backbone.parquet"
    folder_of(table).mkdir(parents=True)
    tiny.build(TinyLlama(hidden_size=32, layers=1, vocabulary=300), ["a text"], folder_of(table))
    artifact.write(listing(folder_of(table)), tables.BACKBONE, table)
    return table


def _losses(log: Path) -> list[float]:
    frame = artifact.read(log, tables.TRAINING_LOG).filter(metric="loss").sort("step")
    return [round(loss, 6) for loss in frame["value"]]


def code() -> str:
    """Digest the modules without comments, docstrings and layout; the same under every version of Python."""
    parts = [(name, PACKAGE.joinpath(*name.split(".")).with_suffix(".py")) for name in MODULES]
    return text_digest(
        *(
            part
            for name, path in parts
            for part in (name, canonical_json(plain(path.read_text(encoding="utf-8"))))
        )
    )[:16]


def plain(source: str) -> Any:
    """Give a syntax tree as lists of what is in it, empty fields, which newer versions add, left out."""

    def given(node: Any) -> Any:
        if isinstance(node, list):
            return [given(each) for each in node]
        if isinstance(node, ast.AST):
            fields = (
                (name, value) for name, value in ast.iter_fields(node) if value is not None and value != []
            )
            return [type(node).__name__, *([name, given(value)] for name, value in fields)]
        return repr(node)

    tree = ast.parse(source)
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
            and ast.get_docstring(node) is not None
        ):
            node.body = node.body[1:]
    return given(tree)


def moved(found: dict[str, Any], golden: dict[str, Any]) -> list[str]:
    """Name the trainings whose losses differ."""
    names = sorted({*found["losses"], *golden["losses"]})
    pairs = [(name, found["losses"].get(name, []), golden["losses"].get(name, [])) for name in names]
    return [name for name, a, b in pairs if len(a) != len(b) or not np.allclose(a, b, rtol=0, atol=TOLERANCE)]


def main() -> None:
    """Write the file; losses that moved need another recipe version."""
    with tempfile.TemporaryDirectory() as folder:
        found = measure(Path(folder))
    golden = json.loads(GOLDEN.read_text()) if GOLDEN.exists() else found
    if moved(found, golden) and found["recipe"] == golden["recipe"]:
        sys.exit(f"the losses of {', '.join(moved(found, golden))} moved: bump RECIPE in recipe.py first")
    GOLDEN.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
