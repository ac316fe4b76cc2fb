"""The command line: light help, one line for a user's mistake, a traceback for ours."""

import re
import subprocess
import sys
import types
from pathlib import Path

import polars as pl
import pytest
from typer.testing import CliRunner

from rm_memorization import artifact, cli, options, tables
from rm_memorization.cli import COMMANDS, app
from rm_memorization.errors import UserError

HEAVY = ("torch", "polars", "pandera", "numpy", "transformers", "pyarrow")


def python(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False
    )


MAIN = "from rm_memorization.warm import main; main()"


def test_help_imports_nothing_heavy_and_lists_every_command():
    code = f"""
import atexit, sys
atexit.register(lambda: print("heavy:", sorted(set({HEAVY}) & set(sys.modules))))
{MAIN}
"""
    done = python(code, "--help")
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("heavy: []\n")
    listed = re.findall(r"^  ([a-z][a-z-]+)  ", done.stdout, flags=re.MULTILINE)
    assert listed == list(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself(name):
    done = CliRunner().invoke(app, [name, "--help"], prog_name="rm-memorization")
    assert done.exit_code == 0, done.output
    assert done.output.startswith(f"Usage: rm-memorization {name} ")
    assert COMMANDS[name][1] in " ".join(done.output.split())


def test_every_stage_is_a_command():
    files = Path(cli.__file__).with_name("stages").glob("[a-z]*.py")
    stages = {f"stages.{path.stem}" for path in files}
    assert stages == {module for module, _ in COMMANDS.values() if module.startswith("stages.")}


def test_a_user_s_mistake_is_one_line():
    done = python(
        MAIN,
        "manifest",
        "--assignment",
        "no\nsuch.parquet",
        "--tokens",
        "t.parquet",
        "--manifest",
        "m.parquet",
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "error: no such.parquet: no such file. Hint: run the stage that makes it\n"


def test_an_unexpected_exception_keeps_its_traceback():
    code = f"""
import sys, types
module = types.ModuleType("rm_memorization.boom")
def boom() -> None:
    raise RuntimeError("not the user's fault")
module.boom = boom
sys.modules["rm_memorization.boom"] = module
from rm_memorization.cli import COMMANDS
COMMANDS["boom"] = ("boom", "Fail.")
{MAIN}
"""
    done = python(code, "boom")
    assert done.returncode == 1
    assert done.stderr.startswith("Traceback (most recent call last):")
    assert ", in boom" in done.stderr
    assert done.stderr.endswith("RuntimeError: not the user's fault\n")


def test_an_unknown_command_and_a_missing_option():
    unknown = python(MAIN, "scor")
    assert (unknown.returncode, unknown.stdout) == (2, "")
    assert "No such command 'scor'" in unknown.stderr
    missing = python(MAIN, "manifest", "--manifest", "m.parquet")
    assert missing.returncode == 2
    assert missing.stderr.startswith("Usage: rm-memorization manifest [OPTIONS]")
    assert "Missing option '--assignment'" in missing.stderr


def test_without_arguments_it_explains_itself():
    done = CliRunner().invoke(app, [])
    assert "Commands:" in done.output


@pytest.fixture
def probe(monkeypatch):
    """Register a command that keeps the options it was given."""
    given = {}
    module = types.ModuleType("rm_memorization.probe")

    def command(device: options.Device, seed: int = 0) -> None:
        given.update(device=device, seed=seed)

    module.probe = command
    monkeypatch.setitem(sys.modules, "rm_memorization.probe", module)
    monkeypatch.setitem(COMMANDS, "probe", ("probe", "Keep the options."))
    return given


def test_devices(probe):
    assert CliRunner().invoke(app, ["probe", "--device", "cuda"]).exit_code == 0
    assert probe["device"] == "cuda"
    assert f"{probe['device']}" == "cuda"
    refused = CliRunner().invoke(app, ["probe", "--device", "gpu"])
    assert refused.exit_code == 2
    assert "'gpu' is not one of 'cpu', 'cuda'" in refused.output


def test_a_unit_may_be_called_like_an_option(tmp_path):
    frame = pl.DataFrame({"unit_id": ["--seed", "u"], "pair_id": ["a", "b"], "token_hash": ["x", "y"]})
    artifact.write(frame, tables.ASSIGNMENT, tmp_path / "a.parquet")
    ids = [
        pl.Series(name, [[1], [1]], dtype=tables.TOKENS)
        for name in ("prefix_ids", "chosen_ids", "rejected_ids")
    ]
    artifact.write(
        frame.with_columns(*ids, n_prompt=pl.lit(1, pl.Int64)), tables.TOKENIZED, tmp_path / "t.parquet"
    )
    paths = ["--assignment", str(tmp_path / "a.parquet"), "--tokens", str(tmp_path / "t.parquet")]
    paths += ["--manifest", str(tmp_path / "m.parquet")]
    done = CliRunner().invoke(app, ["manifest", *paths, "--exclude-user", "--seed"])
    assert done.exit_code == 0, done.output
    assert artifact.read(tmp_path / "m.parquet", tables.MANIFEST)["unit_id"].to_list() == ["u"]


def test_a_user_error_reaches_the_caller_of_the_app_as_it_is():
    done = CliRunner().invoke(
        app, ["manifest", "--assignment", "gone.parquet", "--tokens", "t.parquet", "--manifest", "m.parquet"]
    )
    assert isinstance(done.exception, UserError)
    assert done.exception.where == "gone.parquet"
