"""Roles that groups of an identity provider give."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from apps.access.states import Role

SUPERUSER = "superuser"
AUDITOR = "auditor"


@dataclass(frozen=True, slots=True)
class Grants:
    """What the groups of one person give: flags, and roles by the slug of the project."""

    is_superuser: bool = False
    is_auditor: bool = False
    roles: Mapping[str, Role] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GroupRoles:
    """Mapping of groups, as ``SSO_ROLES``: ``{"admins": ["superuser"], "news": ["editor:shop"]}``.

    The group ``*`` stands for everybody who signs in.
    """

    entries: Mapping[str, tuple[str, ...]]

    @classmethod
    def parse(cls, text: str) -> GroupRoles:
        """Read the mapping from JSON. Raises ``ValueError`` with what is wrong."""
        data = json.loads(text or "{}")
        if not isinstance(data, dict):
            raise ValueError("a JSON object of groups is expected")
        entries: dict[str, tuple[str, ...]] = {}
        for group, given in data.items():
            grants = [given] if isinstance(given, str) else given
            if not isinstance(grants, list) or not all(_is_known(each) for each in grants):
                raise ValueError(
                    f"{group!r}: use superuser, auditor, or a role and a project: viewer:shop"
                )
            entries[group] = tuple(grants)
        return cls(entries)

    def of(self, groups: Iterable[str]) -> Grants:
        """Return what these groups give; of several roles in a project the highest."""
        held = [grant for group in {"*", *groups} for grant in self.entries.get(group, ())]
        roles: dict[str, Role] = {}
        order = list(Role)
        for grant in held:
            name, _sign, slug = grant.partition(":")
            if slug:
                role = Role(name)
                best = roles.get(slug)
                roles[slug] = role if best is None else max(best, role, key=order.index)
        is_superuser = SUPERUSER in held
        return Grants(is_superuser, AUDITOR in held and not is_superuser, roles)

    @property
    def projects(self) -> frozenset[str]:
        """Return the slugs of the projects whose roles the groups decide."""
        grants = (grant for given in self.entries.values() for grant in given)
        return frozenset(slug for grant in grants if (slug := grant.partition(":")[2]))

    def decides(self, flag: str) -> bool:
        """Return whether groups decide who is superuser, or auditor."""
        return any(flag in given for given in self.entries.values())


def _is_known(grant: object) -> bool:
    if not isinstance(grant, str):
        return False
    name, sign, slug = grant.partition(":")
    return grant in (SUPERUSER, AUDITOR) or bool(sign and slug and name in Role.values)
