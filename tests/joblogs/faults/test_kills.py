"""SIGKILL in every window between taking lines and acknowledging them."""

from __future__ import annotations

import pytest

from tests.joblogs.faults.yard import FULL, Yard

pytestmark = [pytest.mark.fault, pytest.mark.timeout(600)]
# In the order in which a batch passes them.
POINTS = [
    "joblogs.before_write",
    "joblogs.after_write",
    "joblogs.before_commit",
    "joblogs.before_ack",
]
ELASTIC = ["joblogs.elastic.reserved", "joblogs.elastic.created"]


@pytest.mark.covers("S1.18")
def test_nothing_is_lost_or_there_twice_wherever_an_ingester_dies(
    yard: Yard, request: pytest.FixtureRequest
) -> None:
    points = POINTS + (ELASTIC if "elastic" in request.node.name else [])
    for hit in (1, 2, 5) if FULL else (1,):
        for point in points:
            yard.until_killed(f"{point}=kill@{hit}")
    yard.start("last")
    yard.until_settled()
    yard.check_books()
