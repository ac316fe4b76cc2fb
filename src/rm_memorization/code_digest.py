"""Digest of the code that a stage runs: its module and all that it imports from this package.

It is taken over the syntax tree without comments, docstrings and positions, so that it changes with what the code does
and not with how it is written down.
"""

import ast
from functools import cache
from pathlib import Path

from .hashing import text_digest

PACKAGE = Path(__file__).parent


def code_digest(module: str) -> str:
    """Digest a module and its imports within the package.

    Parameters
    ----------
    module
        Relative to the package, such as ``stages.ingest``.

    Examples
    --------
    >>> code_digest("hashing") == code_digest("files")
    False
    """
    parts = [part for name in sorted(_closure(module)) for part in (name, _tree(name))]
    return text_digest(*parts)[:16]


def _closure(module: str) -> set[str]:
    seen: set[str] = set()
    waiting = [module]
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            waiting.extend(_imports(name))
    return seen


def _path(module: str) -> Path | None:
    base = PACKAGE.joinpath(*module.split(".")) if module else PACKAGE
    return next((path for path in (base.with_suffix(".py"), base / "__init__.py") if path.is_file()), None)


@cache
def _parse(module: str) -> ast.Module:
    path = _path(module)
    if path is None:
        raise ModuleNotFoundError(f"no module {module!r} in {PACKAGE.name}")
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def _tree(module: str) -> str:
    tree = _parse(module)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and ast.get_docstring(node, clean=False) is not None:
            node.body = node.body[1:] or [ast.Pass()]
    return ast.dump(tree)


@cache
def _imports(module: str) -> frozenset[str]:
    """Modules of the package that a module imports, wherever in it the import stands."""
    path = _path(module)
    own = module if path and path.name == "__init__.py" else module.rpartition(".")[0]
    found: set[str] = set()
    for node in ast.walk(_parse(module)):
        if isinstance(node, ast.ImportFrom) and node.level:
            anchor = own.split(".")[: len(own.split(".")) - node.level + 1] if own else []
            base = ".".join([*anchor, *(node.module.split(".") if node.module else [])])
            candidates = [base, *(f"{base}.{alias.name}".lstrip(".") for alias in node.names)]
            found.update(name for name in candidates if name and _path(name))
    return frozenset(found)
