"""Yield section on the job page."""

from __future__ import annotations

import re

import pytest
from django.urls import reverse

from apps.access.states import Role
from apps.alerts.models import JobYield, YieldPolicy, YieldWatch
from apps.alerts.services.yields import record_yields
from apps.alerts.templatetags.yields_tags import bars_of, finding
from apps.jobs.models import Job
from tests.access.factories import enter, make_user
from tests.alerts.yields import daily_runs, ended_run
from tests.jobs.factories import NOW, make_job

pytestmark = pytest.mark.django_db


@pytest.fixture
def job() -> Job:
    job = make_job(cron="0 12 * * *")
    daily_runs(job, until=NOW, days=10, fields={"url": 1000, "<b>price": 990})
    ended_run(job, at=NOW, items=100, fields={"url": 100, "<b>price": 5}, failed=90, success=10)
    record_yields(now=NOW)
    return job


def page(job: Job, role: Role = Role.VIEWER) -> str:
    client = enter(make_user(roles={job.project: role}, is_staff=True))
    answer = client.get(reverse("dashboard:job-alerts", args=[job.pk]))
    assert answer.status_code == 200
    return str(answer.content.decode())


@pytest.mark.slow("1 s")
def test_the_page_says_what_is_unusual(job: Job) -> None:
    text = page(job)
    assert "100 items; usually 1,000" in text
    assert "&lt;b&gt;price has a value in 5 % of the items; usually in 99 %" in text
    assert "90 of 100 requests failed; usually 0 %" in text
    assert "No new items" in text
    assert len(re.findall(r'class="cy-yield-bar"', text)) == 11
    assert "style=" not in text[text.index('id="yields"') : text.index("Yield monitoring")]


def test_a_job_without_runs_has_no_such_section() -> None:
    assert 'id="yields"' not in page(make_job())


@pytest.mark.slow("3 s")
def test_only_editors_may_change_what_is_watched(job: Job) -> None:
    assert "Reset baseline" not in page(job, Role.OPERATOR)
    assert "Reset baseline" in page(job, Role.EDITOR)
    operator = enter(make_user(roles={job.project: Role.OPERATOR}, is_staff=True))
    assert operator.post(reverse("alerts:yield-learn", args=[job.pk])).status_code == 403
    stranger = enter(make_user(roles={make_job().project: Role.ADMIN}, is_staff=True))
    assert stranger.post(reverse("alerts:yield-policy", args=[job.pk])).status_code == 404


@pytest.mark.slow("1 s")
def test_the_form_changes_limits_and_an_empty_one_is_not_looked_at(job: Job) -> None:
    editor = enter(make_user(roles={job.project: Role.EDITOR}, is_staff=True))
    address = reverse("alerts:yield-policy", args=[job.pk])
    values = {"enabled": "on", "drop_below": "0.2", "rise_above": "", "coverage_fall": "0.3"}
    answer = editor.post(address, values | {"failures_rise": "0.3", "stale_times": "4"})
    assert answer.headers["Location"].endswith("#yields")
    policy = YieldPolicy.objects.get(job=job)
    assert (policy.enabled, policy.drop_below, policy.rise_above) == (True, 0.2, None)
    editor.post(address, values | {"drop_below": "7"})
    policy.refresh_from_db()
    assert policy.drop_below == 0.2


@pytest.mark.slow("2 s")
def test_the_button_learns_anew(job: Job) -> None:
    editor = enter(make_user(roles={job.project: Role.EDITOR}, is_staff=True))
    editor.post(reverse("alerts:yield-learn", args=[job.pk]))
    assert not YieldWatch.objects.get(job=job).unusual
    assert "far fewer" not in page(job)


def test_bars_fit_into_the_chart_however_a_job_swings() -> None:
    usual = {"low": 0.0, "middle": 10.0, "high": 5000.0}
    rows = [JobYield(run=run, items=run, usual=usual, ended_at=NOW) for run in (30, 20, 0)]
    rows.append(JobYield(run=4, items=None, ended_at=NOW))
    bars = bars_of(rows)
    assert [bar.row.run for bar in bars] == [0, 20, 30]
    assert bars[-1].tall == "140.00"
    assert all(0 <= float(bar.band_y) <= 140 and float(bar.tall) <= 140 for bar in bars)
    assert bars_of([JobYield(run=1, items=0, ended_at=NOW)])[0].tall == "1.50"


def test_sentences_of_all_kinds() -> None:
    rise = {"kind": "rise", "items": 9000, "usual": 1000, "weekday": True}
    assert finding(rise) == "9,000 items; usually 1,000 on this weekday"
    assert finding({"kind": "failures", "failed": 3, "done": 3, "usual": None}) == (
        "3 of 3 requests failed"
    )
    fields = [{"name": "price", "share": 0.1234, "usual": 1.0}]
    assert finding({"kind": "coverage", "fields": fields, "count": 3}) == (
        "price has a value in 12.3 % of the items; usually in 100 % (and 2 more fields)"
    )
