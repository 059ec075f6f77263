"""Recording and anomaly detection of the yields of finished runs."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final
from zoneinfo import ZoneInfo

from django.db import transaction
from django.db.models import Exists, OuterRef, QuerySet

from apps.access.models import User
from apps.access.services import changes, record, snapshot
from apps.alerts.engine.yields import RunYield, assess
from apps.alerts.models import JobYield, YieldPolicy, YieldWatch
from apps.alerts.queries.yields import interval_of, past_of, policy_of
from apps.jobs.models import Job, Run
from apps.jobs.states import FINAL, RunState, Trigger
from apps.queuestats.queries import RunTotals, run_totals
from yardkit import failpoints

# The last counters of a run may arrive after its end, or never if it did not count.
WAIT_FOR_COUNTERS: Final = timedelta(minutes=10)
# Tolerance for runs whose end is recorded after that of later runs.
OVERLAP: Final = timedelta(hours=1)
# Age of the oldest runs recorded at the first call.
FIRST_TIME: Final = timedelta(days=120)
KEPT: Final = timedelta(days=400)
BATCH: Final = 200


def record_yields(*, now: datetime, since: datetime | None = None, limit: int = BATCH) -> int:
    """Record the yields of runs that ended after ``since``; return their number.

    Without ``since``, continues after the newest recorded run. Idempotent: a run is recorded once,
    with its assessment, in one transaction. Safe to kill anywhere and to run twice at once.
    """
    runs = list(_unwritten(now, since)[:limit])
    totals = run_totals(run.owner for run in runs)
    written = 0
    for run in runs:
        its = totals[run.owner]
        if not its.final and run.ended_at and now - run.ended_at < WAIT_FOR_COUNTERS:
            continue
        written += _write(run, its, now)
        failpoints.hit("alerts.yield_written")
    return written


def _unwritten(now: datetime, since: datetime | None) -> QuerySet[Run]:
    """Return finished runs without a record, earliest first, so that each finds its history."""
    if since is None:
        newest = JobYield.objects.order_by("-ended_at").values_list("ended_at", flat=True).first()
        since = now - FIRST_TIME if newest is None else newest - OVERLAP
    written = JobYield.objects.filter(run=OuterRef("pk"))
    return (
        Run.objects.live()
        .filter(~Exists(written), state__in=FINAL, ended_at__gte=since)
        .select_related("job")
        .order_by("ended_at", "id")
    )


@transaction.atomic
def _write(run: Run, totals: RunTotals, now: datetime) -> bool:
    job, ended_at = run.job, run.ended_at or now
    # Lock: runs of one job are assessed one after the other in all processes.
    watch, _made = YieldWatch.objects.select_for_update().get_or_create(
        job=job, defaults={"project_id": job.project_id}
    )
    row = JobYield(
        project_id=job.project_id,
        job=job,
        run=run.pk,
        state=run.state,
        trigger=run.trigger,
        started_at=run.started_at,
        ended_at=ended_at,
        recorded_at=now,
        items=_items(run, totals),
        pages=totals.pages,
        success=totals.success,
        failed=totals.failed,
        fields=totals.fields,
    )
    policy = policy_of(job)
    row.judged = row.items is not None and _is_comparable(run)
    if row.judged:
        assessment = assess(
            _yield_of(row), past_of(job, before=ended_at, policy=policy), policy.limits
        )
        row.usual = assessment.usual.as_dict() if assessment.usual else {}
        row.findings = assessment.findings
    if JobYield.objects.filter(run=run.pk).exists():
        return False
    row.save(force_insert=True)
    _update_watch(watch, row, policy)
    JobYield.objects.filter(job=job, ended_at__lt=now - KEPT).delete()
    failpoints.hit("alerts.before_yield_commit")
    return True


def _items(run: Run, totals: RunTotals) -> int | None:
    """Return the number of items; None for jobs that never report any, e.g. custom commands."""
    if totals.reported:
        return totals.items
    counted = JobYield.objects.filter(job=run.job, items__isnull=False)
    return 0 if counted.exists() else None


def _is_comparable(run: Run) -> bool:
    """Return whether a run succeeded with the job's own arguments.

    A run that a user started with other arguments is a trial. A failed run opens its own incident,
    and its partial yield says nothing about the site.
    """
    trial = run.trigger == Trigger.PERSON and run.arguments != run.job.arguments
    return run.state == RunState.EXITED and not trial


def _yield_of(row: JobYield) -> RunYield:
    return RunYield(
        day=row.ended_at.astimezone(ZoneInfo(row.job.time_zone)).date(),
        items=row.items or 0,
        success=row.success,
        failed=row.failed,
        fields=row.fields,
    )


def _update_watch(watch: YieldWatch, row: JobYield, policy: YieldPolicy) -> None:
    """Update the job's yield status; a run older than the newest compared one changes nothing."""
    if row.judged and (watch.run_ended_at is None or watch.run_ended_at <= row.ended_at):
        since = {finding["kind"]: finding["since"] for finding in watch.findings}
        ended = row.ended_at.isoformat()
        watch.findings = [
            {**finding, "since": since.get(finding["kind"], ended)} for finding in row.findings
        ]
        watch.unusual = bool(row.findings)
        watch.run, watch.run_ended_at = row.run, row.ended_at
    is_good = row.state == RunState.EXITED and row.items != 0
    if is_good and (watch.good_at is None or watch.good_at <= row.ended_at):
        watch.good_run, watch.good_at = row.run, row.ended_at
    _until_stale(watch, row.job, policy)
    watch.save()


def _until_stale(watch: YieldWatch, job: Job, policy: YieldPolicy) -> None:
    watch.usual_seconds = watch.stale_at = None
    if watch.good_at is not None:
        interval = interval_of(job, good_at=watch.good_at, limits=policy.limits)
        watch.usual_seconds, watch.stale_at = interval.usual_seconds, interval.stale_at


@transaction.atomic
def set_policy(*, job: Job, values: Mapping[str, Any], actor: User | None) -> YieldPolicy:
    """Change a job's anomaly limits, effective from the next run; staleness at once.

    Args:
        values: fields of ``YieldPolicy``.

    Raises:
        ValidationError: by field, if a limit is out of range.
    """
    YieldPolicy.objects.get_or_create(job=job)
    policy = YieldPolicy.objects.select_for_update().select_related("job").get(job=job)
    before = snapshot(policy)
    for name, value in values.items():
        setattr(policy, name, value)
    policy.full_clean(exclude=["job"])
    policy.save(update_fields=[*values, "updated_at"])
    old, new = changes(before, snapshot(policy))
    old, new = ({k: v for k, v in side.items() if k in values} for side in (old, new))
    if new:
        record(
            actor=actor,
            action="alerts.change_yield_policy",
            obj=job,
            project=job.project_id,
            before=old,
            after=new,
        )
    watch = YieldWatch.objects.select_for_update().filter(job=job).first()
    if watch is not None:
        _until_stale(watch, job, policy)
        watch.save(update_fields=["usual_seconds", "stale_at"])
    return policy


@transaction.atomic
def reset_baseline(*, job: Job, now: datetime, actor: User | None) -> YieldPolicy:
    """Discard the job's history as a baseline, for example after the site has changed.

    Current anomalies are cleared; none is detected until enough new runs exist.
    """
    policy = set_policy(job=job, values={"learn_from": now}, actor=actor)
    YieldWatch.objects.filter(job=job).update(findings=[], unusual=False)
    return policy
