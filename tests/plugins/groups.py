"""Which tests may run beside which, when several processes share the work (``pytest -n 2``).

Whatever starts whole clusters, containers or a browser runs one after another in one process, and
first, because it takes longest; meanwhile the others go through the rest, file by file.
"""

from __future__ import annotations

import re
from collections.abc import Generator

import pytest

HEAVY = "heavy"
HEAVY_MARKS = ("docker", "browser")
_AT_GROUP = re.compile(r"@(heavy|tests\.[\w.]+\.py)$")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> Generator[None, None, None]:
    """Name each test's group, and put the heavy ones first. Nothing changes without ``-n``."""
    if not config.pluginmanager.hasplugin("xdist") or config.getoption("dist", "no") == "no":
        yield
        return
    for item in items:
        item.add_marker(pytest.mark.xdist_group(_group(item)))
    yield
    # Only now: pytest-django has put those with a database before all others.
    items.sort(key=lambda item: not _is_heavy(item))


def _is_heavy(item: pytest.Item) -> bool:
    return item.nodeid.startswith("tests/e2e/") or any(
        item.get_closest_marker(name) is not None for name in HEAVY_MARKS
    )


def _group(item: pytest.Item) -> str:
    return HEAVY if _is_heavy(item) else item.nodeid.partition("::")[0].replace("/", ".")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Without the group in its name a test that failed is found again by ``--last-failed``."""
    report.nodeid = _AT_GROUP.sub("", report.nodeid)
