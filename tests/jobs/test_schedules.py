"""Schedules and planned runs: each planned time once, as started or with the reason why not."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db.models import F
from django_celery_beat.models import CrontabSchedule, PeriodicTask

from apps.jobs.engine.due_times import CATCH_UP_LIMIT
from apps.jobs.models import Job, PlannedRun, Run, Schedule
from apps.jobs.services import overlap, plan_due, plans, sync_schedule
from apps.jobs.services.wakeups import mend_wake_ups
from apps.jobs.states import MisfirePolicy, OverlapPolicy, PlanOutcome, RunState, Trigger
from tests.jobs.factories import make_job, make_run
from tests.plugins.measurements import Measured

pytestmark = pytest.mark.django_db

NOON = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)
SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)


def scheduled(cron: str = "*/10 * * * *", *, now: datetime = NOON, **fields: Any) -> Job:
    job = make_job(cron=cron, **fields)
    sync_schedule(job=job, now=now)
    return job


def outcomes(job: Job) -> list[tuple[str, str]]:
    rows = PlannedRun.objects.filter(schedule__job=job).order_by("planned_at")
    return [(f"{row.planned_at:%H:%M}", row.outcome) for row in rows]


def end_runs(job: Job) -> None:
    Run.objects.filter(job=job).active().update(state=RunState.EXITED, ended_at=F("created_at"))


@pytest.mark.covers("S1.3")
def test_a_due_time_is_started_once() -> None:
    job = scheduled(arguments={"a": 1})
    assert plan_due(now=NOON + 9 * MINUTE) == 0
    assert plan_due(now=NOON + 10 * MINUTE + 2 * SECOND) == 1
    assert plan_due(now=NOON + 10 * MINUTE + 3 * SECOND) == 0
    run = Run.objects.get()
    assert (run.state, run.trigger, run.arguments) == (RunState.QUEUED, Trigger.CRON, {"a": 1})
    assert run.moves.get().reason == "planned for 2026-03-02 12:10 UTC"
    assert PlannedRun.objects.get().run == run
    assert outcomes(job) == [("12:10", "started")]


def test_one_job_can_be_planned_alone() -> None:
    first, second = scheduled(), scheduled()
    now = NOON + 10 * MINUTE
    assert plan_due(now=now, job=first.pk) == 1
    assert outcomes(second) == []
    assert plan_due(now=now, job=0) == 0


@pytest.mark.parametrize(
    ("late", "policy", "expected"),
    [
        (60, MisfirePolicy.SKIP, PlanOutcome.STARTED),
        (61, MisfirePolicy.SKIP, PlanOutcome.LATE),
        (300, MisfirePolicy.SKIP, PlanOutcome.LATE),
        (301, MisfirePolicy.SKIP, PlanOutcome.MISSED),
        (301, MisfirePolicy.ONCE, PlanOutcome.CAUGHT_UP),
        (301, MisfirePolicy.ALL, PlanOutcome.CAUGHT_UP),
    ],
)
def test_how_late_is_late(late: int, policy: str, expected: str) -> None:
    job = scheduled(misfire=policy)
    plan_due(now=NOON + 10 * MINUTE + late * SECOND)
    assert outcomes(job) == [("12:10", expected)]
    assert Run.objects.count() == (expected != PlanOutcome.MISSED)


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (MisfirePolicy.SKIP, ["missed", "missed", "missed"]),
        (MisfirePolicy.ONCE, ["missed", "missed", "caught_up"]),
        (MisfirePolicy.ALL, ["caught_up", "caught_up", "caught_up"]),
    ],
)
def test_after_an_outage(policy: str, expected: list[str]) -> None:
    job = scheduled(misfire=policy, overlap=OverlapPolicy.ALLOW)
    plan_due(now=NOON + 39 * MINUTE)
    assert outcomes(job) == list(zip(("12:10", "12:20", "12:30"), expected, strict=True))
    assert Run.objects.count() == expected.count("caught_up")
    assert all(row.reason for row in PlannedRun.objects.filter(outcome=PlanOutcome.MISSED))


def test_one_on_time_stands_for_those_before_it() -> None:
    job = scheduled(misfire=MisfirePolicy.ONCE, overlap=OverlapPolicy.ALLOW)
    plan_due(now=NOON + 30 * MINUTE)
    assert [outcome for _time, outcome in outcomes(job)] == ["missed", "missed", "started"]


@pytest.mark.slow("10 s")
@pytest.mark.parametrize("policy", list(MisfirePolicy))
def test_a_month_of_outage_is_listed_completely(
    policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plans, "CHUNKS", 3)
    job = scheduled("* * * * *", misfire=policy, overlap=OverlapPolicy.ALLOW)
    now = NOON + timedelta(days=4) + 30 * SECOND
    calls = [plan_due(now=now)]
    # Bounded: one call wrote three chunks; the last one is the rest.
    assert calls == [3 * plans.CHUNK]
    while decided := plan_due(now=now):
        calls.append(decided)
    assert sum(calls) == 4 * 24 * 60 == PlannedRun.objects.count()
    counted = Counter(PlannedRun.objects.values_list("outcome", flat=True))
    started = {"started": 1}
    caught_up = {"caught_up": CATCH_UP_LIMIT - 1} if policy == MisfirePolicy.ALL else {}
    missed = sum(calls) - 1 - sum(caught_up.values())
    assert counted == started | caught_up | {"missed": missed}
    assert plan_due(now=now) == 0
    assert outcomes(job)[0] == ("12:01", "missed")


@pytest.mark.covers("S1.13")
def test_overlap_skip_names_the_active_run() -> None:
    job = scheduled(overlap=OverlapPolicy.SKIP)
    active = make_run(job=job, state=RunState.PAUSED)
    plan_due(now=NOON + 10 * MINUTE)
    row = PlannedRun.objects.get()
    assert (row.outcome, row.run) == (PlanOutcome.SKIPPED, None)
    assert row.reason == f"run {active.pk} was active"
    end_runs(job)
    plan_due(now=NOON + 20 * MINUTE)
    assert [outcome for _time, outcome in outcomes(job)] == ["skipped", "started"]


def test_overlap_queue_waits_for_the_newest() -> None:
    job = scheduled(overlap=OverlapPolicy.QUEUE)
    first = make_run(job=job, state=RunState.RUNNING)
    plan_due(now=NOON + 10 * MINUTE)
    plan_due(now=NOON + 20 * MINUTE)
    second, third = Run.objects.filter(trigger=Trigger.CRON).order_by("id")
    assert (second.waits_for, third.waits_for) == (first, second)


def test_overlap_queue_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overlap, "WAITING_LIMIT", 2)
    job = scheduled("* * * * *", overlap=OverlapPolicy.QUEUE)
    make_run(job=job, state=RunState.RUNNING)
    for minutes in range(1, 5):
        plan_due(now=NOON + minutes * MINUTE)
    assert [outcome for _t, outcome in outcomes(job)] == ["started"] * 2 + ["skipped"] * 2


def test_overlap_replace_stops_what_is_active() -> None:
    job = scheduled(overlap=OverlapPolicy.REPLACE)
    running = make_run(job=job, state=RunState.RUNNING)
    queued = make_run(job=job)
    plan_due(now=NOON + 10 * MINUTE)
    running.refresh_from_db()
    queued.refresh_from_db()
    assert (running.state, queued.state) == (RunState.STOPPING, RunState.CANCELLED)
    new = Run.objects.get(trigger=Trigger.CRON)
    assert new.waits_for == running
    # It is stopping already when the next one comes: nothing fails.
    plan_due(now=NOON + 20 * MINUTE)
    new.refresh_from_db()
    assert new.state == RunState.CANCELLED
    assert Run.objects.active().get(state=RunState.QUEUED).waits_for == running


def test_overlap_allow_lets_both_run() -> None:
    job = scheduled(overlap=OverlapPolicy.ALLOW)
    make_run(job=job, state=RunState.RUNNING)
    plan_due(now=NOON + 10 * MINUTE)
    assert Run.objects.get(trigger=Trigger.CRON).waits_for is None


def test_runs_of_other_jobs_are_no_overlap() -> None:
    job = scheduled(overlap=OverlapPolicy.SKIP)
    make_run(state=RunState.RUNNING)
    plan_due(now=NOON + 10 * MINUTE)
    assert outcomes(job) == [("12:10", "started")]


# --- changes ---------------------------------------------------------------------------------


def change(job: Job, now: datetime, **fields: Any) -> None:
    for name, value in fields.items():
        setattr(job, name, value)
    job.save()
    sync_schedule(job=job, now=now)


@pytest.mark.covers("S1.12")
def test_the_time_of_a_disabled_job_is_not_planned_at_all() -> None:
    job = scheduled()
    plan_due(now=NOON + 10 * MINUTE)
    change(job, NOON + 15 * MINUTE, enabled=False)
    assert plan_due(now=NOON + 45 * MINUTE) == 0
    change(job, NOON + 55 * MINUTE, enabled=True)
    plan_due(now=NOON + 60 * MINUTE)
    assert [time for time, _outcome in outcomes(job)] == ["12:10", "13:00"]


def test_another_expression_or_zone_begins_anew() -> None:
    job = scheduled("0 18 * * *")
    change(job, NOON, cron="0 20 * * *")
    change(job, NOON, time_zone="Asia/Shanghai")
    assert plan_due(now=NOON + 10 * SECOND) == 0
    assert Schedule.objects.get().next_at == datetime(2026, 3, 3, 12, 0, tzinfo=UTC)


def test_changed_and_changed_back_starts_nothing_twice() -> None:
    job = scheduled()
    plan_due(now=NOON + 10 * MINUTE + 5 * SECOND)
    for cron in ("0 * * * *", "*/10 * * * *"):
        # By a web server whose clock is behind.
        change(job, NOON + 9 * MINUTE, cron=cron)
    assert plan_due(now=NOON + 10 * MINUTE + 20 * SECOND) == 0
    assert outcomes(job) == [("12:10", "started")]


def test_what_changes_nothing_leaves_the_account_alone() -> None:
    job = scheduled()
    change(job, NOON + 15 * MINUTE, notes="x")
    plan_due(now=NOON + 20 * MINUTE)
    assert [time for time, _outcome in outcomes(job)] == ["12:10", "12:20"]


def test_a_change_past_the_services_begins_anew() -> None:
    job = scheduled()
    Job.objects.filter(pk=job.pk).update(enabled=False)
    assert plan_due(now=NOON + 10 * MINUTE) == 0
    Job.objects.filter(pk=job.pk).update(enabled=True, cron="5 * * * *")
    assert plan_due(now=NOON + 10 * MINUTE) == 0
    sync_schedule(job=Job.objects.get(), now=NOON + 10 * MINUTE)
    assert Schedule.objects.get().next_at == NOON + 65 * MINUTE


@pytest.mark.fault
def test_a_clock_that_goes_back_starts_nothing_twice(measured: Measured) -> None:
    job = scheduled()
    plan_due(now=NOON + 20 * MINUTE)
    planned = outcomes(job)
    again = [plan_due(now=NOON + minutes * MINUTE) for minutes in (5, 10, 15, 20)]
    measured(of=len(planned), lost=len({*planned} - {*outcomes(job)}), twice=sum(again))
    assert again == [0] * 4
    assert outcomes(job) == planned
    assert plan_due(now=NOON + 30 * MINUTE) == 1


def test_no_cron_no_schedule() -> None:
    job = make_job()
    assert sync_schedule(job=job, now=NOON) is None
    assert not Schedule.objects.exists()
    change(job, NOON, cron="* * * * *")
    change(job, NOON + MINUTE, cron="")
    assert plan_due(now=NOON + 10 * MINUTE) == 0


def test_a_schedule_that_cannot_be_planned_holds_up_no_other(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bad, good = scheduled(), scheduled()
    Schedule.objects.filter(job=bad).update(time_zone="Gone/Zone")
    Job.objects.filter(pk=bad.pk).update(time_zone="Gone/Zone")
    assert plan_due(now=NOON + 10 * MINUTE) == 1
    assert outcomes(good) == [("12:10", "started")]
    assert "cannot be planned" in caplog.text
    assert plan_due(now=NOON + 11 * MINUTE) == 0
    Schedule.objects.filter(job=bad).update(time_zone="UTC")
    Job.objects.filter(pk=bad.pk).update(time_zone="UTC")
    # Parked for an hour, and then the whole hour is accounted for.
    assert plan_due(now=NOON + 70 * MINUTE + 5 * SECOND) == 7 + 6


# --- beat's rows -----------------------------------------------------------------------------


@pytest.mark.django_db(transaction=True)
@pytest.mark.covers("S1.59")
def test_beat_gets_a_row_for_each_schedule_and_loses_it_with_the_job() -> None:
    job = scheduled("0 6 1 * mon", time_zone="Asia/Shanghai")
    task = PeriodicTask.objects.get()
    assert (task.name, task.task, task.queue) == (f"job {job.pk}", "jobs.plan", "celery.tasks")
    # Beat's own rule is "both day fields fit"; a wake-up too many does no harm.
    assert str(task.crontab).startswith("0 6 * * * (m/h/dM/MY/d) Asia/Shanghai")
    change(job, NOON, cron="*/15 8-9 * * 6,7")
    assert str(PeriodicTask.objects.get().crontab).startswith("0,15,30,45 8,9 * * 0,6")
    change(job, NOON, enabled=False)
    assert not PeriodicTask.objects.exists()
    change(job, NOON, enabled=True)
    assert Schedule.objects.get().periodic_task_id == PeriodicTask.objects.get().pk
    job.delete()
    assert not Schedule.objects.exists()
    assert not PeriodicTask.objects.exists()
    assert not CrontabSchedule.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_missing_and_orphaned_rows_are_mended() -> None:
    job = scheduled()
    PeriodicTask.objects.all().delete()
    PeriodicTask.objects.create(
        name="job 4711", task="jobs.plan", crontab=CrontabSchedule.objects.create()
    )
    other = PeriodicTask.objects.create(
        name="other", task="else.where", crontab=CrontabSchedule.objects.create()
    )
    assert mend_wake_ups() == 2
    assert mend_wake_ups() == 0
    assert {task.name for task in PeriodicTask.objects.all()} == {f"job {job.pk}", other.name}


@pytest.mark.parametrize("cron", ["* * * * *", "0-58 1-23 2-31 2-12 1-6", "0 0 1,15 1 0"])
def test_what_beat_is_told_fits_its_columns(cron: str) -> None:
    scheduled(cron)
    mend_wake_ups()
    CrontabSchedule.objects.get().full_clean()


def test_the_account_of_long_ago_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plans, "CHUNK", 2)
    job = make_job(cron="0 * * * *")
    now = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
    schedule = Schedule.objects.create(
        job=job, cron=job.cron, time_zone="UTC", planned_through=now, next_at=None
    )
    PlannedRun.objects.bulk_create(
        PlannedRun(
            schedule=schedule,
            planned_at=now - timedelta(days=days),
            outcome=PlanOutcome.MISSED,
            decided_at=now,
        )
        for days in (1, 89, 91, 92, 93)
    )
    assert plans.forget_planned_runs(now=now) == 3
    assert PlannedRun.objects.filter(planned_at__lt=now - plans.KEEP).count() == 0
    assert PlannedRun.objects.count() == 2
