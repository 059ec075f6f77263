"""Current user of a page, and their permissions."""

from __future__ import annotations

from typing import cast

from django.http import HttpRequest

from apps.access.models import User
from apps.access.services.roles import AllProjects, projects_by_role, role_to_read
from apps.access.states import Role

_ROLES = "_projects_by_role"


def person_of(request: HttpRequest) -> User | None:
    """Return the logged-in user, None for anonymous requests."""
    return request.user if isinstance(request.user, User) else None


def projects_of(request: HttpRequest, role: Role) -> frozenset[int] | AllProjects:
    """Return ``project_ids`` of the user, cached for the request."""
    known = getattr(request, _ROLES, None)
    if known is None:
        known = projects_by_role(request.user)
        setattr(request, _ROLES, known)
    return cast("frozenset[int] | AllProjects", known[role])


def may_read_trail(request: HttpRequest) -> bool:
    """Whether pages link to the audit trail for this user; also used by the admin theme."""
    person = person_of(request)
    if person is None or not person.is_active or not person.is_staff:
        return False
    return bool(projects_of(request, role_to_read(person, Role.ADMIN)))
