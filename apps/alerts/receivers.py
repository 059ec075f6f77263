"""Signal receivers for the deletion of projects."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.db.models.signals import pre_delete
from django.dispatch import receiver
from django.utils import timezone

from apps.projects.events import project_deleted
from apps.projects.models import Project


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
