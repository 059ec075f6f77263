"""Lookup of spiders in a folder of modules, without importing their untrusted code."""

from __future__ import annotations

import ast
import configparser
import difflib
import importlib.util
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path


def modules_in(folder: Path) -> list[str]:
    """Return the names of the modules and packages directly in ``folder``, sorted."""
    try:
        paths = list(folder.iterdir())
    except OSError:
        return []
    names = {path.stem for path in paths if path.suffix == ".py" or _is_package(path)}
    return sorted(name for name in names if name.isidentifier() and name != "__init__")


def _is_package(path: Path) -> bool:
    return path.is_dir() and any(path.glob("*.py"))


def has_module(name: str, folders: Sequence[str]) -> bool:
    """Return whether the first part of a dotted module name is in a folder, or installed."""
    top = name.partition(".")[0]
    if not top.isidentifier():
        return True  # invalid names are rejected elsewhere
    if any(top in modules_in(Path(folder)) for folder in folders):
        return True
    try:
        return importlib.util.find_spec(top) is not None
    except (ImportError, ValueError):
        return False


def module_file(name: str, folder: Path) -> Path | None:
    """Return the file of a dotted module name below ``folder``."""
    path = folder.joinpath(*name.split("."))
    candidates = (path.with_name(f"{path.name}.py"), path / "__init__.py")
    return next((candidate for candidate in candidates if candidate.is_file()), None)


def classes_in(file: Path) -> list[str] | None:
    """Return every name that a module's source binds, classes first.

    None if unknown: the source cannot be parsed, or imports ``*``.
    """
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    bound = list(_bound(tree.body))
    if "*" in bound or "__getattr__" in bound:
        return None
    classes = [node.name for node in tree.body if isinstance(node, ast.ClassDef)]
    return list(dict.fromkeys([*classes, *bound]))


def _bound(body: Iterable[ast.stmt]) -> Iterator[str]:
    for node in body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name
        elif isinstance(node, ast.Import | ast.ImportFrom):
            yield from (alias.asname or alias.name for alias in node.names)
        else:
            # Assignments, and names bound inside of conditions, loops and try statements.
            for inner in ast.walk(node):
                if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store):
                    yield inner.id
            for name in ("body", "orelse", "finalbody"):
                yield from _bound(getattr(node, name, []))
            for handler in getattr(node, "handlers", []):
                yield from _bound(handler.body)


def scrapy_environment(folder: Path) -> dict[str, str]:
    """Return the variable that names the settings of a folder's ``scrapy.cfg``; {} without one."""
    config = configparser.ConfigParser()
    try:
        config.read(folder / "scrapy.cfg", encoding="utf-8")
        return {"SCRAPY_SETTINGS_MODULE": config["settings"]["default"]}
    except (KeyError, configparser.Error, UnicodeDecodeError):
        return {}


def similar(name: str, names: Sequence[str]) -> list[str]:
    """Return the names that are similar to ``name``, most similar first."""
    return difflib.get_close_matches(name, names, n=3, cutoff=0.7)
