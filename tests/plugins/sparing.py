"""What a continuous build leaves out, each test skipped with its reason.

The mark ``twin`` is for the embedded half of a long test whose other half runs on real servers:
where ``CRAWLYARD_REQUIRE`` makes sure of those, one half is enough. ``CRAWLYARD_FAULTS=full`` runs
both.

``CRAWLYARD_TEST_DEADLINE`` is a time in seconds since 1970 after which no test begins: a build that
says what it has not tried is worth more than one that was cut off and says nothing.
"""

from __future__ import annotations

import os
import time

import pytest

DEADLINE = "CRAWLYARD_TEST_DEADLINE"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip twins where their other half is sure to run."""
    has_servers = "services" in os.environ.get("CRAWLYARD_REQUIRE", "")
    if not has_servers or os.environ.get("CRAWLYARD_FAULTS") == "full":
        return
    skip = pytest.mark.skip(reason="the same runs on real servers; CRAWLYARD_FAULTS=full has both")
    for item in items:
        if item.get_closest_marker("twin") is not None:
            item.add_marker(skip)


def pytest_runtest_setup() -> None:
    """Begin nothing after the deadline."""
    deadline = os.environ.get(DEADLINE)
    if deadline and time.time() > float(deadline):
        pytest.skip(f"the time for tests was over ({DEADLINE})")
