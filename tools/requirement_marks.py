"""Which requirement lines the tests prove: reads the ids and the `covers` marks, runs no test.

The marks are read from the source and not from a collection, so that the answer is the same
whichever tests are selected and whatever is installed.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeGuard

ROOT = Path(__file__).resolve().parents[1]
REQUIREMENTS = ROOT / "docs" / "requirements.md"
TESTS = ROOT / "tests"

_ID = re.compile(r"\*\*([A-Z]+\d*\.\d+)\*\*")


class MarkError(ValueError):
    """A `covers` mark that cannot be read, or that names no requirement."""


@dataclass(frozen=True, slots=True)
class Mark:
    """One test (or class, or module) that says it proves ``ids``."""

    path: Path
    line: int
    name: str
    ids: tuple[str, ...]


def requirement_ids(path: Path = REQUIREMENTS) -> list[str]:
    """Every id of the requirement list, in its order."""
    return _ID.findall(path.read_text(encoding="utf-8"))


def scan(tests: Path = TESTS) -> list[Mark]:
    """Every mark under ``tests``, sorted by file and line.

    Raises:
        MarkError: a mark stands where no test is, or its ids are no plain strings.
    """
    marks: list[Mark] = []
    for path in sorted(tests.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"), filename=str(path))
        found = list(_marks_of_body(path, tree.body, prefix=""))
        marks.extend(found)
        read = sum(len(_covers_calls(node)) for node in _holders(tree.body))
        written = len(_covers_calls(tree))
        if read != written:
            raise MarkError(
                f"{path}: a covers(...) mark is neither on a test, nor on its class, nor in "
                "pytestmark, so no test would be found for it"
            )
    return marks


def _marks_of_body(path: Path, body: list[ast.stmt], *, prefix: str) -> Iterator[Mark]:
    for node in body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and _is_pytestmark(node):
            yield from _read(path, node, prefix.removesuffix("::"))
        elif isinstance(node, ast.ClassDef):
            for decorator in node.decorator_list:
                yield from _read(path, decorator, prefix + node.name)
            yield from _marks_of_body(path, node.body, prefix=f"{prefix}{node.name}::")
        elif _is_test(node):
            for decorator in node.decorator_list:
                yield from _read(path, decorator, prefix + node.name)


def _holders(body: list[ast.stmt]) -> Iterator[ast.AST]:
    """The places whose marks `_marks_of_body` reads."""
    for node in body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and _is_pytestmark(node):
            yield node
        elif isinstance(node, ast.ClassDef):
            yield from node.decorator_list
            yield from _holders(node.body)
        elif _is_test(node):
            yield from node.decorator_list


def _is_test(node: ast.stmt) -> TypeGuard[ast.FunctionDef | ast.AsyncFunctionDef]:
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return False
    return node.name.startswith("test")


def _is_pytestmark(node: ast.Assign | ast.AnnAssign) -> bool:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return any(isinstance(target, ast.Name) and target.id == "pytestmark" for target in targets)


def _covers_calls(node: ast.AST) -> list[ast.Call]:
    """Calls that end in `mark.covers(...)`."""
    return [
        call
        for call in ast.walk(node)
        if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and call.func.attr == "covers"
        and isinstance(call.func.value, ast.Attribute)
        and call.func.value.attr == "mark"
    ]


def _read(path: Path, node: ast.AST, name: str) -> Iterator[Mark]:
    for call in _covers_calls(node):
        ids = []
        for argument in call.args:
            if not (isinstance(argument, ast.Constant) and isinstance(argument.value, str)):
                raise MarkError(f"{path}:{call.lineno}: write the ids of covers(...) as strings")
            ids.append(argument.value)
        yield Mark(path=path, line=call.lineno, name=name, ids=tuple(ids))
