"""A router with a backlog that it cannot finish: memory stays flat, and every item is counted."""

from __future__ import annotations

import psutil
import pytest

from tests.plugins.measurements import Measured
from tests.routing.faults.harness import FULL, RouterHarness

pytestmark = [pytest.mark.fault, pytest.mark.services, pytest.mark.timeout(1200)]

BACKLOG = 1_000_000 if FULL else 10_000
STEP = 10_000
# Items that it routes before it is stopped.
FIRST, SECOND = (5_000, 30_000) if FULL else (1_000, 4_000)
# Tolerance for memory kept by allocators: 1 % of the size of the backlog in memory.
MOST_GROWTH_MB = 60.0


def test_the_memory_of_a_router_does_not_grow_with_its_backlog(
    harness: RouterHarness, measured: Measured
) -> None:
    traffic = harness.project()
    for start in range(0, BACKLOG, STEP):
        traffic.publish(range(start, start + STEP))
    assert harness.broker.depth(traffic.queue).ready == BACKLOG
    name = traffic.start()
    process = psutil.Process(harness.daemons.processes[name].pid)
    sizes = []
    for wanted in (FIRST, SECOND):
        harness.until(lambda wanted=wanted: traffic.count() > wanted, f"{wanted} items are routed")  # type: ignore[misc]  # bound now
        sizes.append(process.memory_info().rss / 2**20)
    grown = sizes[1] - sizes[0]
    traffic.stop(name)
    # Each item is either in the counters or still in the queue.
    books = traffic.books()
    left = harness.broker.depth(traffic.queue).ready
    found = [message["n"] for message in traffic.messages()]
    measured(
        of=BACKLOG,
        lost=BACKLOG - books["received"] - left,
        twice=len(found) - len(set(found)),
        note=f"{sizes[0]:.0f} MB, {grown:+.1f} MB after {SECOND - FIRST:,} more",
    )
    assert grown < MOST_GROWTH_MB
    assert books["holds"], books
    assert books["received"] + left == BACKLOG
    harness.broker.delete(traffic.queue)
