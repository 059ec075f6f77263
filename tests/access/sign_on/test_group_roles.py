"""What groups of an identity provider give."""

from __future__ import annotations

from typing import Any

import pytest

from apps.access.checks import check_group_roles
from apps.access.services.sign_on.group_roles import Grants, GroupRoles
from apps.access.states import Role

TEXT = (
    '{"root": "superuser", "audit": ["auditor"], "a": ["viewer:x", "admin:y"], "b": ["editor:x"]}'
)


def test_the_highest_role_of_all_groups_counts() -> None:
    mapping = GroupRoles.parse(TEXT)
    assert mapping.of(["a", "b", "c"]) == Grants(roles={"x": Role.EDITOR, "y": Role.ADMIN})
    assert mapping.of(["root", "audit"]) == Grants(is_superuser=True)
    assert mapping.of(["audit"]).is_auditor
    assert mapping.projects == {"x", "y"}
    assert mapping.decides("superuser")
    assert not GroupRoles.parse("").decides("auditor")
    assert GroupRoles.parse('{"*": "viewer:x"}').of([]).roles == {"x": Role.VIEWER}


@pytest.mark.parametrize("text", ["[]", "{", '{"a": "king:x"}', '{"a": "viewer"}', '{"a": [7]}'])
def test_a_wrong_mapping_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"\S"):
        GroupRoles.parse(text)


def test_a_wrong_mapping_is_told_before_anybody_signs_in(settings: Any) -> None:
    assert check_group_roles() == []
    settings.SSO_ROLES = '{"a": "king:x"}'
    (error,) = check_group_roles()
    assert error.id == "access.E002"
