"""Yields of runs: recorded once, compared with the baseline, reported as conditions."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.core.exceptions import ValidationError

from apps.access.models import AuditRecord
from apps.alerts.engine.events import Occurrence, find_source
from apps.alerts.engine.rules import builtin_rules
from apps.alerts.models import JobYield, YieldWatch
from apps.alerts.queries.yields import yields_of
from apps.alerts.services.yields import record_yields, reset_baseline, set_policy
from apps.alerts.sources.yields import SOURCES
from apps.jobs.models import Job
from apps.jobs.states import RunState
from tests.alerts.yields import daily_runs, ended_run
from tests.jobs.factories import NOW, make_job, make_run
from yardkit import failpoints

pytestmark = pytest.mark.django_db

DAY = timedelta(days=1)


def listed(name: str, at: datetime = NOW) -> list[Occurrence]:
    source: Any = find_source(f"yield.{name}")
    return list(source.now(at))


def kinds_of(run: int) -> list[str]:
    return [one["kind"] for one in JobYield.objects.get(run=run).findings]


def test_each_run_that_has_ended_is_written_once() -> None:
    job = make_job()
    run = ended_run(job, at=NOW, items=7, fields={"url": 7, "价格": 3}, failed=2)
    make_run(job=job, state=RunState.RUNNING)
    assert [record_yields(now=NOW), record_yields(now=NOW)] == [1, 0]
    row = JobYield.objects.get()
    assert (row.run, row.items, row.failed, row.fields) == (run.pk, 7, 2, {"url": 7, "价格": 3})
    assert row.judged
    assert row.usual == {}


def test_the_last_counters_are_waited_for() -> None:
    run = ended_run(make_job(), at=NOW, items=5, final=False)
    assert record_yields(now=NOW + timedelta(seconds=30)) == 0
    assert record_yields(now=NOW + timedelta(minutes=11)) == 1
    assert JobYield.objects.get(run=run.pk).items == 5


def test_one_that_ended_earlier_and_is_told_later_is_written_too() -> None:
    job = make_job()
    ended_run(job, at=NOW)
    record_yields(now=NOW)
    late = ended_run(job, at=NOW - timedelta(minutes=30), items=3)
    assert record_yields(now=NOW) == 1
    assert JobYield.objects.get(run=late.pk).items == 3
    assert YieldWatch.objects.get(job=job).run != late.pk


def test_a_drop_lasts_until_a_usual_run() -> None:
    job = make_job()
    daily_runs(job, until=NOW, days=10)
    assert listed("drop") == []
    bad = ended_run(job, at=NOW, items=50)
    record_yields(now=NOW)
    [happening] = listed("drop")
    assert happening.project == job.project_id
    assert happening.key == f"job:{job.pk}"
    assert happening.at == NOW
    assert happening.facts == {"job": job.name, "run": bad.pk, "items": 50, "usual": 1000}
    ended_run(job, at=NOW + DAY, items=60)
    record_yields(now=NOW + DAY)
    [happening] = listed("drop", NOW + DAY)
    assert (happening.at, happening.facts["items"]) == (NOW, 60)
    ended_run(job, at=NOW + 2 * DAY, items=990)
    record_yields(now=NOW + 2 * DAY)
    assert listed("drop", NOW + 2 * DAY) == []
    assert kinds_of(bad.pk) == ["drop"]


def test_a_fall_in_coverage_names_the_field() -> None:
    job = make_job()
    daily_runs(job, until=NOW, days=10, fields={"url": 1000, "price": 990})
    ended_run(job, at=NOW, fields={"url": 1000, "price": 400})
    record_yields(now=NOW)
    [happening] = listed("coverage")
    facts = {"field": "price", "percent": 40, "usual_percent": 99, "fields": 1, "items": 1000}
    assert {name: happening.facts[name] for name in facts} == facts


def test_failures_and_rises_are_told() -> None:
    job = make_job()
    daily_runs(job, until=NOW, days=10)
    ended_run(job, at=NOW, items=9000, success=10, failed=90)
    record_yields(now=NOW)
    [rise], [failures] = listed("rise"), listed("failures")
    assert (rise.facts["items"], rise.facts["usual"]) == (9000, 1000)
    assert (failures.facts["failed"], failures.facts["done"]) == (90, 100)


def test_every_happening_has_the_facts_that_its_source_names() -> None:
    job = make_job(cron="0 * * * *")
    daily_runs(job, until=NOW, days=10)
    ended_run(job, at=NOW, items=5, fields={}, success=0, failed=100)
    record_yields(now=NOW)
    later = NOW + 30 * DAY
    for kind in ("drop", "coverage", "failures", "stale"):
        source: Any = find_source(f"yield.{kind}")
        [happening] = listed(kind, later)
        assert set(happening.facts) == set(source.facts)


def test_a_rule_that_is_built_in_watches_each() -> None:
    watched = {rule.source for rule in builtin_rules()}
    assert {source.name for source in SOURCES} <= watched


def test_failed_cancelled_and_trial_runs_are_not_compared() -> None:
    job = make_job(arguments={"pages": 100})
    daily_runs(job, until=NOW, days=10)
    others = [
        ended_run(job, at=NOW, items=1, state=RunState.FAILED),
        ended_run(job, at=NOW, items=1, state=RunState.CANCELLED),
        ended_run(job, at=NOW, items=1, trigger="person", arguments={"pages": 1}),
    ]
    record_yields(now=NOW)
    assert [one for kind in ("drop", "coverage") for one in listed(kind)] == []
    rows = JobYield.objects.filter(run__in=[run.pk for run in others])
    assert [row.judged for row in rows] == [False] * 3


def test_a_command_that_counts_nothing_has_no_items() -> None:
    job = make_job(cron="0 12 * * *")
    daily_runs(job, until=NOW, days=10, items=None)
    assert set(JobYield.objects.values_list("items", flat=True)) == {None}
    assert listed("stale", NOW) == []
    assert len(listed("stale", NOW + 10 * DAY)) == 1


def test_one_that_counted_before_and_does_no_more_brought_nothing() -> None:
    job = make_job()
    daily_runs(job, until=NOW, days=10)
    ended_run(job, at=NOW, items=None)
    assert record_yields(now=NOW + timedelta(minutes=9)) == 0
    assert record_yields(now=NOW + timedelta(minutes=11)) == 1
    assert len(listed("drop")) == 1


def test_a_job_is_stale_when_planned_runs_bring_nothing() -> None:
    job = make_job(cron="0 12 * * *")
    daily_runs(job, until=NOW, days=10)
    # Runs without items and failed runs are not good runs.
    ended_run(job, at=NOW, items=0)
    ended_run(job, at=NOW + DAY, items=5, state=RunState.FAILED)
    record_yields(now=NOW + DAY)
    assert listed("stale", NOW + DAY) == []
    [happening] = listed("stale", NOW + 2 * DAY + timedelta(minutes=5))
    assert happening.facts["usual_seconds"] == 86_400
    assert happening.facts["seconds"] == pytest.approx(3 * 86_400 + 300)
    ended_run(job, at=NOW + 2 * DAY, items=10)
    record_yields(now=NOW + 2 * DAY)
    assert listed("stale", NOW + 2 * DAY + timedelta(minutes=5)) == []


def test_a_cron_of_weekdays_is_not_stale_on_monday() -> None:
    friday = datetime.fromisoformat("2026-03-06T12:00:00+00:00")
    job = make_job(cron="0 12 * * 1-5")
    for ago in (8, 7, 4, 3, 2, 1, 0):
        ended_run(job, at=friday - timedelta(days=ago))
    record_yields(now=friday)
    assert listed("stale", friday + 5 * DAY - timedelta(minutes=1)) == []
    assert len(listed("stale", friday + 5 * DAY + timedelta(minutes=5))) == 1


def test_a_job_that_never_runs_any_more_is_stale_by_its_past() -> None:
    job = make_job()
    daily_runs(job, until=NOW, days=10, trigger="link")
    assert listed("stale", NOW + timedelta(days=1.9)) == []
    assert len(listed("stale", NOW + timedelta(days=2.1))) == 1
    Job.objects.filter(pk=job.pk).update(enabled=False)
    assert listed("stale", NOW + timedelta(days=2.1)) == []


def test_who_enables_a_job_again_has_the_whole_time_before_it_is_stale() -> None:
    job = make_job(cron="0 12 * * *")
    daily_runs(job, until=NOW, days=10)
    later = NOW + 30 * DAY
    assert len(listed("stale", later)) == 1
    Job.objects.filter(pk=job.pk).update(updated_at=later)
    assert listed("stale", later + 2 * DAY) == []
    job.refresh_from_db()
    assert not yields_of(job, now=later + 2 * DAY).stale
    assert len(listed("stale", later + 4 * DAY)) == 1


def test_what_a_person_tries_out_in_an_hour_is_never_stale() -> None:
    job = make_job()
    for minutes in range(60, 0, -5):
        ended_run(job, at=NOW - timedelta(minutes=minutes), trigger="person")
    record_yields(now=NOW)
    assert listed("stale", NOW + 100 * DAY) == []


def test_a_run_under_way_that_has_items_is_not_stale() -> None:
    job = make_job(cron="0 12 * * *")
    daily_runs(job, until=NOW, days=10)
    later = NOW + 20 * DAY
    assert len(listed("stale", later)) == 1
    run = ended_run(job, at=later, items=3, final=False)
    run.__class__.objects.filter(pk=run.pk).update(state=RunState.RUNNING, ended_at=None)
    assert listed("stale", later) == []
    assert not yields_of(job, now=later).stale


@pytest.mark.slow("1 s")
def test_a_policy_switches_off_and_changes_limits() -> None:
    job = make_job(cron="0 12 * * *")
    daily_runs(job, until=NOW, days=10)
    ended_run(job, at=NOW, items=50)
    record_yields(now=NOW)
    later = NOW + 20 * DAY
    assert [len(listed(kind, later)) for kind in ("drop", "stale")] == [1, 1]
    set_policy(job=job, values={"stale_times": None}, actor=None)
    assert [len(listed(kind, later)) for kind in ("drop", "stale")] == [1, 0]
    set_policy(job=job, values={"enabled": False}, actor=None)
    assert listed("drop", later) == []
    trail = AuditRecord.objects.filter(action="alerts.change_yield_policy")
    assert trail.count() == 2
    assert trail.latest("id").object_id == str(job.pk)


@pytest.mark.parametrize("bad", [-1, 0, 2, float("nan")])
def test_limits_that_make_no_sense_are_refused(bad: float) -> None:
    with pytest.raises(ValidationError) as refused:
        set_policy(job=make_job(), values={"drop_below": bad}, actor=None)
    assert list(refused.value.message_dict) == ["drop_below"]


@pytest.mark.slow("1 s")
def test_learning_anew_takes_the_new_for_usual() -> None:
    job = make_job()
    daily_runs(job, until=NOW, days=10)
    ended_run(job, at=NOW, items=50)
    record_yields(now=NOW)
    reset_baseline(job=job, now=NOW + timedelta(hours=1), actor=None)
    assert listed("drop") == []
    for day in range(1, 7):
        ended_run(job, at=NOW + day * DAY, items=50)
    record_yields(now=NOW + 6 * DAY)
    assert listed("drop") == []
    assert yields_of(job, now=NOW + 6 * DAY).runs[0].usual["middle"] == 50


@pytest.mark.fault
@pytest.mark.parametrize(
    ("failpoint", "kept"),
    [
        ("alerts.before_yield_commit=raise@2", 1),
        ("alerts.yield_written=raise@1", 1),
        ("alerts.yield_written=raise@2", 2),
    ],
)
def test_a_kill_between_writing_and_commit_loses_and_doubles_nothing(
    failpoint: str, kept: int
) -> None:
    job = make_job()
    daily_runs(job, until=NOW, days=10)
    for number in range(3):
        ended_run(job, at=NOW + number * DAY, items=50)
    later = NOW + 3 * DAY
    failpoints.configure({"FAILPOINTS": failpoint})
    try:
        with pytest.raises(failpoints.FailpointError):
            record_yields(now=later)
    finally:
        failpoints.configure({})
    assert JobYield.objects.count() == 10 + kept
    assert record_yields(now=later) == 3 - kept
    assert JobYield.objects.count() == 13
    assert len(listed("drop", later)) == 1


def test_old_yields_go() -> None:
    job = make_job()
    ended_run(job, at=NOW)
    record_yields(now=NOW)
    ended_run(job, at=NOW + 500 * DAY)
    record_yields(now=NOW + 500 * DAY)
    assert JobYield.objects.count() == 1
