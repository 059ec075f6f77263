"""Rows of Celery beat that wake a worker when a schedule is due.

They are only wake-ups, which may come too often or not at all: beat has other rules for days
and for clock changes. ``Schedule.next_at`` alone says what is due, and a sweep reads it every
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

# Imported where used: most daemons load neither beat's models nor Celery.
PLAN_TASK: Final = "jobs.plan"
# An older wake-up is void: a sweep has planned meanwhile.
EXPIRE_SECONDS: Final = 60
# Most repairs in one call.
BATCH: Final = 500


@transaction.atomic
def ensure_wake_up(schedule_id: int) -> None:
    """Replace the beat row of a schedule by one that fits; idempotent."""
    from django_celery_beat.models import CrontabSchedule, PeriodicTask

    schedule = Schedule.objects.select_for_update().filter(pk=schedule_id).first()
    if schedule is None or PeriodicTask.objects.filter(pk=schedule.periodic_task_id).exists():
        return
    name = f"job {schedule.job_id}"
    _forget(PeriodicTask.objects.filter(name=name).select_related("crontab"))
    if schedule.next_at is None:
        return
    # A crontab of its own for each schedule: a shared one could not be deleted.
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
        # Without it beat starts from the beginning, and fires at once.
        last_run_at=timezone.now(),
    )
    Schedule.objects.filter(pk=schedule.pk).update(periodic_task_id=task.pk)


def mend_wake_ups() -> int:
    """Repair what a crashed process left: missing rows, and rows of deleted schedules.

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

    # Either committed before this call, or linked in the transaction that made it.
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
    """Return the expression for beat, which requires both day fields to match."""
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
