"""Every write of projects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db import transaction
from django.db.models import Model, ProtectedError

from apps.access.models import User
from apps.access.services import changes, record, snapshot
from apps.projects.errors import DefaultProjectStays, ProjectInUse
from apps.projects.models import DEFAULT_SLUG, Project


def default_project() -> Project:
    """The project of everything that names none; made again should it be missing."""
    project, _created = Project.objects.get_or_create(
        slug=DEFAULT_SLUG, defaults={"name": "Default"}
    )
    return project


@transaction.atomic
def create_project(*, actor: User | None, values: Mapping[str, Any]) -> Project:
    """Make a project from validated ``values`` (name, slug, description, allowed_networks)."""
    project = Project.objects.create(**values)
    record(actor=actor, action="projects.add_project", obj=project, after=snapshot(project))
    return project


@transaction.atomic
def change_project(*, actor: User | None, project: Project, values: Mapping[str, Any]) -> Project:
    """Change the given validated fields; nothing is written when nothing differs."""
    before = snapshot(project)
    for name, value in values.items():
        setattr(project, name, value)
    old, new = changes(before, snapshot(project))
    if old or new:
        project.save(update_fields=[*values, "updated_at"])
        record(actor=actor, action="projects.change_project", obj=project, before=old, after=new)
    return project


@transaction.atomic
def delete_project(*, actor: User | None, project: Project) -> None:
    """Delete an empty project.

    Raises ``DefaultProjectStays``, or ``ProjectInUse`` when something still belongs to it.
    """
    refuse_default(project)
    record(actor=actor, action="projects.delete_project", obj=project, before=snapshot(project))
    try:
        project.delete()
    except ProtectedError as error:
        raise ProjectInUse from error


def refuse_default(project: Model) -> None:
    """Raise ``DefaultProjectStays`` for the default project."""
    if isinstance(project, Project) and project.slug == DEFAULT_SLUG:
        raise DefaultProjectStays
