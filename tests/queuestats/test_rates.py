"""Rates of runs and jobs, and the books of jobs: from reports that may come again."""

from __future__ import annotations

import importlib
from datetime import timedelta
from typing import Any

import pytest
from django.apps import apps
from django.db import connection
from django.utils import timezone

from apps.access.states import Role
from apps.jobs.models import Run
from apps.jobs.states import RunState
from apps.queuestats import gauges
from apps.queuestats.models import JobCounter, Sample, Series
from apps.queuestats.queries import job_totals, rates
from apps.queuestats.services import prune_series, record_observed_seconds, store_counters
from tests.access.factories import Api, make_project, make_user
from tests.jobs.factories import make_job, make_run
from yardkit.protocol import RunCounters

pytestmark = pytest.mark.django_db


def told(run: Run, seq: int, *, boot: str = "b1", **counts: Any) -> RunCounters:
    return RunCounters(run=run.pk, boot=boot, seq=seq, **counts)


def half_a_minute_of(run: Run) -> None:
    """A report every second up to now, each with 4 more requests, 3 more pages, 2 more items."""
    now = timezone.now()
    for ago in range(30, -1, -1):
        seq = 31 - ago
        counts: dict[str, Any] = {
            "total": 5 * seq,
            "success": 3 * seq,
            "failed": seq,
            "queued": seq,
        }
        message = told(run, seq, **counts, pages=3 * seq, items=2 * seq)
        store_counters(messages=[message], now=now - timedelta(seconds=ago))
    second = int(now.timestamp())
    record_observed_seconds(since=second - 60, until=second)


@pytest.mark.covers("S4.24", "S1.17")
def test_rates_of_a_run_and_of_its_job() -> None:
    run = make_run(job=make_job(), state=RunState.RUNNING)
    half_a_minute_of(run)
    now, project = timezone.now(), run.job.project_id
    names = [f"{what}.{name}" for what in ("run", "job") for name in ("requests", "pages")]
    found = rates(names, projects=[project], now=now)
    for what, label in (("run", run.pk), ("job", run.job_id)):
        assert found.of(f"{what}.requests", project, str(label))[5] == pytest.approx(4.0)
        assert found.of(f"{what}.pages", project, str(label))[5] == pytest.approx(3.0)


def test_a_report_that_comes_again_or_late_counts_once() -> None:
    run = make_run(job=make_job(), state=RunState.RUNNING)
    now = timezone.now()
    first, second = told(run, 1, total=10, success=4), told(run, 2, total=20, success=9)
    for messages in ([first], [first], [second], [first], [second, first]):
        store_counters(messages=messages, now=now)
    books = job_totals(run.job)
    assert (books.total, books.success, books.left) == (20, 9, 11)
    rows = Sample.objects.filter(series__name="job.requests", step=3600)
    assert sum(row.value for row in rows) == 9


@pytest.mark.covers("S1.19")
def test_the_books_of_a_job_are_those_of_all_its_runs() -> None:
    job = make_job()
    now = timezone.now()
    ended = make_run(job=job, state=RunState.EXITED, ended_at=now, created_at=now)
    active = make_run(job=job, state=RunState.RUNNING)
    other = make_run(job=make_job(), state=RunState.RUNNING)
    store_counters(
        messages=[
            told(ended, 1, total=10, success=6, failed=1, queued=3, final=True, items=5),
            told(active, 1, total=100, success=50, failed=10, queued=40, items=7),
            # The same run once more, after a restart: it counts from 0.
            told(active, 1, boot="b2", total=8, success=2, queued=6),
            told(other, 1, total=1000),
        ],
        now=now,
    )
    books = job_totals(job)
    assert (books.total, books.success, books.failed) == (118, 58, 11)
    # What the replaced execution had left is not left any more.
    assert (books.left, books.undone, books.items) == (6, 43, 12)
    assert (books.runs, books.active_runs) == (2, 1)
    assert books.total == books.success + books.failed + books.left + books.undone


def test_what_was_reported_before_there_were_books_is_added_up() -> None:
    run = make_run(job=make_job(), state=RunState.RUNNING)
    store_counters(messages=[told(run, 1, total=10, success=4)], now=timezone.now())
    JobCounter.objects.all().delete()
    migration = importlib.import_module("apps.queuestats.migrations.0006_measured")
    migration.add_up_jobs(apps, connection.schema_editor())
    assert (job_totals(run.job).total, job_totals(run.job).success) == (10, 4)


def test_over_rest() -> None:
    run = make_run(job=make_job(project=make_project()), state=RunState.RUNNING)
    half_a_minute_of(run)
    viewer = Api(make_user(roles={run.job.project: Role.VIEWER}))
    stranger = Api(make_user(roles={make_project(): Role.VIEWER}))

    found = viewer.get(f"runs/{run.pk}/series?seconds=60").json()
    assert found["step"] == 1
    assert [line["name"] for line in found["series"]] == ["requests", "pages", "items", "failures"]
    assert sum(point["value"] == 4.0 for point in found["series"][0]["points"]) >= 20
    assert found["series"][0]["per_second_1m"] > 0
    chosen = viewer.get(f"jobs/{run.job_id}/series?seconds=60&names=bytes").json()["series"]
    assert [line["name"] for line in chosen] == ["bytes"]
    assert viewer.get(f"runs/{run.pk}/series?names=wrong").status_code == 400

    books = viewer.get(f"jobs/{run.job_id}/counters").json()
    assert (books["total"], books["success"], books["left"]) == (155, 93, 31)
    for path in ("runs/{0.pk}/series", "jobs/{0.job_id}/series", "jobs/{0.job_id}/counters"):
        assert stranger.get(path.format(run)).status_code == 404
    # Those of single runs would drown the others.
    listed = viewer.get(f"projects/{run.job.project_id}/series").json()["results"]
    assert {each["name"].partition(".")[0] for each in listed} == {"job"}


def test_series_of_single_runs_go_with_their_minutes() -> None:
    run = make_run(job=make_job(), state=RunState.RUNNING)
    now = timezone.now()
    store_counters(messages=[told(run, 1, total=10, success=4)], now=now)
    prune_series(now=now + timedelta(days=8))
    assert not Series.objects.filter(name__startswith="run.").exists()
    assert Series.objects.filter(name="job.requests").exists()


def test_jobs_that_rest_are_no_gauges() -> None:
    now = timezone.now()
    busy, resting = (make_run(job=make_job(), state=RunState.RUNNING) for _ in range(2))
    for run in (busy, resting):
        store_counters(messages=[told(run, 1, total=10, success=4)], now=now)
    JobCounter.objects.filter(job=resting.job).update(updated_at=now - timedelta(hours=1))
    assert list(gauges._jobs()["job.left"]) == [(str(busy.job.project_id), str(busy.job_id))]
