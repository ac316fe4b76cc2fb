"""Digest of the code that a stage runs: its module and all that it imports from this package.

It is taken over the syntax tree without comments, docstrings and positions, so that it changes with what the code does
and not with how it is written down.
"""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from .hashing import file_digest, text_digest

PACKAGE = Path(__file__).parent


def code_digest(module: str, *folders: str) -> str:
    """Digest a module and its imports within the package, wherever in a module they stand.

    Parameters
    ----------
    module
        Relative to the package, such as ``stages.ingest``.
    *folders
        Folders of the package whose files the module reads, such as ``templates``.

    Examples
    --------
    >>> code_digest("hashing") == code_digest("files")
    False
    """
    parts = [part for name in sorted(_closure(module)) for part in (name, _tree(name))]
    for path in sorted(
        path for folder in folders for path in (PACKAGE / folder).rglob("*") if path.is_file()
    ):
        parts += [path.relative_to(PACKAGE).as_posix(), file_digest(path)]
    return text_digest(*parts)[:16]


def _closure(module: str) -> set[str]:
    seen: set[str] = set()
    waiting = _with_packages(module)
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            waiting.extend(_imports(name))
    return seen


def _path(module: str) -> Path | None:
    base = PACKAGE.joinpath(*module.split("."))
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
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(tree):
        if isinstance(node, documented) and ast.get_docstring(node, clean=False) is not None:
            node.body = node.body[1:] or [ast.Pass()]
    return ast.dump(tree)


@cache
def _imports(module: str) -> frozenset[str]:
    """Modules of the package that a module imports, wherever the import stands."""
    named = (name for node in ast.walk(_parse(module)) for name in _named(node, module))
    return frozenset(part for name in named for part in _with_packages(name) if _path(part))


def _with_packages(module: str) -> list[str]:
    """Give a module and the packages around it, whose `__init__` runs first.

    The outermost is left out: it holds the version, which changes no result.
    """
    parts = module.split(".")
    return [".".join(parts[:end]) for end in range(1, len(parts) + 1)]


def _named(node: ast.AST, module: str) -> Iterator[str]:
    """Names, relative to the package, that an import may mean: a module, or something in it."""
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom):
        base = ".".join(part for part in (_anchor(node.level, module), node.module) if part)
        names = [f"{base}.{alias.name}" for alias in node.names]
    else:
        return
    prefix = f"{PACKAGE.name}."
    yield from (name.removeprefix(prefix) for name in names if name.startswith(prefix))


def _anchor(level: int, module: str) -> str:
    """Give the package that a relative import starts from; of level 0 there is none."""
    if not level:
        return ""
    path = _path(module)
    inside = [PACKAGE.name, *module.split(".")]
    up = level - (path is not None and path.name == "__init__.py")
    return ".".join(inside[: len(inside) - up])
