"""Rows that fill the main pages, as a busy day leaves them.

``manage.py shell -v0 -c "from tests.e2e.sample_rows import fill; fill()"`` in an installation of a
test; nothing here is for a real one.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from django.utils import timezone

from apps.access.models import User
from apps.access.services import record
from apps.alerts.models import Incident
from apps.jobs.models import PlannedRun, Run, Schedule
from apps.jobs.states import RunState
from apps.queuestats.services import sample_gauges
from apps.runtime.models import DeadLetter
from apps.runtime.services import register_daemon
from apps.seeds.models import Frontier
from tests.agents.factories import make_agent, make_allocation
from tests.e2e.sample_area_rows import fill_areas
from tests.jobs.factories import make_host, make_job, make_project, make_run
from tests.queuestats.factories import center_report, report

# As long as Chinese texts get, with nothing to break at.
LONG = "新闻列表每半小时抓取一次七天之内的数据保留更早的数据不要重复抓取" * 3


def fill() -> None:
    """A project with runs in every mood, agents, a silent daemon, incidents, a history."""
    now = timezone.now()
    root = User.objects.get(username="admin")
    project = make_project(name="News", description=LONG)
    job = make_job(project=project, name="Morning papers", speed=20)
    running = make_run(job=job, state=RunState.RUNNING, created_at=now, started_at=now)
    report(
        running,
        total=12_345,
        success=9_000,
        failed=45,
        queued=3_260,
        in_flight=40,
        sent=9_085,
        returned=9_045,
        out=40,
        pages=9_000,
        items=8_200,
        bytes_received=734_003_200,
        failures=3,
        agents={"north": 6000, "south": 3000},
    )
    center_report(running, received=9_085, dispatched=9_085)
    north = make_agent(agent_id="north", name="north", heartbeat_at=now + timedelta(hours=1))
    south = make_agent(agent_id="south", name="south", silent_seconds=600, problems=[LONG])
    make_allocation(running, north, south)
    make_host("box-1", beat_at=now + timedelta(hours=1), registered_at=now)
    make_host("box-2-with-a-very-long-name-that-has-nowhere-to-break", beat_at=now, problem=LONG)
    Frontier.objects.create(project=project, name="news")
    _ended(job.project, now)
    _troubles(project, running, now)
    sample_gauges(now=now)
    # Last: what the queues are said to hold is not what the sampling found.
    fill_areas(project, running, root, now)
    record(
        actor=root,
        action="jobs.change_job",
        obj=job,
        before={"speed": 10.0, "notes": "\n".join(f"line {each}" for each in range(30))},
        after={"speed": 20.0, "notes": "\n".join(f"line {each}" for each in range(5, 32))},
        note=LONG,
    )


def _ended(project: object, now: datetime) -> None:
    for number, state in enumerate((RunState.EXITED, RunState.FAILED, RunState.LOST)):
        ended = now - timedelta(hours=number + 1)
        name = LONG[:90] if state == RunState.LOST else f"Papers {number}"
        Run.objects.create(
            job=make_job(project=project, name=name),
            state=state,
            created_at=ended,
            started_at=ended - timedelta(minutes=10),
            ended_at=ended,
            reason=f"ValueError: {LONG} <b>and more</b>" if state != RunState.EXITED else "",
        )


def _troubles(project: object, running: Run, now: datetime) -> None:
    past = now - timedelta(minutes=5)
    register_daemon(
        kind="center", name="box-1", boot="1", host="box-1", pid=1, state="running", now=past
    )
    DeadLetter.objects.create(message_id="m", queue="logs", body=b"x", body_size=1, died_at=past)
    schedule = Schedule.objects.create(
        job=running.job, cron="0 * * * *", time_zone="UTC", planned_through=now
    )
    PlannedRun.objects.create(
        schedule=schedule, planned_at=past, outcome="missed", decided_at=past, reason=LONG
    )
    for rule, severity, key in (
        ("log queue too long", "critical", "crawlyard.logs"),
        ("a run failed", "warning", "job:2"),
        (LONG[:64], "info", LONG),
    ):
        Incident.objects.create(
            project=project,
            rule=rule,
            key=key,
            source="queue.ready",
            severity=severity,
            facts={"run": running.pk},
            opened_at=past,
            seen_at=now,
        )
