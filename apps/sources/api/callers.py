"""Project of a call to one of the seed-compatible paths."""

from __future__ import annotations

from dataclasses import dataclass

from django.http import Http404
from rest_framework.request import Request

from apps.access.api.network import Guest
from apps.access.errors import RoleRequired
from apps.access.services import has_role_somewhere
from apps.access.states import Role
from apps.configcenter.models import Configuration
from apps.projects.models import Project
from apps.sources.errors import NoSources, SourceProjectNeeded
from apps.sources.queries import KIND


@dataclass(frozen=True, slots=True)
class SourceProject:
    """A project with active sources."""

    project: int
    slug: str


def sourced_project(request: Request, role: Role, slug: str | None) -> SourceProject:
    """Return the project in the path, else the only project with active sources where the caller
    has ``role``.

    Raises Http404 if the caller sees no project of this name; RoleRequired, NoSources,
    SourceProjectNeeded.
    """
    everybody = isinstance(request.user, Guest)
    rows = Configuration.objects.filter(kind=KIND, active__isnull=False)
    if slug is not None:
        rows = rows.filter(project__slug=slug)
    mine = rows if everybody else rows.visible_to(request.user, role)
    projects = list(mine.values_list("project_id", "project__slug")[:2])
    if len(projects) > 1:
        raise SourceProjectNeeded
    if projects:
        return SourceProject(*projects[0])
    # Explain the refusal without revealing projects that the caller cannot see.
    if slug is not None:
        named = Project.objects.filter(slug=slug)
        visible = named if everybody else named.visible_to(request.user)
        if not visible.exists():
            raise Http404
        if not everybody and not named.visible_to(request.user, role).exists():
            raise RoleRequired
    elif not everybody and not has_role_somewhere(request.user, role):
        raise RoleRequired
    raise NoSources
