"""How much of the long tests runs: a part by ``make test-all``, all of it by ``make test-full``.

Three sizes are asked for by the environment, each with ``full``:

``CRAWLYARD_FAULTS``
    Outages as long and kills as many as promised (``make test-faults``). Also both halves of a
    ``twin``: the embedded half of a long test is skipped where ``CRAWLYARD_REQUIRE`` makes sure of
    the real servers that the other half runs on.
``CRAWLYARD_FUZZ``
    Every made-up value at every place and long properties on all examples (``make test-fuzz``); a
    tenth of them else.
``CRAWLYARD_LONG``
    Tests with the mark ``long``, which names what proves the same in short (``make test-long``).
    Those with the mark ``fault`` as well are also part of ``make test-faults``.

``CRAWLYARD_TEST_DEADLINE`` is a time in seconds since 1970 after which no slow test begins, and
``CRAWLYARD_TEST_END`` one after which none does: a build that says what it has not tried is worth
more than one that was cut off and says nothing. The quick ones, which are most, come last.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import TypeVar

import pytest

T = TypeVar("T")

DEADLINE, END = "CRAWLYARD_TEST_DEADLINE", "CRAWLYARD_TEST_END"
FULL_FAULTS = os.environ.get("CRAWLYARD_FAULTS") == "full"
FULL_FUZZ = os.environ.get("CRAWLYARD_FUZZ") == "full"
FULL_LONG = os.environ.get("CRAWLYARD_LONG") == "full"
SLOW_MARKS = ("docker", "browser", "fault", "services", "bench", "kafka")
# One of so many is tried unless all are asked for.
PART = 10


def part(values: Sequence[T], turn: int) -> Sequence[T]:
    """A tenth of the values, another with each ``turn``; at least one. All in a full run."""
    return values if FULL_FUZZ else values[turn % min(PART, len(values)) :: PART]


def examples(count: int) -> int:
    """How many examples a long property is tried on, ``count`` of them in a full run."""
    return count if FULL_FUZZ else count // PART


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what others prove in short."""
    for item in items:
        reason = _too_long(item)
        if reason:
            item.add_marker(pytest.mark.skip(reason=reason))


def _too_long(item: pytest.Item) -> str:
    """Why it is left out, or ""."""
    has_servers = "services" in os.environ.get("CRAWLYARD_REQUIRE", "")
    if has_servers and not FULL_FAULTS and item.get_closest_marker("twin") is not None:
        return "the same runs on real servers; CRAWLYARD_FAULTS=full has both"
    mark = item.get_closest_marker("long")
    if mark is None:
        return ""
    if len(mark.args) != 1:
        raise pytest.UsageError(f"{item.nodeid}: long() names what proves the same in short")
    is_fault = item.get_closest_marker("fault") is not None
    if FULL_LONG or (is_fault and FULL_FAULTS):
        return ""
    return f"make {'test-faults' if is_fault else 'test-long'}; in short: {mark.args[0]}"


def is_slow(item: pytest.Item) -> bool:
    """Whether it needs servers, an engine, a browser or several processes."""
    return item.nodeid.startswith("tests/e2e/") or any(map(item.get_closest_marker, SLOW_MARKS))


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Begin nothing that takes long after the deadline, and nothing at all after the end."""
    for name, concerned in ((DEADLINE, is_slow(item)), (END, True)):
        if concerned and time.time() > float(os.environ.get(name) or "inf"):
            pytest.skip(f"the time for tests was over ({name})")
