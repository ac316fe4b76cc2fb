# ruff: noqa: T201 - it prints
"""A command for the tests of the warm start: it does what it is told and shows where it runs.

Importing the module registers the command.
"""

import json
import os
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Annotated

import typer

from rm_memorization import cli
from rm_memorization.errors import UserError

cli.COMMANDS["probe"] = ("probe", "Do what the test says.")
sys.modules["rm_memorization.probe"] = sys.modules[__name__]
tempfile.gettempdir()  # remembered from here on, as libraries have it


def probe(what: str, rest: Annotated[list[str] | None, typer.Argument()] = None) -> None:
    getattr(sys.modules[__name__], f"_{what}")(*rest or [])


def _show(*rest):
    variables = {
        name: os.environ.get(name) for name in ("PROBE", "OMP_NUM_THREADS", "TOKENIZERS_PARALLELISM", "HOME")
    }
    place = {
        "argv": sys.argv[1:],
        "cwd": str(Path.cwd()),
        "rest": rest,
        "tmp": tempfile.gettempdir(),
        **variables,
    }
    print(json.dumps(place, sort_keys=True))
    print("more", file=sys.stderr)


def _echo():
    print(sys.stdin.read(), end="")


def _user_error():
    print("half a line", end="")
    raise UserError("pairs.jsonl: row 3", "empty", hint="fill it")


def _crash():
    print("before")
    raise RuntimeError("on purpose")


def _leave(code):
    sys.exit(int(code))


def _say(text):
    sys.exit(text)


def _mix():
    for number in range(3):
        print("out", number)
        print("err", number, file=sys.stderr)


def _at_exit(path):
    import atexit

    atexit.register(Path(path).touch)


def _killed():
    os.kill(os.getpid(), signal.SIGKILL)


def _until(condition):
    end = time.monotonic() + 60  # whoever is forgotten leaves by himself
    while not condition() and time.monotonic() < end:
        time.sleep(0.02)


def _wait(started, finish="never"):
    """Say who runs, and wait for a file."""
    Path(f"{started}.new").write_text(str(os.getpid()))
    Path(f"{started}.new").rename(started)
    _until(Path(finish).exists)
    print("finished")


def _meet(folder, name, count):
    """Wait until as many commands run at the same time."""
    (Path(folder) / name).touch()
    _until(lambda: len(list(Path(folder).iterdir())) >= int(count))
    print(name)
