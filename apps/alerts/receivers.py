"""Signal receivers for ends of runs and the deletion of projects."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.db.models.signals import pre_delete
from django.dispatch import receiver
from django.utils import timezone

from apps.jobs.events import run_ended
from apps.jobs.models import Run
from apps.projects.events import project_deleted
from apps.projects.models import Project


@receiver(run_ended, dispatch_uid="alerts.run_ended")
def run_has_ended(sender: object, run: Run, now: datetime, **kwargs: Any) -> None:
    """Create the notifications of subscribers, in the transaction that ends the run."""
    from apps.alerts.services.subscriptions import notify_run_end

    notify_run_end(run=run, now=now)


@receiver(project_deleted, dispatch_uid="alerts.project_deleted")
def project_was_deleted(sender: object, project: Project, now: datetime, **kwargs: Any) -> None:
    """Stop notifications about a soft-deleted project; restoring it shows its incidents again."""
    from apps.alerts.services.retention import detach_project

    detach_project(project=project, now=now)


@receiver(pre_delete, sender=Project, dispatch_uid="alerts.let_go_of_project")
def project_is_deleted(sender: object, instance: Project, **kwargs: Any) -> None:
    """Keep the incidents of a project that is about to be purged, with its name as text."""
    # Imported here because every process registers this receiver, and few delete projects.
    from apps.alerts.services.retention import detach_project

    detach_project(project=instance, now=timezone.now())
