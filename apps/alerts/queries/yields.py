"""Past yields of a job, for the engine, its page and REST."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final
from zoneinfo import ZoneInfo

from django.core.exceptions import ValidationError

from apps.alerts.engine.yields import (
    LEAST_STALE_SECONDS,
    MOST_RUNS,
    RunYield,
    YieldLimits,
    usual_interval,
)
from apps.alerts.models import JobYield, YieldPolicy, YieldWatch
from apps.jobs.models import Job, Run
from apps.jobs.queries import times_to_come
from apps.jobs.states import RunState, Trigger
from apps.queuestats.queries import run_totals

# Older runs are not part of the baseline.
PAST_DAYS: Final = 120
# Number of runs read: for an hourly job it covers the same weekday of several weeks.
PAST_RUNS: Final = 800
# A manually started job can become stale only if it ran on this many different days.
LEAST_DAYS_BY_HAND: Final = 5


def policy_of(job: Job) -> YieldPolicy:
    """Return the stored policy of a job, or an unsaved one with the defaults."""
    policy = YieldPolicy.objects.filter(job=job).first()
    return policy if policy is not None else YieldPolicy(job=job)


def past_of(job: Job, *, before: datetime, policy: YieldPolicy) -> list[RunYield]:
    """Return earlier runs to compare with, newest first; field counts for the newest only. Two
    queries."""
    rows = JobYield.objects.filter(
        job=job, judged=True, ended_at__lt=before, ended_at__gte=_learn_from(before, policy)
    ).order_by("-ended_at", "-run")
    zone = ZoneInfo(job.time_zone)
    fields = dict(rows.values_list("run", "fields")[:MOST_RUNS])
    return [
        RunYield(
            day=ended_at.astimezone(zone).date(),
            items=items or 0,
            success=success,
            failed=failed,
            fields=fields.get(run),
        )
        for run, ended_at, items, success, failed in rows.values_list(
            "run", "ended_at", "items", "success", "failed"
        )[:PAST_RUNS]
    ]


def _learn_from(before: datetime, policy: YieldPolicy) -> datetime:
    oldest = before - timedelta(days=PAST_DAYS)
    return oldest if policy.learn_from is None else max(oldest, policy.learn_from)


@dataclass(frozen=True, slots=True)
class Interval:
    """Usual time between good runs of a job. ``stale_at`` None: the job never becomes stale."""

    usual_seconds: float | None = None
    stale_at: datetime | None = None


def interval_of(job: Job, *, good_at: datetime, limits: YieldLimits) -> Interval:
    """Derive the interval from the job's cron, or from the usual time between its good runs.

    A change of the job restarts the interval, so that a job enabled again after a month, or given a
    cron only now, is not stale at once.
    """
    if limits.stale_times is None:
        return Interval()
    least = timedelta(seconds=LEAST_STALE_SECONDS)
    good = JobYield.objects.filter(job=job).good().filter(ended_at__lte=good_at)
    rows = list(
        good.order_by("-ended_at").values_list("ended_at", "started_at", "trigger")[: MOST_RUNS + 1]
    )
    usual = usual_interval([ended for ended, _started, _trigger in rows])
    begin = max(good_at, job.updated_at)
    planned = _planned(job, begin, limits.stale_times)
    if planned is not None:
        # The next planned run needs its usual duration before the job counts as stale.
        lasting = sorted(ended - started for ended, started, _trigger in rows if started)
        takes = lasting[len(lasting) // 2] if lasting else timedelta()
        first, last = planned
        stale_at = max(last, begin + least) + takes
        return Interval(
            (first - begin).total_seconds() if usual is None else usual[0].total_seconds(), stale_at
        )
    if usual is None or not _runs_by_itself(rows):
        return Interval()
    middle, longest = usual
    after = max(middle * limits.stale_times, longest * 1.5, least)
    return Interval(middle.total_seconds(), begin + after)


def _planned(job: Job, begin: datetime, times: float) -> tuple[datetime, datetime] | None:
    """Return the first and the ``times``-th planned time after the last good run or change."""
    if not job.cron:
        return None
    count = max(1, round(times))
    try:
        planned = times_to_come(cron=job.cron, time_zone=job.time_zone, after=begin, count=count)
    except ValidationError:
        return None
    return (planned[0].utc, planned[-1].utc) if len(planned) == count else None


def _runs_by_itself(rows: Sequence[tuple[datetime, datetime | None, str]]) -> bool:
    """Return whether schedules, links or items start the job, or users do on most days."""
    by_hand = [ended.date() for ended, _started, trigger in rows if trigger == Trigger.PERSON]
    return 2 * len(by_hand) < len(rows) or len(set(by_hand)) >= LEAST_DAYS_BY_HAND


def has_new_items(job: int) -> bool:
    """Return whether an active run of the job already has items; then the job is not stale yet."""
    active = Run.objects.filter(job=job).exclude(state=RunState.QUEUED).active()
    owners = [f"run:{pk}" for pk in active.values_list("pk", flat=True)]
    return bool(owners) and any(counters.items for counters in run_totals(owners).values())


@dataclass(frozen=True, slots=True)
class FieldShare:
    """Share of a job's items in which one field has a value: newest run and baseline."""

    name: str
    share: float
    usual: float | None
    fallen: bool

    @property
    def percent(self) -> float:
        return 100.0 * self.share

    @property
    def usual_percent(self) -> float | None:
        return None if self.usual is None else 100.0 * self.usual


@dataclass(frozen=True, slots=True)
class JobYields:
    """Yield history and status of a job, for its page and REST."""

    job: Job
    policy: YieldPolicy
    watch: YieldWatch | None
    # Newest first.
    runs: list[JobYield] = field(default_factory=list)
    stale: bool = False

    @property
    def newest(self) -> JobYield | None:
        """Return the newest run that was compared with the baseline."""
        return next((run for run in self.runs if run.judged), None)

    @property
    def findings(self) -> list[dict[str, Any]]:
        """Return current anomalies with the time each began."""
        return [] if self.watch is None else self.watch.findings

    @property
    def fields(self) -> list[FieldShare]:
        """Return field coverage of the newest compared run, largest decline first."""
        newest = self.newest
        if newest is None or not newest.items:
            return []
        usual: dict[str, float] = newest.usual.get("fields", {})
        fallen = {
            filled["name"]
            for finding in newest.findings
            if finding["kind"] == "coverage"
            for filled in finding["fields"]
        }
        shares = [
            FieldShare(
                name=name,
                share=min(1.0, newest.fields.get(name, 0) / newest.items),
                usual=usual.get(name),
                fallen=name in fallen,
            )
            for name in {*newest.fields, *usual}
        ]
        return sorted(shares, key=lambda one: (not one.fallen, one.name))


def yields_of(job: Job, *, now: datetime, count: int = MOST_RUNS) -> JobYields:
    """Return a job's newest runs and its yield status. Four queries."""
    watch = YieldWatch.objects.filter(job=job).first()
    return JobYields(
        job=job,
        policy=policy_of(job),
        watch=watch,
        runs=list(JobYield.objects.filter(job=job)[:count]),
        stale=watch is not None and job.enabled and stale_since(watch, job, now) is not None,
    )


def stale_since(watch: YieldWatch, job: Job, now: datetime) -> Interval | None:
    """Return the interval that the job has exceeded; None if not stale or an active run has
    items."""
    if watch.good_at is None or watch.stale_at is None or watch.stale_at >= now:
        return None
    # The cron may have changed since the last run was recorded.
    interval = interval_of(job, good_at=watch.good_at, limits=policy_of(job).limits)
    if interval.stale_at is None or interval.stale_at >= now or has_new_items(job.pk):
        return None
    return interval
