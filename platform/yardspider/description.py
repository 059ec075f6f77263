"""Content of ``yardspider describe`` and ``yardscrapy describe``: spiders and their arguments.

``{"version": 1, "kind": "yardspider" | "scrapy", "spiders": [...], "settings": {...}, "errors":
[...]}``. A spider has ``name`` (as a job names it), ``class``, ``description``, ``arguments`` and
``settings``; an argument has ``name``, ``type``, ``default``, ``required`` and ``description``;
an error has ``module`` and ``error``. All values are JSON.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import math
import os
import re
import sys
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any, Final

import msgspec

VERSION: Final = 1
# Exit status if the folder has no spiders: not a failure, and different from those of a crash.
EXIT_NOTHING: Final = 3
_MAX_DEPTH: Final = 5
_MAX_CHARACTERS: Final = 300
_TYPES: Final = {
    "str": "str",
    "int": "int",
    "float": "float",
    "bool": "bool",
    **dict.fromkeys(("list", "List", "tuple", "set", "frozenset", "Sequence", "Iterable"), "list"),
    **dict.fromkeys(("dict", "Dict", "Mapping", "MutableMapping"), "dict"),
}
_OPTIONAL: Final = re.compile(r"Optional\[(.*)\]")
_SECTION: Final = re.compile(r"(?:spider )?(?:args|arguments|parameters):?\s*", re.IGNORECASE)
_ENTRY: Final = re.compile(r"(\s+)(\w+)(?:\s*\([^)]*\))?\s*:\s+(.+)")
_SPHINX: Final = re.compile(r":param\s+(?:[^:\s]+\s+)?(\w+):\s*(.*)")


def description(kind: str, **content: Any) -> dict[str, Any]:
    """Return the content of a description of one kind of project."""
    return {"version": VERSION, "kind": kind, **content}


def spider_content(
    name: str, spider: type, arguments: list[dict[str, Any]], settings: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the content of one spider."""
    return {
        "name": name,
        "class": f"{spider.__module__}.{spider.__qualname__}",
        "description": first_line(spider),
        "arguments": arguments,
        "settings": plain(settings),
    }


def argument_content(
    name: str, *, annotation: Any, default: Any, required: bool, helps: Mapping[str, str]
) -> dict[str, Any]:
    """Return the content of one argument; ``annotation`` is "" if there is none."""
    return {
        "name": name,
        "type": _type_name(annotation, default),
        "default": None if required else plain(default),
        "required": required,
        "description": helps.get(name, ""),
    }


def first_line(spider: type) -> str:
    """Return the first line of a class's own docstring."""
    lines = inspect.cleandoc(spider.__dict__.get("__doc__") or "").splitlines()
    return lines[0].strip()[:_MAX_CHARACTERS] if lines else ""


def argument_helps(*docstrings: str | None) -> dict[str, str]:
    """Return texts by argument: of sections "Arguments:" and of ``:param name: text``."""
    helps: dict[str, str] = {}
    for docstring in docstrings:
        inside, indent, name = False, "", ""
        for line in inspect.cleandoc(docstring or "").splitlines():
            if sphinx := _SPHINX.match(line.strip()):
                helps.setdefault(sphinx[1], sphinx[2][:_MAX_CHARACTERS])
                continue
            if line.strip() and not line[0].isspace():
                inside, indent, name = bool(_SECTION.fullmatch(line)), "", ""
                continue
            entry = _ENTRY.fullmatch(line) if inside else None
            if entry and entry[1] == (indent or entry[1]):
                indent, name = entry[1], entry[2]
                helps.setdefault(name, entry[3].strip()[:_MAX_CHARACTERS])
            elif name and line.strip():
                helps[name] = f"{helps[name]} {line.strip()}"[:_MAX_CHARACTERS]
    return helps


def plain(value: Any, depth: int = 0) -> Any:
    """Return the value as JSON can hold it; classes and other objects become texts."""
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, str):
        # A lone surrogate has no place in JSON.
        return value.encode("utf-8", "replace").decode()[:_MAX_CHARACTERS]
    if depth < _MAX_DEPTH and isinstance(value, Mapping):
        return {str(plain(str(k))): plain(item, depth + 1) for k, item in value.items()}
    if depth < _MAX_DEPTH and isinstance(value, list | tuple | set | frozenset):
        items = sorted(value, key=repr) if isinstance(value, set | frozenset) else value
        return [plain(item, depth + 1) for item in items]
    if isinstance(value, type):
        return f"{value.__module__}.{value.__qualname__}"
    return str(plain(str(value)))


def _type_name(annotation: Any, default: Any) -> str:
    """Return ``str``, ``int``, ``float``, ``bool``, ``list``, ``dict`` or ``any``."""
    if annotation == "":
        if default is None:
            return "str"
        return _TYPES.get(type(default).__name__, "str")
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    text = text.replace("typing.", "").strip("'\" ")
    if optional := _OPTIONAL.fullmatch(text):
        text = optional[1]
    kinds = {part.strip() for part in text.split("|")} - {"None"}
    names = {_TYPES.get(kind.partition("[")[0].rpartition(".")[2], "any") for kind in kinds}
    return names.pop() if len(names) == 1 else "any"


def import_module(name: str) -> tuple[ModuleType | None, str]:
    """Import a module of the project; return it, or None and the error in one line."""
    from yardspider.callbacks import describe_error

    try:
        return importlib.import_module(name), ""
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - a module's code may raise anything, also exit
        return None, describe_error("the import", error)


@contextlib.contextmanager
def own_output() -> Iterator[int]:
    """Yield a descriptor of stdout, while all output of imported modules goes to stderr."""
    sys.stdout.flush()
    ours = os.dup(1)
    os.dup2(2, 1)
    try:
        yield ours
    finally:
        sys.stdout.flush()
        os.dup2(ours, 1)
        os.close(ours)


def write_content(descriptor: int, content: Mapping[str, Any]) -> None:
    """Write a description as one line of JSON."""
    with os.fdopen(os.dup(descriptor), "wb") as file:
        file.write(msgspec.json.encode(content) + b"\n")
