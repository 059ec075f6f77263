"""Roles and scopes."""

from __future__ import annotations

import pytest

from apps.access.states import Access, Role, scopes_allow, scopes_within


def test_each_role_covers_those_before_it() -> None:
    roles = [Role.VIEWER, Role.OPERATOR, Role.EDITOR, Role.ADMIN]
    for index, role in enumerate(roles):
        assert [each for each in roles if role.covers(each)] == roles[: index + 1]
        assert Role.at_least(role) == roles[index:]


@pytest.mark.parametrize(
    ("scopes", "area", "access", "allowed"),
    [
        (["jobs:read"], "jobs", Access.READ, True),
        (["jobs:read"], "jobs", Access.WRITE, False),
        (["jobs:write"], "jobs", Access.READ, True),
        (["jobs:write"], "agents", Access.READ, False),
        (["*:read"], "agents", Access.READ, True),
        (["*:read"], "agents", Access.WRITE, False),
        (["*:write"], "agents", Access.WRITE, True),
        ([], "jobs", Access.READ, False),
        (["jobs:read"], "", Access.READ, False),
    ],
)
def test_scopes(scopes: list[str], area: str, access: Access, allowed: bool) -> None:
    assert scopes_allow(scopes, area=area, access=access) is allowed


@pytest.mark.parametrize(
    ("inner", "outer", "within"),
    [
        (["jobs:read"], ["jobs:write"], True),
        (["jobs:write"], ["jobs:read"], False),
        (["jobs:read"], ["*:read"], True),
        (["*:read"], ["*:write"], True),
        (["*:read"], ["jobs:write"], False),
        (["*:write"], ["*:read"], False),
        (["*:write"], ["*:write"], True),
        (["jobs:read", "agents:read"], ["jobs:read"], False),
    ],
)
def test_narrower_scopes(inner: list[str], outer: list[str], within: bool) -> None:
    assert scopes_within(inner, outer) is within
