"""Deletion of projects: a deleted project is hidden, can be restored for a time, then purged."""

from __future__ import annotations

import logging
from collections import Counter
from datetime import datetime, timedelta

from django.conf import settings
from django.db import IntegrityError, transaction
from django.db.models import ProtectedError
from django.utils import timezone

from apps.access.errors import NotDeleted
from apps.access.models import User
from apps.access.services import record, snapshot
from apps.configcenter.services import notify_watchers
from apps.projects.errors import ProjectInUse, ProjectNameTaken
from apps.projects.events import project_deleted, project_restored
from apps.projects.models import Build, Delivery, Image, Project
from apps.projects.services.projects import refuse_default

logger = logging.getLogger(__name__)


@transaction.atomic
def delete_project(*, actor: User | None, project: Project, now: datetime | None = None) -> None:
    """Delete a project: hide it with all its contents, and stop its schedules.

    The project can be restored for ``DELETED_DAYS``. Raises ``DefaultProjectStays``, and
    ``ProjectInUse`` while a build or a run is active.
    """
    refuse_default(project)
    at = now or timezone.now()
    if Build.objects.active().filter(project=project).exists():
        raise ProjectInUse
    by = actor.get_username() if actor is not None else ""
    if not Project.objects.filter(pk=project.pk).update(deleted_at=at, deleted_by=by):
        return
    before = snapshot(project)
    project.deleted_at, project.deleted_by = at, by
    project_deleted.send(sender=Project, project=project, now=at)
    notify_watchers()
    record(actor=actor, action="projects.delete_project", obj=project, before=before)


@transaction.atomic
def restore_project(*, actor: User | None, project: Project, now: datetime | None = None) -> None:
    """Restore a deleted project with all its contents, and resume its schedules and rules.

    Raises ``NotDeleted``, and ``ProjectNameTaken`` if another project has its name or slug.
    """
    at = now or timezone.now()
    try:
        with transaction.atomic():
            deleted = Project.all_objects.filter(pk=project.pk, deleted_at__isnull=False)
            before = deleted.values("deleted_at", "deleted_by").first()
            restored = deleted.update(deleted_at=None, deleted_by="")
    except IntegrityError as error:
        raise ProjectNameTaken from error
    if not restored:
        raise NotDeleted
    row = Project.objects.get(pk=project.pk)
    project_restored.send(sender=Project, project=row, now=at)
    notify_watchers()
    after = {"deleted_at": None, "deleted_by": ""}
    record(actor=actor, action="projects.restore_project", obj=row, before=before, after=after)


def purge_projects(*, now: datetime) -> int:
    """Purge projects that were deleted more than ``DELETED_DAYS`` ago; return their number.

    A project that rows of other apps still refer to stays hidden, and is logged with these rows:
    collected data is not deleted implicitly.
    """
    old = Project.all_objects.filter(deleted_at__lt=now - timedelta(days=settings.DELETED_DAYS))
    purged = 0
    for project in old.order_by("pk"):
        try:
            _purge(project)
        except ProtectedError as error:
            held = Counter(type(row)._meta.label for row in error.protected_objects)
            held_text = ", ".join(f"{count} {label}" for label, count in sorted(held.items()))
            logger.warning("deleted project %s is kept: it still has %s", project.slug, held_text)
        except IntegrityError:
            logger.warning("deleted project %s is kept: it still has rows", project.slug)
        else:
            purged += 1
    return purged


@transaction.atomic
def _purge(project: Project) -> None:
    Delivery.objects.filter(project=project).delete()
    Image.objects.filter(project=project).delete()
    Build.objects.filter(project=project).delete()
    record(actor=None, action="projects.purge_project", obj=project, before={"slug": project.slug})
    project.delete()
