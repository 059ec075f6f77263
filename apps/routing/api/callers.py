"""Authorization and choice of the project for the paths of the seed taskHUB."""

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
from apps.routing.engine.track import InvalidRules, Track
from apps.routing.errors import NoActiveRules, ProjectNeeded, RulesBroken
from apps.routing.queries import track_of
from apps.routing.queries.tracks import KIND


@dataclass(frozen=True, slots=True)
class ProjectRules:
    """Project with its active rules."""

    project: int
    slug: str
    track: Track


def ruled_project(request: Request, role: Role, slug: str | None = None) -> ProjectRules:
    """Return the project of a request to one of the seed's paths, with its active rules.

    The project is the one named by ``slug``, else the one of the token, else the only project with
    active rules in which the caller has ``role``.

    Raises:
        Http404: no project visible to the caller has this slug.
        RoleRequired: the caller does not have ``role``.
        NoActiveRules: no project in question has active rules.
        ProjectNeeded: more than one project is possible.
        RulesBroken: the active rules cannot be compiled.
    """
    rows = Configuration.objects.filter(kind=KIND, active__isnull=False)
    if slug is not None:
        rows = rows.filter(project__slug=slug)
    if not isinstance(request.user, Guest):
        rows = rows.visible_to(request.user, role)
    projects = list(rows.values_list("project_id", "project__slug", "active_id")[:2])
    if len(projects) > 1:
        raise ProjectNeeded
    if not projects:
        raise _why_none(request, role, slug)
    project, name, version = projects[0]
    return ProjectRules(project, name, _track(version))


def track_of_configuration(configuration: Configuration) -> Track:
    """Return the active rules of a project. Raises ``NoActiveRules`` and ``RulesBroken``."""
    if configuration.active_id is None:
        raise NoActiveRules
    return _track(configuration.active_id)


def _track(version: int) -> Track:
    try:
        return track_of(version)
    except InvalidRules as error:
        raise RulesBroken(
            fields={"rules": [str(problem) for problem in error.problems[:5]]}
        ) from error


def _why_none(request: Request, role: Role, slug: str | None) -> Exception:
    """Return the error for a request without a project; it reveals no invisible project."""
    named = Project.objects.filter(slug=slug)
    if isinstance(request.user, Guest):
        return NoActiveRules() if slug is None or named.exists() else Http404()
    if slug is None:
        return NoActiveRules() if has_role_somewhere(request.user, role) else RoleRequired()
    if not named.visible_to(request.user).exists():
        return Http404()
    return NoActiveRules() if named.visible_to(request.user, role).exists() else RoleRequired()
