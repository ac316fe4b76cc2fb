"""The digest follows what a stage's code does, through all its imports, and not how it is written down."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rm_memorization import code_digest as module
from rm_memorization.cli import COMMANDS
from rm_memorization.code_digest import code_digest

STAGES = sorted(name for name, _ in COMMANDS.values() if name.startswith("stages."))
FILES = {
    "__init__.py": '__version__ = "1"\n',
    "stages/__init__.py": '"""Stages."""\n',
    "stages/one.py": '"""A stage."""\nfrom .. import plain, other as renamed\nfrom ..chain import step\n\ndef one():\n    """Run."""\n    from ..lazy import x\n    return step(x)\n',
    "stages/two.py": "def two():\n    return 2\n",
    "plain.py": "A = 1\n",
    "other.py": "B = 1\n",
    "chain.py": "from .sub.deep import E\nclass C:\n    '''A class.'''\n\ndef step(x):\n    return x + E\n",
    "lazy.py": "import json\nimport pack.absolute\nfrom pack import named\nx = 1\n",
    "absolute.py": "D = 1\n",
    "named.py": "D = 1\n",
    "sub/__init__.py": "from .beside import F\n",
    "sub/beside.py": "from . import third\nF = 1\n",
    "sub/third.py": "G = 1\n",
    "sub/deep.py": "E = 1\n",
    "stranger.py": "Z = 1\n",
    "templates/page.html": "<p>\n",
}
REACHED = {
    "stages", "stages.one", "plain", "other", "chain", "lazy", "absolute", "named", "sub", "sub.beside", "sub.third", "sub.deep",
}  # fmt: skip


def forget():
    for cached in (module._parse, module._tree, module._imports):
        cached.cache_clear()


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Put a made-up package in the place of this one."""
    folder = tmp_path / "pack"
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    monkeypatch.setattr(module, "PACKAGE", folder)
    forget()
    yield folder
    forget()


def digest(package: Path, name: str, text: str | None = None, *folders: str) -> str:
    """Digest the stage with one file rewritten."""
    if text is not None:
        (package / name).write_text(text)
    forget()
    return code_digest("stages.one", *folders)


def test_all_imports_are_followed(package):
    assert module._closure("stages.one") == REACHED


def test_a_stage_that_imports_nothing(package):
    assert module._closure("stages.two") == {"stages", "stages.two"}


@pytest.mark.parametrize("name", sorted(REACHED))
def test_a_change_of_code_is_noticed(package, name):
    path = next(
        path
        for path in (f"{name.replace('.', '/')}.py", f"{name.replace('.', '/')}/__init__.py")
        if path in FILES
    )
    before = digest(package, path)
    assert digest(package, path, FILES[path] + "NEW = 2\n") != before
    assert digest(package, path, FILES[path]) == before


@pytest.mark.parametrize("name", ["stranger.py", "stages/two.py", "__init__.py", "templates/page.html"])
def test_a_change_elsewhere_is_not(package, name):
    assert digest(package, name) == digest(package, name, "changed = 1\n")


@pytest.mark.parametrize(
    "text",
    [
        FILES["chain.py"] + "# a comment\n",
        "\n\n" + FILES["chain.py"].replace("\n\n", "\n\n\n\n"),
        '"""Steps."""\n' + FILES["chain.py"],
        FILES["chain.py"].replace("A class.", "Another description."),
        FILES["chain.py"].replace("    '''A class.'''\n", "    pass\n"),
        FILES["chain.py"].replace(
            "return x + E", '"""Add.\n\n    Much said.\n    """\n    return (x + E)  # sum'
        ),
        FILES["chain.py"].replace("'''", '"""'),
    ],
)
def test_how_it_is_written_down_does_not_matter(package, text):
    assert digest(package, "chain.py") == digest(package, "chain.py", text)


@pytest.mark.parametrize(
    "text",
    [
        FILES["chain.py"].replace("x + E", "E + x"),
        FILES["chain.py"].replace("step(x)", "step(x=0)"),
        FILES["chain.py"].replace("return x + E", 'return "x"'),
        FILES["chain.py"] + "TEXT = 'no docstring'\n",
    ],
)
def test_what_it_does_matters(package, text):
    assert digest(package, "chain.py") != digest(package, "chain.py", text)


def test_code_that_moves_to_another_module_is_noticed(package):
    before = digest(package, "plain.py")
    (package / "plain.py").write_text("")
    assert digest(package, "other.py", FILES["other.py"] + FILES["plain.py"]) != before


def test_files_that_a_module_reads(package):
    before = digest(package, "templates/page.html", None, "templates")
    assert before != digest(package, "templates/page.html")
    assert digest(package, "templates/page.html", "<b>\n", "templates") != before
    (package / "templates" / "page.html").rename(package / "templates" / "index.html")
    assert digest(package, "templates/index.html", FILES["templates/page.html"], "templates") != before


def test_a_module_that_does_not_exist(package):
    with pytest.raises(ModuleNotFoundError, match=r"no module 'stages\.three' in pack"):
        code_digest("stages.three")


@pytest.mark.parametrize("stage", ["stages.ingest", "stages.backbone", "stages.report"])
def test_whatever_a_stage_loads_is_in_its_digest(stage):
    """The imports that the interpreter does, against those that the digest follows."""
    code = f"import sys, rm_memorization.{stage}; print(*(n for n in sys.modules if n.startswith('rm_memorization.')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {name.removeprefix("rm_memorization.") for name in done.stdout.split()}
    assert stage in loaded
    assert loaded <= module._closure(stage)


def test_it_is_the_same_in_every_process():
    code = f"from rm_memorization.code_digest import code_digest; print(*map(code_digest, {STAGES}))"
    printed = {
        subprocess.run(
            [sys.executable, "-c", code],
            env=os.environ | {"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(printed) == 1
    assert printed.pop().split() == [code_digest(stage) for stage in STAGES]
    assert len({code_digest(stage) for stage in STAGES}) == len(STAGES)
