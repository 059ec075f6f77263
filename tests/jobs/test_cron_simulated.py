"""Two days around a change of clocks, with real beats and a real worker that are killed midway.

Each planned time must be there exactly once, as started or with the reason why not, and the list
of those times comes from walking over the minutes, not from the code under test.
"""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.e2e.daemon_processes import Daemons
from tests.jobs.test_cron import brute_force
from tests.plugins.measurements import Measured

HOURS = 48
STEP = timedelta(minutes=30)
PATIENCE_SECONDS = 120.0
HERE = Path(__file__).parent

CRONS = ("30 2 * * *", "*/30 * * * *", "15 1,2,3 * * *", "0 */3 * * *")
ZONES = ("Europe/Berlin", "America/New_York", "Asia/Shanghai")
POLICIES = ("skip", "once", "all")

PREPARE = """
import sys
sys.path[:0] = [{root!r}, {root!r} + "/platform"]
import django
django.setup()
from datetime import datetime
from django_celery_beat.models import IntervalSchedule, PeriodicTask
from apps.jobs.models import Job
from apps.jobs.services import sync_schedule
from apps.projects.models import Project
project = Project.objects.create(name="P", slug="p")
start = datetime.fromisoformat({start!r})
number = 0
for zone in {zones!r}:
    for cron in {crons!r}:
        policy = {policies!r}[number % 3]
        job = Job.objects.create(
            project=project, name=f"{{cron}} {{zone}}", spider="a:B", cron=cron, time_zone=zone,
            overlap="allow", misfire=policy,
        )
        sync_schedule(job=job, now=start)
        number += 1
every = IntervalSchedule.objects.create(every=50_000, period="microseconds")
PeriodicTask.objects.create(
    name="sweep", task="jobs.sweep_schedules", interval=every, queue="celery.tasks"
)
"""


class World:
    """Processes that share a database, a broker and a clock."""

    def __init__(self, folder: Path, database: str, broker: str, start: datetime) -> None:
        self.clock = folder / "clock"
        self.turn(start)
        self.daemons = Daemons(
            folder,
            DATABASE_URL=database,
            BROKER_URL=broker,
            SIMULATED_CLOCK=str(self.clock),
            PYTHONPATH=os.pathsep.join([str(HERE.parents[1]), str(HERE.parents[1] / "platform")]),
        )
        self.connection = psycopg.connect(database, autocommit=True)

    def turn(self, now: datetime) -> None:
        """What time it is from now on; a reader sees the old time or the new one."""
        beside = self.clock.with_suffix(".new")
        beside.write_text(now.isoformat(), encoding="ascii")
        beside.replace(self.clock)

    def start(self, name: str, *arguments: str) -> None:
        self.daemons.start_python(
            name, str(HERE / "simulated_clock.py"), *arguments, "--name", name
        )

    def rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        return list(self.connection.execute(query, values))  # type: ignore[call-overload]

    def until(self, condition: Callable[[], object], what: str) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not condition():
            if time.monotonic() > deadline:
                logs = {name: self.daemons.log(name)[-1500:] for name in self.daemons.processes}
                pytest.fail(f"never happened: {what}; {logs}")
            time.sleep(0.05)

    def planned(self, now: datetime) -> bool:
        (due,) = self.rows("SELECT count(*) FROM jobs_schedule WHERE next_at <= %s", now)[0]
        return due == 0

    def leader(self) -> str:
        """The name of the beat that holds the lease."""
        rows = self.rows(
            "SELECT owner FROM runtime_workerlease WHERE purpose = 'beat' AND expires_at > now()"
        )
        pids = {str(process.pid): name for name, process in self.daemons.processes.items()}
        return pids.get(rows[0][0].split(":")[1], "") if rows else ""

    def end(self) -> None:
        self.connection.close()
        self.daemons.end()


@pytest.mark.services
@pytest.mark.fault
@pytest.mark.timeout(600)
@pytest.mark.covers("S1.3", "S1.12")
@pytest.mark.parametrize(
    "start",
    [
        # Berlin loses an hour on the 29th of March, New York gains one on the 1st of November.
        datetime(2026, 3, 28, 12, 0, tzinfo=UTC),
        pytest.param(
            datetime(2026, 10, 31, 12, 0, tzinfo=UTC),
            marks=pytest.mark.long("spring; each change alone, tests/jobs/test_cron.py"),
        ),
    ],
    ids=["spring", "autumn"],
)
def test_two_days_with_a_change_of_clocks(
    tmp_path: Path,
    postgres_database: str,
    new_rabbit_vhost: str,
    start: datetime,
    measured: Measured,
) -> None:
    world = World(tmp_path, postgres_database, new_rabbit_vhost, start)
    try:
        world.daemons.migrate()
        script = PREPARE.format(
            root=str(HERE.parents[1]),
            start=start.isoformat(),
            zones=ZONES,
            crons=CRONS,
            policies=POLICIES,
        )
        prepare = world.daemons.start_python(
            "prepare", "-c", script, DJANGO_SETTINGS_MODULE="crawlyard.settings.worker"
        )
        assert prepare.wait(PATIENCE_SECONDS) == 0, world.daemons.log("prepare")
        del world.daemons.processes["prepare"]
        world.start("worker", "run_worker")
        world.start("beat-1", "run_beat")
        world.start("beat-2", "run_beat")
        world.until(world.leader, "a beat leads")
        end = live_through(world, start)
        compare(world, start, end, measured)
    finally:
        world.end()


def live_through(world: World, start: datetime) -> datetime:
    """Let the time pass, with a death of each kind; the time at the end."""
    now = start
    for step in range(HOURS * 2):
        now += STEP
        world.turn(now)
        if step == HOURS // 2:
            # Two simulated hours go by while nobody leads.
            world.daemons.stop(world.leader(), signal.SIGKILL)
        if step == HOURS:
            world.daemons.stop("worker", signal.SIGKILL)
        if step == HOURS + 5:
            world.start("worker-2", "run_worker")
        alone = HOURS // 2 <= step < HOURS // 2 + 4 or HOURS <= step < HOURS + 5
        if not alone:
            world.until(lambda now=now: world.planned(now), f"all planned at {now}")  # type: ignore[misc]
    survivors = set(world.daemons.processes)
    assert survivors == {"worker-2", world.leader()}
    return now


def compare(world: World, start: datetime, end: datetime, measured: Measured) -> None:
    """The account against the list, job by job."""
    found = world.rows(
        "SELECT j.cron, j.time_zone, p.planned_at, p.outcome, p.run_id, p.reason"
        " FROM jobs_plannedrun p JOIN jobs_schedule s ON s.id = p.schedule_id"
        " JOIN jobs_job j ON j.id = s.job_id"
    )
    for zone in ZONES:
        for cron in CRONS:
            times = [row[2].astimezone(UTC) for row in found if row[:2] == (cron, zone)]
            expected = brute_force(cron, zone, start, end)
            measured(
                of=len(expected),
                lost=len(set(expected) - set(times)),
                twice=len(times) - len(set(times)),
            )
            assert sorted(times) == expected, (cron, zone)
    outcomes = Counter(row[3] for row in found)
    # The clock stops at each half hour; what lies between, or came while nobody led, is late.
    assert min(outcomes[each] for each in ("started", "missed", "caught_up")) > 0, outcomes
    for _cron, _zone, _at, outcome, run, reason in found:
        assert (run is None) == (outcome in ("missed", "skipped"))
        assert run is not None or reason
    runs = [row[4] for row in found if row[4] is not None]
    (count,) = world.rows("SELECT count(*) FROM jobs_run")[0]
    assert len(set(runs)) == len(runs) == count
