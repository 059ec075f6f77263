"""Signal handlers for runs, schedules and projects."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.db import transaction
from django.db.models.signals import post_delete
from django.dispatch import receiver

from apps.jobs.events import run_ended
from apps.jobs.models import Run, Schedule
from apps.jobs.services.followers import follow_up
from apps.projects.events import project_deleted, project_restored
from apps.projects.models import Project


@receiver(post_delete, sender=Schedule, dispatch_uid="jobs.forget_wake_up")
def schedule_was_deleted(sender: object, instance: Schedule, **kwargs: Any) -> None:
    """Delete the beat row of a deleted schedule."""
    # Imported here: every process loads this module, but few processes delete schedules.
    from apps.jobs.services.wakeups import forget_wake_up

    task_id = instance.periodic_task_id
    if task_id is not None:
        transaction.on_commit(lambda: forget_wake_up(task_id), robust=True)


@receiver(run_ended, dispatch_uid="jobs.follow_up")
def run_has_ended(sender: object, run: Run, now: datetime, **kwargs: Any) -> None:
    """Queue the retry of a run, or the runs of the jobs that follow it."""
    follow_up(run, now=now)


@receiver(project_deleted, dispatch_uid="jobs.project_deleted")
def project_was_deleted(sender: object, project: Project, now: datetime, **kwargs: Any) -> None:
    """Stop the schedules of a deleted project. Raises ``ProjectInUse`` if a run is active."""
    from apps.jobs.services.deletion import stop_project_schedules

    stop_project_schedules(project, now)


@receiver(project_restored, dispatch_uid="jobs.project_restored")
def project_was_restored(sender: object, project: Project, now: datetime, **kwargs: Any) -> None:
    """Resume the schedules of a restored project."""
    from apps.jobs.services.deletion import resume_project_schedules

    resume_project_schedules(project, now)
