"""Every crash window is tried: each failpoint of the product is named by a test, and exists."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.seeds.faults.test_kills import OF_STORES
from tests.test_layout import ROOT
from yardkit import failpoints

# ``seeds.{name}.before_write``: the name is that of the change.
OF_CHANGES = re.compile(r"seeds\.\{name\}\.(before|after)_write")
CHANGE = re.compile(r'\.change\("([a-z_]+)"\)')
SET = re.compile(r"([a-z_]+\.[a-z_.]+)=(?:kill|stop|raise|sleep)")
# Of the mechanism itself: their names are made up.
MADE_UP = ROOT / "tests" / "yardkit"


@cache
def product() -> dict[Path, str]:
    folders = (ROOT / "apps", ROOT / "platform")
    return {path: path.read_text("utf-8") for each in folders for path in each.rglob("*.py")}


@cache
def points() -> frozenset[str]:
    """The names of all calls of ``hit``."""
    found = set()
    for path, text in product().items():
        for node in ast.walk(ast.parse(text)) if "hit(" in text else ():
            if not isinstance(node, ast.Call) or ast.unparse(node.func) not in (
                "failpoints.hit",
                "hit",
            ):
                continue
            name = node.args[0]
            if isinstance(name, ast.Constant):
                found.add(name.value)
            elif isinstance(name, ast.JoinedStr):
                match = OF_CHANGES.fullmatch(ast.unparse(name)[2:-1])
                assert match, f"{path}:{node.lineno}: a name that no test can look for"
                found |= {f"seeds.{each}.{match[1]}_write" for each in changes()}
    return frozenset(found)


def changes() -> set[str]:
    store = product()[ROOT / "apps" / "seeds" / "stores" / "rocks" / "store.py"]
    return set(CHANGE.findall(store))


def words(path: Path) -> Iterator[str]:
    """The strings of a file of tests, without its docstrings."""
    tree = ast.parse(path.read_text("utf-8"))
    said = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in said:
            yield node.value


@cache
def of_tests() -> frozenset[str]:
    own = Path(__file__)
    files = (path for path in (ROOT / "tests").rglob("*.py") if path != own)
    return frozenset(each for path in files if MADE_UP not in path.parents for each in words(path))


@pytest.mark.slow("7 s")
def test_every_failpoint_is_tried() -> None:
    assert len(points()) > 100
    text = "\n".join(of_tests())
    tried = set(re.findall(r"(?<![\w.])[a-z_]+(?:\.[a-z_]+)+(?![\w.])", text))
    for each in OF_STORES:
        tried |= set(failpoints.parse(each))
    assert sorted(points() - tried) == []


@pytest.mark.slow("15 s")
def test_every_failpoint_that_is_set_exists() -> None:
    """A misspelt one would be a test of nothing."""
    found = {name for each in of_tests() for name in SET.findall(each)}
    assert len(found) > 20
    assert sorted(found - points()) == []
