"""Rows of Celery beat that wake a worker when a schedule is due.

Wake-ups may be superfluous or missing, because beat's rules for days and clock changes differ from
those of schedules. Only ``Schedule.next_at`` decides what is due; a periodic sweep reads it every
few seconds.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Final

from django.db import transaction
from django.utils import timezone

from apps.jobs.engine.cron import Cron, parse_cron
from apps.jobs.models import Schedule
from yardkit import topology

if TYPE_CHECKING:
    from django_celery_beat.models import PeriodicTask

# Beat's models are imported where used: most daemons load neither them nor Celery.
PLAN_TASK: Final = "jobs.plan"
# Expiry of a wake-up: the sweep has planned the time by then.
EXPIRE_SECONDS: Final = 60
# Limit of repairs per call.
BATCH: Final = 500


@transaction.atomic
def ensure_wake_up(schedule_id: int) -> None:
    """Create the beat row of a schedule if it is missing. Idempotent."""
    from django_celery_beat.models import CrontabSchedule, PeriodicTask

    schedule = Schedule.objects.select_for_update().filter(pk=schedule_id).first()
    if schedule is None or PeriodicTask.objects.filter(pk=schedule.periodic_task_id).exists():
        return
    name = f"job {schedule.job_id}"
    _forget(PeriodicTask.objects.filter(name=name).select_related("crontab"))
    if schedule.next_at is None:
        return
    # One crontab per schedule: a shared crontab could not be deleted.
    crontab = CrontabSchedule.objects.create(
        **_crontab_fields(parse_cron(schedule.cron)), timezone=schedule.time_zone
    )
    task = PeriodicTask.objects.create(
        name=name,
        task=PLAN_TASK,
        crontab=crontab,
        kwargs=json.dumps({"job": schedule.job_id}),
        queue=topology.TASKS,
        expire_seconds=EXPIRE_SECONDS,
        # Without this value beat fires at once.
        last_run_at=timezone.now(),
    )
    Schedule.objects.filter(pk=schedule.pk).update(periodic_task_id=task.pk)


def mend_wake_ups() -> int:
    """Add missing rows and delete rows of deleted schedules, as left by a crashed process.

    Returns the number of repairs.
    """
    from django_celery_beat.models import PeriodicTask

    lost = Schedule.objects.filter(next_at__isnull=False).exclude(
        periodic_task_id__in=PeriodicTask.objects.values("pk")
    )
    missing = list(lost.values_list("pk", flat=True)[:BATCH])
    for schedule_id in missing:
        ensure_wake_up(schedule_id)
    owned = Schedule.objects.filter(periodic_task_id__isnull=False).values("periodic_task_id")
    orphans = PeriodicTask.objects.filter(task=PLAN_TASK).exclude(pk__in=owned)
    ids = list(orphans.values_list("pk", flat=True)[:BATCH])
    for task_id in ids:
        forget_wake_up(task_id)
    return len(missing) + len(ids)


@transaction.atomic
def forget_wake_up(task_id: int) -> None:
    """Delete a beat row that belongs to no schedule."""
    from django_celery_beat.models import PeriodicTask

    # A row and its link are committed in one transaction, so an unlinked row is an orphan.
    if not Schedule.objects.filter(periodic_task_id=task_id).exists():
        _forget(PeriodicTask.objects.filter(pk=task_id, task=PLAN_TASK).select_related("crontab"))


def _forget(tasks: Iterable[PeriodicTask]) -> None:
    for task in tasks:
        # Deleting the crontab deletes the task.
        if task.crontab is not None:
            task.crontab.delete()
        else:
            task.delete()


def _crontab_fields(cron: Cron) -> dict[str, str]:
    """Return the expression as a crontab of beat, which requires both day fields to match."""
    days, weekdays = cron.days, cron.weekdays
    if not cron.both_days:
        days, weekdays = frozenset(range(1, 32)), frozenset(range(7))
    return {
        "minute": _listed(cron.minutes, 60),
        "hour": _listed(cron.hours, 24),
        "day_of_month": _listed(days, 31),
        "month_of_year": _listed(cron.months, 12),
        "day_of_week": _listed(weekdays, 7),
    }


def _listed(values: Collection[int], size: int) -> str:
    return "*" if len(values) == size else ",".join(str(value) for value in sorted(values))
