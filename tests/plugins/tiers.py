"""Tiers of tests: ``quick`` for ``make test``, and the ``rest``, which ``make test-all`` adds.

A test is quick unless it needs an engine or a browser, runs a bench, breaks a process on purpose
(``fault``), tries made-up values (``fuzz``), is in a folder of whole installations, or is marked
``slow("what it costs")``. The mark ``quick`` keeps one test of such a folder: a crawl from end to
end. This lists the tests of the rest::

    .venv/bin/python -m pytest --tier rest --collect-only -q
"""

from __future__ import annotations

import inspect

import pytest

TIERS = ("quick", "rest", "all")
_REST_MARKS = ("docker", "browser", "bench", "fault", "fuzz", "slow")
_REST_FOLDERS = ("tests/e2e/", "tests/deploy/")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--tier``."""
    text = "which tests: quick, rest or all (the default)"
    parser.addoption("--tier", choices=TIERS, default="all", help=text)


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makeitem(collector: pytest.Collector, obj: object) -> list[pytest.Item] | None:
    """Make no tests of a function of the other tier: with all its parameters it may be hundreds."""
    if collector.config.getoption("tier") != "quick" or not inspect.isfunction(obj):
        return None
    names = {mark.name for mark in getattr(obj, "pytestmark", ())}
    return [] if names.intersection(_REST_MARKS) and "quick" not in names else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the tests of the other tier."""
    tiers = [(tier_of(item), item) for item in items]
    wanted = config.getoption("tier")
    others = [item for tier, item in tiers if wanted not in (tier, "all")]
    if others:
        config.hook.pytest_deselected(items=others)
        items[:] = [item for tier, item in tiers if tier == wanted]


def tier_of(item: pytest.Item) -> str:
    """Return ``quick`` or ``rest``; raise ``UsageError`` for a slow test that gives no reason."""
    slow = item.get_closest_marker("slow")
    if slow is not None and len(slow.args) != 1:
        raise pytest.UsageError(f"{item.nodeid}: slow() says what the test costs")
    if item.get_closest_marker("quick") is not None:
        return "quick"
    is_rest = item.nodeid.startswith(_REST_FOLDERS) or any(
        item.get_closest_marker(name) is not None for name in _REST_MARKS
    )
    return "rest" if is_rest else "quick"
