"""Projects with bizzes, for tests of the request store."""

from __future__ import annotations

from typing import Any

from django.utils import timezone

from apps.configcenter.services import activate, save_version
from apps.projects.models import Project
from apps.requeststore.engine.entity import Entity
from apps.requeststore.services.kind import KIND
from tests.access.factories import make_project


def save_bizzes(project: Project, **bizzes: dict[str, Any]) -> int:
    """Save and activate a version with exactly these; its number."""
    saved = save_version(
        kind=KIND,
        project_id=project.pk,
        data={"bizzes": bizzes},
        actor=None,
        now=timezone.now(),
    )
    activate(version=saved.version, actor=None, now=timezone.now())
    return saved.version.number


def make_bizzes(**bizzes: dict[str, Any]) -> Project:
    """A project with these bizzes, active."""
    project = make_project(slug="crawls")
    save_bizzes(project, **bizzes)
    return project


def pages(number: int, **fields: Any) -> list[Entity]:
    """Requests for pages with different addresses."""
    return [Entity(url=f"https://example.com/{each}", **fields) for each in range(number)]
