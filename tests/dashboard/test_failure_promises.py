"""What the failure page counts as hanging on a process, against the rows that really do.

And what it promises of them: after the process is back, nothing is missing and nothing is double.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from apps.dashboard.failures.impact import count
from apps.dashboard.failures.parts import process_parts
from apps.joblogs.services import store_lines
from apps.jobs.models import Schedule
from apps.jobs.states import RunState
from apps.queuestats.models import RunCounter
from apps.requeststore.engine.flags import NEW, TAKEN
from apps.requeststore.models import ShardReport
from apps.seeds.models import SegmentReport
from apps.sources.models import SourceState
from tests.access.factories import make_superuser
from tests.agents.factories import make_agent
from tests.alerts.factories import make_channel, make_incident, make_notice
from tests.joblogs.factories import batch, seqs
from tests.jobs.factories import make_host, make_job, make_project, make_run
from tests.projects.build_factories import make_build
from tests.queuestats.factories import report
from tests.seeds.factories import make_frontier

pytestmark = pytest.mark.django_db


def _agents() -> None:
    report(make_run(state=RunState.RUNNING), total=100, success=60, failed=10, out=20)
    make_agent(silent_seconds=600)


def _runners() -> None:
    make_run()
    make_run(state=RunState.RUNNING)
    make_host("host-1", beat_at=timezone.now() - timedelta(hours=1))


def _seeds() -> None:
    frontier = make_frontier()
    for segment, (pending, leased) in enumerate([(5, 1), (7, 2)]):
        SegmentReport.objects.create(
            frontier=frontier,
            segment=segment,
            pending=pending,
            leased=leased,
            reported_at=timezone.now(),
        )


def _fetchers() -> None:
    project = make_project()
    for collection, by_flag in (("a", {str(NEW): 4, str(TAKEN): 1}), ("b", {str(NEW): 6})):
        ShardReport.objects.create(
            project=project, biz="news", collection=collection, by_flag=by_flag
        )


def _collectors() -> None:
    project = make_project()
    SourceState.objects.create(project=project, name="idle")
    SourceState.objects.create(project=project, name="busy", activity="running")
    SourceState.objects.create(project=project, name="stopped", stopped_at=timezone.now())


def _workers() -> None:
    make_build()
    make_notice(channel=make_channel())
    now = timezone.now()
    Schedule.objects.create(
        job=make_job(), cron="0 * * * *", time_zone="UTC", planned_through=now, next_at=now
    )


def _monitor() -> None:
    make_notice(channel=make_channel(), incident=make_incident())
    make_incident(state="recovered", ended_at=timezone.now())


@pytest.mark.parametrize(
    ("key", "fill", "expected"),
    [
        ("agents", _agents, {"runs": 1, "out": 20, "left": 30}),
        ("runner", _runners, {"queued_runs": 1, "runs_on_hosts": 1, "runs_on_silent": 1}),
        ("seeds", _seeds, {"seeds_pending": 12, "seeds_leased": 3, "waiting": 0}),
        ("fetcher", _fetchers, {"stored_new": 10, "stored_taken": 1}),
        ("collector", _collectors, {"sources": 2, "harvesting": 1}),
        ("worker", _workers, {"builds": 1, "notices": 1, "schedules": 1}),
        ("beat", _workers, {"schedules": 1}),
        ("monitor", _monitor, {"incidents": 1, "notices": 1}),
    ],
)
def test_it_counts_what_hangs_on_a_process(
    key: str, fill: Callable[[], None], expected: dict[str, Any]
) -> None:
    fill()
    now = timezone.now()
    parts = process_parts(count(make_superuser(), now, now), {})
    part = next(each for each in parts if each.key == key)
    assert {fact.key: fact.number for fact in part.facts} == expected
    # None of its processes is there, and somebody needs it.
    assert part.state.is_bad


def test_a_report_that_never_came_is_in_the_next_one() -> None:
    run = make_run(state=RunState.RUNNING)
    report(run, seq=1, total=10, success=1)
    # The second one was lost with the queue; the first is brought again, late.
    report(run, seq=3, total=30, success=20)
    report(run, seq=1, total=10, success=1)
    counter = RunCounter.objects.get(owner=f"run:{run.pk}")
    assert (counter.total, counter.success) == (30, 20)


def test_lines_that_are_brought_twice_come_once() -> None:
    run = make_run(state=RunState.RUNNING)
    waited = [batch(run.stream, range(1, 6)), batch(run.stream, range(4, 9))]
    for _time in range(2):
        assert store_lines(batches=waited, now=timezone.now()) == []
    assert seqs(run.stream) == list(range(1, 9))
