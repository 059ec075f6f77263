"""The demo's job with a made-up past."""

from __future__ import annotations

import pytest
from django.utils import timezone

from apps.alerts.models import JobYield
from apps.alerts.services.yields import record_yields
from apps.jobs.models import Run
from apps.jobs.states import RunState
from apps.queuestats.models import JobDay
from apps.queuestats.queries import run_totals
from crawlyard.demo import history
from crawlyard.demo.job import make_job
from tests.jobs.factories import make_run
from tests.queuestats.factories import report

pytestmark = pytest.mark.django_db


@pytest.mark.slow("2 s")
def test_its_last_run_alone_is_unusual_and_all_say_that_they_are_made_up() -> None:
    make_job(url="http://127.0.0.1:1/", name="Sample site")
    assert history.make()
    assert not history.make()
    rows = list(JobYield.objects.all())
    assert len(rows) == history.DAYS + 1
    assert [[one["kind"] for one in row.findings] for row in rows if row.findings] == [
        ["drop", "coverage"]
    ]
    assert rows[0].findings
    runs = Run.objects.filter(job__name=history.NAME)
    assert {run.reason for run in runs} == {"made up by manage.py demo"}
    assert sum(day.runs_succeeded for day in JobDay.objects.all()) == history.DAYS + 1
    assert all(books.balanced for books in run_totals(run.owner for run in runs).values())


@pytest.mark.slow("2 s")
def test_its_past_is_written_after_the_sample_job_was() -> None:
    make_job(url="http://127.0.0.1:1/", name="Sample site")
    now = timezone.now()
    sample = make_run(state=RunState.EXITED, started_at=now, ended_at=now)
    report(sample, total=1, success=1, sent=1, returned=1, final=True)
    assert record_yields(now=now) == 1
    assert history.make()
    assert JobYield.objects.filter(job__name=history.NAME).count() == history.DAYS + 1
