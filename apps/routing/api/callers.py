"""Who may call the seed's own paths, and which project they mean."""

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
from apps.routing.engine.track import BadRules, Track
from apps.routing.errors import NoActiveRules, ProjectNeeded, RulesBroken
from apps.routing.queries import track_of
from apps.routing.queries.tracks import KIND


@dataclass(frozen=True, slots=True)
class Ruled:
    """A project and what is active there."""

    project: int
    slug: str
    track: Track


def ruled_project(request: Request, role: Role, slug: str | None = None) -> Ruled:
    """The project of a call to one of the seed's paths, with its active rules.

    The one that the path names, else that of the token, else the only one with active rules among
    those where the caller has ``role``.

    Raises:
        Http404: no project that the caller sees has this name.
        RoleRequired, NoActiveRules, ProjectNeeded, RulesBroken
    """
    rows = Configuration.objects.filter(kind=KIND, active__isnull=False)
    if slug is not None:
        rows = rows.filter(project__slug=slug)
    if not isinstance(request.user, Guest):
        rows = rows.visible_to(request.user, role)
    found = list(rows.values_list("project_id", "project__slug", "active_id")[:2])
    if len(found) > 1:
        raise ProjectNeeded
    if not found:
        raise _why_none(request, role, slug)
    project, name, version = found[0]
    return Ruled(project, name, _track(version))


def track_of_configuration(configuration: Configuration) -> Track:
    """What is active there. Raises ``NoActiveRules`` and ``RulesBroken``."""
    if configuration.active_id is None:
        raise NoActiveRules
    return _track(configuration.active_id)


def _track(version: int) -> Track:
    try:
        return track_of(version)
    except BadRules as error:
        raise RulesBroken(fields={"rules": [str(each) for each in error.problems[:5]]}) from error


def _why_none(request: Request, role: Role, slug: str | None) -> Exception:
    """The reason, without a word about projects that the caller does not see."""
    named = Project.objects.filter(slug=slug)
    if isinstance(request.user, Guest):
        return NoActiveRules() if slug is None or named.exists() else Http404()
    if slug is None:
        return NoActiveRules() if has_role_somewhere(request.user, role) else RoleRequired()
    if not named.visible_to(request.user).exists():
        return Http404()
    return NoActiveRules() if named.visible_to(request.user, role).exists() else RoleRequired()
