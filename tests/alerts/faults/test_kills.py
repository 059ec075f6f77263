"""A monitor killed at any point loses and duplicates no incident; a standby takes over."""

from __future__ import annotations

import math
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.alerts.faults.monitor_processes import (
    AS_DAEMON,
    BOTH,
    NEXT_LOOK,
    RULES,
    TOLD,
    TROUBLE,
    YIELDS,
    Console,
    check_books,
    done,
    place_on,
    seconds_unwatched,
    wake,
)
from tests.e2e.daemon_processes import is_frozen
from tests.plugins.long_tests import FULL_FAULTS
from tests.plugins.measurements import Measured
from tests.runtime.processes import PATIENCE_SECONDS, Place, wait_for

pytestmark = [pytest.mark.fault, pytest.mark.timeout(600)]

# Failpoints of follow-ups need earlier incidents.
POINTS = (
    "alerts.before_sampling",
    "alerts.before_evaluating",
    "alerts.events_before_commit",
    "alerts.events_after_commit",
    "alerts.opened",
    "alerts.after_open",
    "alerts.after_recover",
    "alerts.after_follow_up",
)
OF_YIELDS = ("alerts.before_yield_commit", "alerts.yield_written")
# Other processes wait for its locks here, so it resumes by itself after its lease.
LOCKED = {"alerts.events_before_commit", "alerts.opened", "alerts.before_yield_commit"}


@pytest.fixture(params=BOTH)
def place(tmp_path: Path, request: pytest.FixtureRequest) -> Place:
    return place_on(request.param, tmp_path, request)


@pytest.fixture
def console(place: Place) -> Iterator[Console]:
    with closing(Console(place)) as made:
        made.do(RULES)
        yield made


def end(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        process.kill()
        process.communicate()


def look(place: Place, failpoints: str = "") -> int:
    """Run one pass of a new monitor process."""
    ended = place.command("run_monitor", "--once", FAILPOINTS=failpoints, **AS_DAEMON)
    assert ended.returncode in (0, -signal.SIGKILL), ended.stdout + ended.stderr
    return ended.returncode


def test_kills_at_every_point_lose_and_double_nothing(
    place: Place, console: Console, measured: Measured
) -> None:
    look(place)
    points = (*POINTS, *OF_YIELDS) if FULL_FAULTS else POINTS
    for number, point in enumerate(points):
        console.do(TROUBLE.format(number=number))
        assert look(place, f"{point}=kill@1") == -signal.SIGKILL, point
        console.do(NEXT_LOOK)
    check_books(console, len(points), measured)


@pytest.mark.long("SIGKILL there, and a leader that is frozen between two looks")
@pytest.mark.covers("S4.27")
def test_frozen_at_every_point_beside_another_it_loses_and_doubles_nothing(
    place: Place, console: Console, measured: Measured
) -> None:
    look(place)
    points = (*POINTS, *OF_YIELDS)
    for number, point in enumerate(points):
        console.do(TROUBLE.format(number=number))
        seconds = 12 if point in LOCKED else 60
        failpoint = f"{point}=stop:{seconds}@1"
        frozen = place.start("run_monitor", "--once", FAILPOINTS=failpoint, **AS_DAEMON)
        try:
            wait_for(lambda process=frozen: is_frozen(process), f"it stands still: {point}")  # type: ignore[misc]  # bound now
            console.do(NEXT_LOOK)
            wake(frozen)
            said = frozen.communicate(timeout=PATIENCE_SECONDS)[0]
        finally:
            end(frozen)
        assert frozen.returncode == 0, said
    check_books(console, len(points), measured)


@pytest.mark.long("SIGKILL there")
@pytest.mark.covers("S4.27")
def test_an_exception_at_every_point_ends_no_monitor(
    place: Place, console: Console, measured: Measured
) -> None:
    """Raise at each failpoint in turn, within one process."""
    look(place)
    points = (*POINTS, *OF_YIELDS)
    # A task that fails twice in a row is logged once.
    hits = {"alerts.yield_written": 2}
    failpoints = ",".join(f"{point}=raise@{hits.get(point, 1)}" for point in points)
    monitor = place.start("run_monitor", FAILPOINTS=failpoints, **AS_DAEMON)
    try:
        for number in range(len(points)):
            console.do(TROUBLE.format(number=number))
            wait_for(lambda number=number: followed(console, number), f"it has seen {number}")  # type: ignore[misc]  # bound now
        wait_for(lambda: all_written(console), "it has written every yield")
        monitor.terminate()
        said = monitor.communicate(timeout=PATIENCE_SECONDS)[0]
    finally:
        end(monitor)
    assert monitor.returncode == 0, said
    for point in points:
        assert f"FailpointError: {point}" in said, point
    check_books(console, len(points), measured)


def all_written(console: Console) -> bool:
    """Return whether every finished run has a recorded yield."""
    ended, written = console.said(YIELDS)
    return set(ended) <= set(written)


def followed(console: Console, number: int) -> bool:
    """Return whether all notifications of round ``number`` exist."""
    rows = console.said(TOLD)
    kinds = {row[1]: row[4] for row in rows}
    return (
        "opened" in kinds.get(f"q{number}", ())
        and "opened" in kinds.get(f"job:{number + 1}", ())
        and (number < 1 or "repeated" in kinds[f"q{number - 1}"])
        and (number < 2 or "recovered" in kinds[f"q{number - 2}"])
    )


def test_another_takes_over_within_15_seconds(place: Place, measured: Measured) -> None:
    leads = (
        "from apps.runtime.models import Daemon\n"
        "print([d.name for d in Daemon.objects.filter(kind='monitor') if d.detail.get('leads')])"
    )
    seen = (
        "from apps.queuestats.models import Sample\n"
        "print(Sample.objects.filter(step=1, series__name='monitor.sampled').count())"
    )
    first = place.start("run_monitor", "--name", "first", **AS_DAEMON)
    second = None
    try:
        wait_for(lambda: "first" in done(place.python(leads)), "the first leads")
        second = place.start("run_monitor", "--name", "second", **AS_DAEMON)
        wait_for(lambda: int(done(place.python(seen))) > 1, "it samples")
        time.sleep(3)
        first.kill()
        killed_at = time.time()
        wait_for(lambda: seconds_unwatched(place, killed_at) < math.inf, "the second samples")
        unwatched = seconds_unwatched(place, killed_at)
        measured(back_s=unwatched)
        assert unwatched < 15 + PATIENCE_SECONDS / 6
    finally:
        for process in (first, second):
            if process is not None:
                process.kill()
                process.communicate()
