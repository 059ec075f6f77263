"""Who sees which rows, and who has which role."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import AnonymousUser

from apps.access.errors import RoleRequired
from apps.access.models import AuditRecord, Membership
from apps.access.services import (
    ALL,
    has_role,
    has_role_somewhere,
    project_id_of,
    project_ids,
    record,
    require_role,
    set_role,
)
from apps.access.states import Role
from apps.projects.models import Project
from tests.access.factories import make_project, make_superuser, make_token, make_user

pytestmark = pytest.mark.django_db


@pytest.fixture
def mine() -> Project:
    return make_project(name="Mine")


@pytest.fixture
def other() -> Project:
    return make_project(name="Other")


def seen_by(user: Any, role: Role = Role.VIEWER) -> set[str]:
    return set(Project.objects.visible_to(user, role).values_list("name", flat=True))


def test_members_see_their_projects(mine: Project, other: Project) -> None:
    user = make_user(roles={mine: Role.VIEWER})
    assert seen_by(user) == {"Mine"}
    assert seen_by(user, Role.OPERATOR) == set()
    assert project_ids(user) == {mine.pk}
    assert project_ids(user, at_least=Role.EDITOR) == frozenset()


def test_superusers_see_all(mine: Project, other: Project) -> None:
    user = make_superuser()
    assert seen_by(user, Role.ADMIN) == {"Default", "Mine", "Other"}
    assert project_ids(user, at_least=Role.ADMIN) is ALL
    assert 12345 in project_ids(user)


def test_strangers_and_the_inactive_see_nothing(mine: Project) -> None:
    gone = make_user(roles={mine: Role.ADMIN}, is_active=False)
    gone_admin = make_superuser(is_active=False)
    for user in (AnonymousUser(), None, gone, gone_admin):
        assert seen_by(user) == set()
        assert project_ids(user) == frozenset()
        assert not has_role(user, mine.pk, Role.VIEWER)
        assert not has_role_somewhere(user, Role.VIEWER)


def test_a_role_taken_away_counts_at_once(mine: Project) -> None:
    user = make_user(roles={mine: Role.EDITOR})
    assert seen_by(user) == {"Mine"}
    set_role(actor=None, user=user, project=mine, role=None)
    assert seen_by(user) == set()


def test_visibility_costs_no_query_of_its_own(
    mine: Project, django_assert_num_queries: Any
) -> None:
    user = make_user(roles={mine: Role.VIEWER})
    with django_assert_num_queries(1):
        assert seen_by(user) == {"Mine"}
    with django_assert_num_queries(1):
        project_ids(user)


@pytest.mark.parametrize("held", list(Role))
@pytest.mark.parametrize("asked", list(Role))
def test_has_role(mine: Project, other: Project, held: Role, asked: Role) -> None:
    user = make_user(roles={mine: held})
    assert has_role(user, mine.pk, asked) is held.covers(asked)
    assert has_role_somewhere(user, asked) is held.covers(asked)
    assert not has_role(user, other.pk, asked)
    assert not has_role(user, None, asked)


def test_require_role(mine: Project) -> None:
    user = make_user(roles={mine: Role.VIEWER})
    require_role(user, mine.pk, Role.VIEWER)
    with pytest.raises(RoleRequired):
        require_role(user, mine.pk, Role.OPERATOR)


def test_a_token_narrows_its_user(mine: Project, other: Project) -> None:
    for user in (make_user(roles={mine: Role.ADMIN, other: Role.ADMIN}), make_superuser()):
        user.acting_token = make_token(user, project=mine).token
        assert seen_by(user) == {"Mine"}
        assert project_ids(user) == {mine.pk}
        assert has_role(user, mine.pk, Role.ADMIN)
        assert not has_role(user, other.pk, Role.VIEWER)
        assert not has_role(user, None, Role.VIEWER)
        assert not user.sees_everything


def test_a_token_adds_nothing_to_its_user(mine: Project, other: Project) -> None:
    user = make_user(roles={mine: Role.VIEWER})
    user.acting_token = make_token(user, project=other).token
    assert seen_by(user) == set()
    assert project_ids(user) == frozenset()
    assert not has_role(user, other.pk, Role.VIEWER)


def test_rows_without_a_project_are_for_superusers(mine: Project) -> None:
    admin = make_superuser()
    AuditRecord.objects.visible_to(admin)
    about_user = record(actor=admin, action="access.test", obj=admin)
    about_mine = record(actor=admin, action="access.test", obj=mine)
    member = make_user(roles={mine: Role.ADMIN})
    rows = AuditRecord.objects.filter(action="access.test")
    assert set(rows.visible_to(member)) == {about_mine}
    assert set(rows.visible_to(admin)) == {about_mine, about_user}


def test_project_of_an_object(mine: Project, django_assert_num_queries: Any) -> None:
    user = make_user(roles={mine: Role.VIEWER})
    membership = Membership.objects.get(user=user)
    with django_assert_num_queries(0):
        assert project_id_of(membership) == mine.pk
        assert project_id_of(mine) == mine.pk
        assert project_id_of(user) is None
