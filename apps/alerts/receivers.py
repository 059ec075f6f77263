"""What goes with a project that is deleted, whoever deletes it."""

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
    """Nobody is told of it any more; what was found in it comes back with it."""
    from apps.alerts.services.housekeeping import let_go_of_project

    let_go_of_project(project=project, now=now)


@receiver(pre_delete, sender=Project, dispatch_uid="alerts.let_go_of_project")
def project_is_deleted(sender: object, instance: Project, **kwargs: Any) -> None:
    """What was found in it stays readable: incidents keep its name."""
    # Every process has this receiver, and few delete projects.
    from apps.alerts.services.housekeeping import let_go_of_project

    let_go_of_project(project=instance, now=timezone.now())
