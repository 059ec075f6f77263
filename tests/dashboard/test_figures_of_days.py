"""Figures of the overview: daily sums of jobs, and what they cost."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from apps.access.states import Role
from apps.dashboard import pages
from apps.dashboard.backlog import Backlog
from apps.jobs.models import Job, Run
from apps.jobs.services import finish_run
from apps.jobs.states import RunState
from apps.queuestats.models import JobDay
from apps.queuestats.queries.job_days import period_of
from apps.queuestats.services import store_counters
from apps.queuestats.services.job_days import KEPT, delete_old_days
from tests.access.factories import enter, make_superuser, make_user
from tests.jobs.factories import make_job, make_project, make_run
from yardkit.protocol import FailureNote, RunCounters

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def no_queues(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "backlog", Backlog)


def counted(run: Run, seq: int = 1, **counts: Any) -> None:
    note = FailureNote(seq, "https://shop.example/a", 404, "not found")
    message = RunCounters(
        run=run.pk, boot="b1", seq=seq, failures=[note] if counts.get("failed") else [], **counts
    )
    store_counters(messages=[message], now=timezone.now())


def ended(job: Job, state: RunState = RunState.EXITED, *, seconds: int = 60, **fields: Any) -> Run:
    """A run that ends now, by the service that ends runs."""
    now = timezone.now()
    started = now - timedelta(seconds=seconds)
    values = {"state": RunState.RUNNING, "created_at": started, "started_at": started}
    run = make_run(job=job, **(values | fields))
    counts = {name: fields.get(name) for name in ("items", "exceptions")}
    finish_run(run=run, state=state, reason="", now=now, total=10, failed=0, **counts)
    return run


@pytest.mark.covers("UX.2")
def test_reports_and_ends_of_runs_are_summed_by_job_and_day() -> None:
    job = make_job(min_items=5)
    run = make_run(job=job, state=RunState.RUNNING)
    counted(run, success=4, failed=1, items=7, bytes_received=100)
    counted(run, seq=2, success=9, failed=1, items=20, bytes_received=300)
    counted(run, seq=2, success=9, failed=1, items=20, bytes_received=300)
    ended(job, items=9)
    ended(job, items=1)
    ended(job, RunState.FAILED, seconds=30)
    ended(job, RunState.CANCELLED, seconds=0)
    replay = ended(job, replay_of=run)
    counted(replay, success=50, items=50)
    day = JobDay.objects.get()
    assert day.day == timezone.now().date()
    assert (day.success, day.failed, day.items, day.bytes_received) == (9, 1, 20, 300)
    assert (day.runs_succeeded, day.runs_with_errors) == (1, 1)
    assert (day.runs_failed, day.runs_cancelled, day.run_seconds) == (1, 1, 150)


@pytest.mark.covers("UX.2")
def test_the_overview_shows_a_period_by_job_and_project_with_what_fails() -> None:
    own, other = make_job(name="books"), make_job(name="foreign")
    for job in (own, other):
        counted(make_run(job=job, state=RunState.RUNNING), success=9, failed=1, items=1234)
        ended(job)
        ended(job, RunState.FAILED)
    JobDay.objects.create(job=own, day=timezone.now().date() - timedelta(days=8), items=77)
    user = make_user(roles={own.project: Role.VIEWER})
    period = period_of(user, days=7, now=timezone.now())
    assert (period.total.items, period.before.items, len(period.by_day)) == (1234, 77, 7)
    assert [(row.name, row.items, row.success_percent) for row in period.by_job] == [
        ("books", 1234, 50.0)
    ]
    assert [row.name for row in period.by_project] == [own.project.name]
    assert [(row.name, row.runs_failed) for row in period.failing] == [("books", 1)]
    assert [(row.host, row.failures) for row in period.hosts] == [("shop.example", 1)]
    assert period_of(user, days=30, now=timezone.now()).total.items == 1311
    html = enter(user).get("/admin/?days=7").content.decode()
    assert html.index('id="needs-attention"') < html.index('id="figures"')
    assert html.index('id="figures"') < html.index("Infrastructure") < html.index('id="queues"')
    assert "1,234" in html
    assert "shop.example" in html
    assert "foreign" not in html
    assert 'href="?days=7" aria-current="true"' in html
    assert (
        'href="?days=7" aria-current="true"' in enter(user).get("/admin/?days=8").content.decode()
    )


@pytest.mark.covers("UX.2")
def test_the_cost_of_a_period_does_not_depend_on_runs(django_assert_num_queries: Any) -> None:
    user = make_superuser()
    job = make_job()
    ended(job)
    with CaptureQueriesContext(connection) as asked:
        period_of(user, days=90, now=timezone.now())
    assert len(asked) == 5
    assert not any('FROM "jobs_run"' in query["sql"] for query in asked)
    for _ in range(5):
        ended(make_job(project=make_project()))
    with django_assert_num_queries(5):
        period_of(user, days=90, now=timezone.now())


def test_days_beyond_their_retention_are_deleted() -> None:
    job, now = make_job(), timezone.now()
    for age in (0, 399, 402):
        JobDay.objects.create(job=job, day=(now - timedelta(days=age)).date())
    assert delete_old_days(now=now) == 1
    assert min(JobDay.objects.values_list("day", flat=True)) > (now - KEPT).date()
