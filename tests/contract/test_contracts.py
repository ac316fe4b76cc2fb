"""The contracts themselves, and what a stage does with a table of another one."""

import importlib
import re
from pathlib import Path

import polars as pl
import pytest
import typer
from typer.testing import CliRunner

from rm_memorization import artifact, tables
from rm_memorization.cli import COMMANDS
from rm_memorization.errors import UserError

ROOT = Path(__file__).parent.parent.parent
STAGES = [name for name, (module, _) in COMMANDS.items() if module.startswith("stages.")]


@pytest.mark.parametrize("name", tables.CONTRACTS)
def test_a_contract_is_complete(name):
    contract = tables.CONTRACTS[name]
    assert contract.name == name
    assert set(contract.key) <= set(contract.columns)
    for column, definition in contract.columns.items():
        assert definition.description, column
        if column in contract.key:
            assert not definition.nullable, column


@pytest.mark.parametrize(
    ("contract", "column"),
    [
        (c, n)
        for c in tables.CONTRACTS.values()
        for n, d in c.columns.items()
        if d.dtype.type in (pl.Float32, pl.Float64)
    ],
    ids=lambda value: getattr(value, "name", value),
)
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_no_number_may_be_nan_or_infinite(contract, column, value):
    frame = pl.DataFrame({column: pl.Series([value], dtype=contract.columns[column].dtype.type)})
    with pytest.raises(UserError, match=column):
        artifact.check(frame, contract, Path("t.parquet"))


def options(command: str) -> dict[str, bool]:
    """Give a command's options, and whether each is required."""
    module = importlib.import_module(f"rm_memorization.{COMMANDS[command][0]}")
    app = typer.Typer()
    app.command()(getattr(module, command.replace("-", "_")))
    return {p.opts[0]: p.required for p in typer.main.get_command(app).params if p.opts[0].startswith("--")}


@pytest.mark.parametrize("command", STAGES)
def test_a_rule_calls_its_stage_by_the_options_it_has(command):
    """The rule's shell command and the command's signature agree: nothing unknown, nothing required left out."""
    stage = command.replace("-", "_")
    rule = (ROOT / "workflow" / "rules" / f"{stage}.smk").read_text(encoding="utf-8")
    assert f"rm-memorization {command} " in rule
    used = set(re.findall(r"--[a-z][a-z-]+", rule)) - {"--report"}
    known = options(command)
    assert used <= set(known)
    assert {name for name, required in known.items() if required} <= used


WRONG_INPUT = {
    "backbone": ["--source", '{"tiny": {}}', "--pairs", "WRONG", "--backbone", "out/b.parquet"],
    "tokenize": ["--pairs", "WRONG", "--backbone", "b", "--tokens", "t", "--dropped", "d", "--max-length", "9"],
    "split": ["--tokens", "WRONG", "--run", "r1", "--assignment", "a", "--design", "d", "--certificate", "c", "--held-out", "1", "--seed", "1"],
    "manifest": ["--assignment", "WRONG", "--tokens", "t", "--manifest", "m"],
    "sft": ["--manifest", "WRONG", "--tokens", "t", "--backbone", "b", "--settings", "{}", "--weights", "w", "--training-log", "l", "--threads", "1", "--device", "cpu"],
    "train-rm": ["--manifest", "WRONG", "--tokens", "t", "--backbone", "b", "--sft", "s", "--settings", "{}", "--weights", "w", "--training-log", "l", "--trained", "f", "--threads", "1", "--device", "cpu"],
    "score": ["--tokens", "WRONG", "--backbone", "b", "--sft", "s", "--train-rm", "r", "--training-log", "l", "--scores", "o", "--batch-tokens", "9", "--threads", "1", "--device", "cpu"],
    "audit-factorial": ["--panel-scores", "WRONG", "--run", "r1", "--audit", "a", "--resamples", "100", "--seed", "1"],
    "audit-refusal": ["--panel-scores", "WRONG", "--run", "r1", "--audit", "a", "--resamples", "100", "--seed", "1"],
}  # fmt: skip


@pytest.mark.parametrize("command", WRONG_INPUT)
def test_a_stage_stops_at_a_table_of_another_contract(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    frame = pl.DataFrame({"pair_id": ["a"], "seen": [1]})
    artifact.write(frame, tables.TRAINED, Path("wrong.parquet"))
    module = importlib.import_module(f"rm_memorization.{COMMANDS[command][0]}")
    app = typer.Typer()
    app.command()(getattr(module, command.replace("-", "_")))
    arguments = ["wrong.parquet" if value == "WRONG" else value for value in WRONG_INPUT[command]]
    result = CliRunner().invoke(app, arguments)
    assert isinstance(result.exception, UserError), result.output
    assert "contract trained v1, expected" in str(result.exception)
    assert {path.name for path in tmp_path.iterdir()} <= {"wrong.parquet", "out"}
