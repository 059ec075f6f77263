"""SIGKILL, or an exception, in every window between taking lines and acknowledging them."""

from __future__ import annotations

import pytest

from tests.joblogs.faults.ingester_processes import ELASTIC, FULL, POINTS, IngesterHarness
from tests.plugins.measurements import Measured

pytestmark = [pytest.mark.fault, pytest.mark.timeout(600)]


@pytest.mark.covers("S1.18")
def test_nothing_is_lost_or_there_twice_wherever_an_ingester_dies(
    harness: IngesterHarness, request: pytest.FixtureRequest, measured: Measured
) -> None:
    points, hits = POINTS, (1, 2, 5)
    if "elastic" in request.node.name:
        # With more points and fewer lines, those would not last until the fifth batch of each.
        points, hits = POINTS + ELASTIC, (1, 2)
    for hit in hits if FULL else (1,):
        for point in points:
            harness.until_killed(f"{point}=kill@{hit}")
    before = harness.stored()
    harness.start("last")
    back = harness.until_stored(before)
    harness.until_settled()
    measured(**harness.check_books(), back_s=back)


@pytest.mark.long("killed there")
@pytest.mark.covers("S1.18")
def test_an_exception_in_every_window_ends_no_ingester(
    harness: IngesterHarness, request: pytest.FixtureRequest, measured: Measured
) -> None:
    """One after the other, in one process that lives on."""
    points = POINTS + (ELASTIC if "elastic" in request.node.name else [])
    harness.start("tried", *(f"{point}=raise@2" for point in points))
    harness.until_settled()
    measured(**harness.check_books())
    log = harness.daemons.log("tried")
    for point in points:
        assert f" of 10): FailpointError: {point}\n" in log
