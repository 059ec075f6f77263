"""Calendar, timeline, and picture of jobs that follow jobs."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone

from apps.access.states import Role
from apps.dashboard.queries.plans import MAX_LANES, MAX_LINKS, calendar_of, job_graph, timeline_of
from apps.jobs.models import Job, JobLink
from apps.jobs.services.schedules import sync_schedule
from apps.jobs.states import RunState
from apps.queuestats.models import JobDay
from tests.access.factories import enter, make_superuser, make_user
from tests.jobs.factories import make_job, make_run

pytestmark = pytest.mark.django_db
NOW = datetime(2026, 11, 12, 9, 30, tzinfo=UTC)


def planned(cron: str, **fields: Any) -> Job:
    job = make_job(cron=cron, **fields)
    sync_schedule(job=job, now=NOW)
    return job


def entries(day: date, month: Any) -> list[tuple[str, int, str]]:
    (found,) = (each for week in month.weeks for each in week if each.day == day)
    return [(entry.name, entry.count, entry.tone) for entry in found.entries]


@pytest.mark.covers("UX.5")
def test_the_calendar_shows_ended_runs_by_outcome_and_planned_ones() -> None:
    daily = planned("0 6 * * *", name="daily", time_zone="Asia/Shanghai")
    planned("*/10 * * * *", name="often")
    planned("0 6 * * *", name="asleep", enabled=False)
    JobDay.objects.create(job=daily, day=date(2026, 11, 3), runs_succeeded=2, runs_failed=1)
    JobDay.objects.create(job=daily, day=date(2026, 11, 4), runs_with_errors=1)
    JobDay.objects.create(job=daily, day=date(2026, 11, 5), runs_cancelled=1)
    month = calendar_of(make_superuser(), date(2026, 11, 1), NOW)
    assert entries(date(2026, 11, 3), month) == [("daily", 3, "failed")]
    assert entries(date(2026, 11, 4), month) == [("daily", 1, "warning")]
    assert entries(date(2026, 11, 5), month) == []
    # Six o'clock in Shanghai is 22:00 of the day before in UTC.
    assert entries(date(2026, 11, 12), month) == [
        ("often", 144, "planned"),
        ("daily", 1, "planned"),
    ]
    assert entries(date(2026, 11, 11), month) == []
    assert (month.before, month.after) == (date(2026, 10, 1), date(2026, 12, 1))
    stranger = make_user(roles={make_job().project: Role.VIEWER})
    assert entries(date(2026, 11, 3), calendar_of(stranger, date(2026, 11, 1), NOW)) == []


@pytest.mark.covers("UX.5")
def test_a_day_lists_few_jobs_and_counts_the_others() -> None:
    for number in range(9):
        JobDay.objects.create(
            job=make_job(name=f"job {number}"), day=date(2026, 11, 3), runs_succeeded=1
        )
    month = calendar_of(make_superuser(), date(2026, 11, 1), NOW)
    assert len(entries(date(2026, 11, 3), month)) == 6
    assert month.weeks[1][1].more == 3


@pytest.mark.covers("UX.5")
def test_the_timeline_puts_overlapping_runs_into_lanes(django_assert_max_num_queries: Any) -> None:
    job = planned("0 * * * *", name="hourly")
    for number in range(MAX_LANES + 2):
        started = NOW - timedelta(hours=2, minutes=-number)
        ended = started + timedelta(hours=1)
        fields = {"created_at": started, "started_at": started, "ended_at": ended, "host": "box-1"}
        make_run(job=job, state=RunState.EXITED, **fields)
    old = NOW - timedelta(hours=40)
    make_run(job=job, state=RunState.EXITED, created_at=old, started_at=old, ended_at=old)
    user = make_superuser()
    with django_assert_max_num_queries(3):
        timeline = timeline_of(user, hours=24, by_host=False, now=NOW)
    (row,) = timeline.rows
    assert (row.name, row.lanes, len(row.bars), row.hidden) == ("hourly", MAX_LANES, MAX_LANES, 2)
    assert len(row.planned) == 6
    assert 70 < float(row.bars[0].x) < float(timeline.now_x) == 80
    (row,) = timeline_of(user, hours=24, by_host=True, now=NOW).rows
    assert (row.name, row.planned) == ("box-1", [])


@pytest.mark.covers("UX.5")
def test_the_picture_puts_a_job_right_of_all_that_it_follows() -> None:
    first, second, third = (make_job(name=name) for name in ("a", "b", "c<b>"))
    for job, after in ((second, first), (third, second), (third, first)):
        JobLink.objects.create(job=job, after=after)
    graph = job_graph(make_superuser())
    places = {node.job.name: node.x for node in graph.nodes}
    assert places["a"] < places["b"] < places["c<b>"]
    assert len(graph.edges) == 3
    html = enter(make_superuser()).get("/schedule/dependencies").content.decode()
    assert "c&lt;b&gt;" in html
    assert len(re.findall(r'class="cy-graph-edge"', html)) == 3
    stranger = make_user(roles={make_job().project: Role.VIEWER})
    assert job_graph(stranger).nodes == []
    many = [make_job() for _ in range(3)]
    JobLink.objects.bulk_create(
        JobLink(job=make_job(), after=many[number % 3]) for number in range(MAX_LINKS)
    )
    assert len(job_graph(make_superuser()).edges) == MAX_LINKS
    assert job_graph(make_superuser()).is_cut


@pytest.mark.parametrize(
    "address",
    [
        "/schedule",
        "/schedule?month=2026-13",
        "/schedule?month=0001-01",
        "/schedule?month=2024-02",
        "/schedule/timeline",
        "/schedule/timeline?hours=168&by=host",
        "/schedule/timeline?hours=x",
        "/schedule/dependencies",
    ],
)
def test_the_pages_answer_any_question(address: str) -> None:
    run = make_run(state=RunState.RUNNING, started_at=timezone.now())
    planned("0 6 * * *", project=run.job.project)
    client = enter(make_user(roles={run.job.project: Role.VIEWER}))
    for language in ("en", "zh-hans"):
        answer = client.get(address, headers={"accept-language": language})
        assert answer.status_code == 200
        assert not re.search(
            r'\s(style|onclick)="', answer.content.decode().split('id="content"')[1]
        )
