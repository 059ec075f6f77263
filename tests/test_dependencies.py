"""Whatever the product imports is named in pyproject.toml, and not only there by chance."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions

import pytest

from tools.requirement_marks import ROOT

OWN = frozenset({"apps", "crawlyard", "yardcli", "yardkit", "yardscrapy", "yardspider", "tools"})
# The peers of benches, of the dependency group "bench".
OPTIONAL = frozenset({"scrapy_redis", "simpleeval"})


def _imported(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module.partition(".")[0]


def _normal(name: str) -> str:
    return name.lower().replace("_", "-")


@pytest.mark.slow("6 s")
def test_every_imported_package_is_named() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    lines = [*project["dependencies"]]
    for extra in project["optional-dependencies"].values():
        lines += extra
    named = {_normal(re.split(r"[^A-Za-z0-9._-]", line)[0]) for line in lines}
    brought_by = packages_distributions()
    files = [path for root in ("apps", "platform", "tools") for path in (ROOT / root).rglob("*.py")]
    unnamed = set()
    for path in files:
        for module in _imported(path.read_text(encoding="utf-8")):
            if module in OWN or module in OPTIONAL or module in sys.stdlib_module_names:
                continue
            if not named & {_normal(each) for each in brought_by.get(module, ())}:
                unnamed.add(module)
    assert len(files) > 100
    assert not unnamed
