"""Services of projects and their webhook secrets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db import transaction
from django.db.models import Model
from django.utils.translation import gettext_lazy as _

from apps.access.errors import RoleRequired
from apps.access.models import User
from apps.access.services import changes, record, snapshot
from apps.projects.engine.signatures import new_secret
from apps.projects.errors import DefaultProjectStays
from apps.projects.models import DEFAULT_SLUG, Project


def default_project() -> Project:
    """Return the default project, used if no project is chosen; created if missing."""
    project, _created = Project.objects.get_or_create(
        slug=DEFAULT_SLUG, defaults={"name": "Default"}
    )
    return project


@transaction.atomic
def create_project(*, actor: User | None, values: Mapping[str, Any]) -> Project:
    """Create a project from validated ``values``, with a webhook secret."""
    project = Project.objects.create(**{"webhook_secret": new_secret(), **values})
    record(actor=actor, action="projects.add_project", obj=project, after=snapshot(project))
    return project


@transaction.atomic
def change_project(*, actor: User | None, project: Project, values: Mapping[str, Any]) -> Project:
    """Change the given validated fields of a project; without differences nothing is written.

    Raises ``RoleRequired`` if a user other than a superuser changes the allowed networks, which
    open internal hosts and the installation's own stores to downloads.
    """
    networks = values.get("allowed_networks", project.allowed_networks)
    if actor is not None and not actor.rules_everything and networks != project.allowed_networks:
        text = _("Only superusers may change the allowed networks.")
        raise RoleRequired(fields={"allowed_networks": [text]})
    before = snapshot(project)
    for name, value in values.items():
        setattr(project, name, value)
    old, new = changes(before, snapshot(project))
    if old or new:
        project.save(update_fields=[*values, "updated_at"])
        record(actor=actor, action="projects.change_project", obj=project, before=old, after=new)
    return project


@transaction.atomic
def ensure_webhook_secret(*, project: Project, actor: User | None) -> str:
    """Return the project's webhook secret, created if missing."""
    locked = Project.objects.select_for_update().get(pk=project.pk)
    if not locked.has_secret("webhook_secret"):
        locked.webhook_secret = new_secret()
        locked.save(update_fields=["webhook_secret", "updated_at"])
        record(actor=actor, action="projects.make_webhook_secret", obj=locked)
    project.webhook_secret = locked.webhook_secret
    return str(locked.webhook_secret)


@transaction.atomic
def reveal_webhook_secret(*, project: Project, actor: User | None) -> str:
    """Return the webhook secret and record that it was shown."""
    secret = ensure_webhook_secret(project=project, actor=actor)
    record(actor=actor, action="projects.reveal_webhook_secret", obj=project)
    return secret


@transaction.atomic
def rotate_webhook_secret(*, project: Project, actor: User | None) -> str:
    """Replace the webhook secret; deliveries signed with the old secret are refused at once."""
    locked = Project.objects.select_for_update().get(pk=project.pk)
    secret = new_secret()
    locked.webhook_secret = secret
    locked.save(update_fields=["webhook_secret", "updated_at"])
    record(actor=actor, action="projects.rotate_webhook_secret", obj=locked)
    project.webhook_secret = secret
    return secret


def refuse_default(project: Model) -> None:
    """Raise ``DefaultProjectStays`` for the default project."""
    if isinstance(project, Project) and project.slug == DEFAULT_SLUG:
        raise DefaultProjectStays
