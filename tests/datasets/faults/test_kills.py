"""SIGKILL, or an exception, in every window between taking items and acknowledging them."""

from __future__ import annotations

import pytest

from tests.datasets.faults.writer_processes import COMPACTION, FULL, POINTS, WriterProcesses
from tests.plugins.measurements import Measured

pytestmark = [pytest.mark.fault, pytest.mark.timeout(900)]


@pytest.mark.covers("DS.1", "DS.2", "DS.12")
def test_nothing_is_lost_or_stored_twice_wherever_a_writer_dies(
    writers: WriterProcesses, measured: Measured
) -> None:
    for hit in (1, 2, 4) if FULL else (1,):
        for point in POINTS:
            writers.until_killed(f"{point}=kill@{hit}")
    assert writers.left() > 0, "nothing was left to be stored"
    writers.start("last")
    writers.until_settled()
    measured(**writers.check_accounts())


@pytest.mark.covers("DS.1", "DS.4")
def test_nothing_is_lost_or_stored_twice_wherever_a_compaction_dies(
    writers: WriterProcesses, measured: Measured
) -> None:
    for point in COMPACTION:
        writers.until_killed(f"{point}=kill@1")
    writers.start("last")
    writers.until_settled()
    measured(**writers.check_accounts())


@pytest.mark.long("killed there")
@pytest.mark.covers("DS.1")
def test_an_exception_in_every_window_ends_no_writer(
    writers: WriterProcesses, measured: Measured
) -> None:
    """One after the other, in one process that lives on."""
    writers.start("tried", *(f"{point}=raise@2" for point in POINTS))
    writers.until_settled()
    measured(**writers.check_accounts())


@pytest.mark.covers("DS.1")
@pytest.mark.parametrize(
    "point",
    [
        POINTS[0],
        *(pytest.param(each, marks=pytest.mark.long("before it writes")) for each in POINTS[1:]),
    ],
)
def test_one_of_two_is_frozen_and_wakes(
    writers: WriterProcesses, point: str, measured: Measured
) -> None:
    """It wakes with items in hand that the other one may have stored meanwhile."""
    # Long enough for the other one to start and to come to what the frozen one has locked.
    writers.start("frozen", f"{point}=stop:12@1")
    writers.daemons.until_logged("frozen", "is running")
    writers.start("other")
    writers.daemons.until_frozen("frozen")
    writers.until_settled()
    measured(**writers.check_accounts())
    for name in ("frozen", "other"):
        assert "Traceback" not in writers.daemons.log(name)
