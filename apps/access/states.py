"""Roles and scopes of API tokens. Pure values, no database."""

from __future__ import annotations

import re
from collections.abc import Iterable

from django.db.models import TextChoices
from django.utils.translation import gettext_lazy as _


class Role(TextChoices):
    """Role in one project; each role includes the permissions of those before it."""

    VIEWER = "viewer", _("Viewer")
    """Reads everything of the project except secrets."""
    OPERATOR = "operator", _("Operator")
    """Starts, pauses, stops what is configured."""
    EDITOR = "editor", _("Editor")
    """Changes the configuration: jobs, rules, sources."""
    ADMIN = "admin", _("Admin")
    """Manages the project itself and its members."""

    @property
    def rank(self) -> int:
        """Return the position in the order, 0 for the lowest."""
        return list(Role).index(self)

    def covers(self, other: Role) -> bool:
        """Return whether this role includes ``other``."""
        return self.rank >= other.rank

    @classmethod
    def at_least(cls, role: Role) -> list[Role]:
        """Return the roles that include ``role``, lowest first."""
        return [member for member in cls if member.covers(role)]


class Access(TextChoices):
    """Second part of a token scope."""

    READ = "read", _("Read")
    WRITE = "write", _("Write")


# "*:read", "jobs:write": an area (app label, or * for all) and the access.
SCOPE_PATTERN = re.compile(r"(?P<area>\*|[a-z][a-z0-9_]{0,39}):(?P<access>read|write)")
MAX_SCOPES = 64


def scopes_allow(scopes: Iterable[str], *, area: str, access: Access) -> bool:
    """Return whether one of ``scopes`` permits ``access`` in ``area``; write includes read."""
    accepted = {f"{area}:write", "*:write"}
    if access == Access.READ:
        accepted |= {f"{area}:read", "*:read"}
    return any(scope in accepted for scope in scopes)


def scopes_within(inner: Iterable[str], outer: Iterable[str]) -> bool:
    """Return whether ``outer`` permits every scope of ``inner``."""
    allowed = set(outer)
    for scope in inner:
        area, _separator, access = scope.partition(":")
        if area == "*":
            if scope not in allowed and not (access == "read" and "*:write" in allowed):
                return False
        elif not scopes_allow(allowed, area=area, access=Access(access)):
            return False
    return True
