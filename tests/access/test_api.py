"""REST of people, tokens, memberships, the audit trail; ETags."""

from __future__ import annotations

from typing import Any

import pytest

from apps.access.models import ApiToken, AuditRecord, Membership
from apps.access.services import record, set_role
from apps.access.states import Role
from apps.projects.models import Project
from tests.access.factories import (
    Api,
    make_auditor,
    make_project,
    make_superuser,
    make_token,
    make_user,
)

pytestmark = pytest.mark.django_db


@pytest.fixture
def project() -> Project:
    return make_project()


def test_me(project: Project) -> None:
    user = make_user(roles={project: Role.EDITOR})
    body = Api(user, scopes=("*:read",)).get("me").json()
    assert body["username"] == user.username
    assert body["roles"] == [{"project": project.pk, "role": "editor"}]
    assert body["is_superuser"] is False
    assert body["token"]["scopes"] == ["*:read"]
    assert "digest" not in body["token"]
    assert Api(make_superuser()).get("me").json()["is_superuser"] is True


# --- tokens ----------------------------------------------------------------------------------


def test_make_use_and_revoke_a_token(project: Project) -> None:
    user = make_user(roles={project: Role.VIEWER})
    api = Api(user)
    body = {"name": "ci", "scopes": ["projects:read"], "project": project.pk}
    response = api.post("tokens", body)
    assert response.status_code == 201, response.content
    assert response["Cache-Control"] == "no-store"
    made = response.json()
    ci = Api()
    ci.headers = {"Authorization": f"Bearer {made['secret']}"}
    assert ci.get("projects").status_code == 200
    assert "secret" not in api.get(f"tokens/{made['id']}").json()
    assert api.post(f"tokens/{made['id']}/revoke").status_code == 200
    assert ci.get("projects").json()["code"] == "token_revoked"
    again = api.post(f"tokens/{made['id']}/revoke")
    assert (again.status_code, again.json()["code"]) == (409, "token_revoked")


@pytest.mark.parametrize(
    ("changed", "status", "field"),
    [
        ({"scopes": []}, 400, "scopes"),
        ({"scopes": ["nothing:read"]}, 422, "scopes"),
        ({"scopes": "jobs:read"}, 400, "scopes"),
        ({"scopes": [1, {}]}, 400, "scopes.1"),
        ({"expires_at": "2001-01-01T00:00:00Z"}, 400, "expires_at"),
        ({"expires_at": "soon"}, 400, "expires_at"),
        ({"name": ""}, 400, "name"),
        ({"name": "x" * 101}, 400, "name"),
        ({"project": 999_999}, 400, "project"),
        ({"project": "x"}, 400, "project"),
    ],
)
def test_bad_tokens_are_refused(changed: dict[str, Any], status: int, field: str) -> None:
    body = {"name": "ci", "scopes": ["jobs:read"]} | changed
    response = Api(make_user()).post("tokens", body)
    assert response.status_code == status, response.content
    assert field in response.json()["fields"]
    assert not ApiToken.objects.filter(name="ci").exists()


def test_a_token_of_one_project_manages_no_others(project: Project) -> None:
    user = make_user(roles={project: Role.ADMIN})
    everywhere = make_token(user).token
    api = Api(user, project=project)
    assert api.get(f"tokens/{everywhere.pk}").status_code == 404
    wider = api.post("tokens", {"name": "ci", "scopes": ["jobs:read"]})
    assert (wider.status_code, wider.json()["code"]) == (403, "scope_too_wide")


# --- memberships -----------------------------------------------------------------------------


def test_members_are_managed_by_project_admins(project: Project) -> None:
    admin, friend = make_user(roles={project: Role.ADMIN}), make_user()
    api = Api(admin)
    body = {"user": friend.username, "project": project.pk, "role": "operator"}
    made = api.post("memberships", body)
    assert made.status_code == 201, made.content
    member = made.json()
    assert member == body | {"id": member["id"]}
    changed = api.patch(f"memberships/{member['id']}", {"role": "editor"})
    assert changed.json()["role"] == "editor"
    # Neither person nor project can be changed: that would be another membership.
    other = make_project()
    api.patch(f"memberships/{member['id']}", {"project": other.pk, "user": admin.username})
    assert Membership.objects.get(pk=member["id"]).project == project
    assert [each["user"] for each in api.get("memberships?role=editor").json()["results"]] == [
        friend.username
    ]
    assert api.delete(f"memberships/{member['id']}").status_code == 204
    assert not Membership.objects.filter(user=friend).exists()
    actions = list(
        AuditRecord.objects.filter(object_type="access.membership")
        .order_by("id")
        .values_list("action", flat=True)
    )
    assert actions == ["access.set_role", "access.set_role", "access.remove_member"]


def test_nobody_gives_a_role_that_they_do_not_have(project: Project) -> None:
    admin, friend = make_user(roles={project: Role.ADMIN}), make_user()
    elsewhere = make_project()
    body = {"user": friend.username, "project": project.pk, "role": "admin"}
    api = Api(admin, scopes=("access:write",), project=project)
    made = api.post("memberships", body)
    assert made.status_code == 201, made.content
    member = f"memberships/{made.json()['id']}"
    assert api.call("put", member, body | {"role": "operator"}).json()["role"] == "operator"
    entry = AuditRecord.objects.filter(action="access.set_role").latest("id")
    assert (entry.before["role"], entry.after["role"]) == ("admin", "operator")
    assert (entry.actor, entry.token, entry.project_id) == (admin, api.token, project.pk)
    assert api.delete(member).status_code == 204

    Membership.objects.create(user=admin, project=elsewhere, role=Role.EDITOR)
    own = Membership.objects.get(user=admin, project=elsewhere)
    # Of another project the token sees nothing, and its person cannot even raise themselves.
    assert api.patch(f"memberships/{own.pk}", {"role": "admin"}).status_code == 404
    wide = Api(admin, scopes=("access:write",))
    lacking = [
        wide.patch(f"memberships/{own.pk}", {"role": "admin"}),
        wide.delete(f"memberships/{own.pk}"),
        wide.post("memberships", body | {"project": elsewhere.pk, "role": "viewer"}),
    ]
    # Nor who has no role that high, nor who only looks at everything, nor a token for less.
    editor = make_user(roles={project: Role.EDITOR})
    lacking += [
        Api(each, scopes=("access:write",)).post("memberships", body | {"role": "viewer"})
        for each in (editor, make_auditor(), make_user(roles={elsewhere: Role.ADMIN}))
    ]
    assert [each.status_code for each in lacking] == [403, 403, 403, 403, 403, 400]
    for scopes in (("access:read",), ("projects:write", "*:read")):
        refused = Api(admin, scopes=scopes).post("memberships", body)
        assert (refused.status_code, refused.json()["code"]) == (403, "scope_missing")
    assert not Membership.objects.filter(user=friend).exists()
    own.refresh_from_db()
    assert own.role == Role.EDITOR


def test_unknown_people_and_roles(project: Project) -> None:
    api = Api(make_user(roles={project: Role.ADMIN}))
    body = {"user": "nobody", "project": project.pk, "role": "owner"}
    assert set(api.post("memberships", body).json()["fields"]) == {"user", "role"}


# --- the audit trail -------------------------------------------------------------------------


def test_the_trail_is_filtered(project: Project) -> None:
    admin = make_superuser()
    record(actor=admin, action="test.one", obj=project)
    record(actor=None, action="test.two", obj=project)
    api = Api(admin)

    def actions(query: str) -> list[str]:
        return [each["action"] for each in api.get(f"audit?{query}").json()["results"]]

    about = f"object_type=projects.project&object_id={project.pk}"
    assert actions(about) == ["test.two", "test.one"]
    assert actions(f"{about}&actor={admin.username}") == ["test.one"]
    assert actions(f"project={project.pk}&action=test.two") == ["test.two"]
    assert actions(f"{about}&at_from=2999-01-01T00:00:00Z") == []
    assert api.get("audit?at_from=soon").status_code == 400
    assert api.get("audit?project=99999999999999999999999").status_code == 400


def test_the_trail_of_a_project_is_for_its_admins(project: Project) -> None:
    record(actor=None, action="test.x", obj=project)
    editor = make_user(roles={project: Role.EDITOR, make_project(): Role.ADMIN})
    assert Api(editor).get("audit?action=test.x").json()["results"] == []
    set_role(actor=None, user=editor, project=project, role=Role.ADMIN)
    assert len(Api(editor).get("audit?action=test.x").json()["results"]) == 1


def test_the_trail_is_read_only() -> None:
    api = Api(make_superuser())
    entry = AuditRecord.objects.first()
    assert entry is not None
    for method in ("put", "patch", "delete"):
        assert api.call(method, f"audit/{entry.pk}", {}).status_code == 405


def test_changes_carry_the_request_id(project: Project) -> None:
    api = Api(make_superuser())
    api.patch(f"projects/{project.pk}", {"description": "new"}, X_Request_Id="trace-1234")
    entry = AuditRecord.objects.get(action="projects.change_project")
    assert entry.request_id == "trace-1234"
    assert entry.token == api.token
    assert (entry.before, entry.after) == ({"description": ""}, {"description": "new"})


# --- ETags -----------------------------------------------------------------------------------


def test_an_unchanged_object_is_not_sent_again(project: Project) -> None:
    api = Api(make_superuser())
    path = f"projects/{project.pk}"
    etag = api.get(path)["ETag"]
    for header in (etag, f'"other", {etag}', f"W/{etag}", "*"):
        same = api.get(path, If_None_Match=header)
        assert (same.status_code, same.content, same["ETag"]) == (304, b"", etag)
    assert api.get(path, If_None_Match='"other"').status_code == 200
    changed = api.patch(path, {"description": "new"})
    assert changed["ETag"] != etag
    assert api.get(path, If_None_Match=etag).status_code == 200
    assert api.get(path, If_None_Match=changed["ETag"]).status_code == 304


def test_nobody_overwrites_what_others_changed(project: Project) -> None:
    api = Api(make_superuser())
    path = f"projects/{project.pk}"
    etag = api.get(path)["ETag"]
    assert api.patch(path, {"description": "one"}, If_Match=etag).status_code == 200
    for method, body in (
        ("patch", {"description": "two"}),
        ("put", {"name": "P", "slug": "p"}),
        ("delete", None),
    ):
        late = api.call(method, path, body, If_Match=etag)
        assert (late.status_code, late.json()["code"]) == (412, "changed_meanwhile")
    project.refresh_from_db()
    assert project.description == "one"
    now = api.get(path)["ETag"]
    assert api.patch(path, {"description": "two"}, If_Match=now).status_code == 200
    assert api.patch(path, {"description": "three"}, If_Match="*").status_code == 200
    weak = api.get(path)["ETag"]
    assert api.patch(path, {"description": "four"}, If_Match=f"W/{weak}").status_code == 412


def test_objects_without_a_version_have_an_etag_too(project: Project) -> None:
    user = make_user(roles={project: Role.ADMIN})
    api = Api(user)
    member = Membership.objects.get(user=user)
    etag = api.get(f"memberships/{member.pk}")["ETag"]
    assert api.get(f"memberships/{member.pk}", If_None_Match=etag).status_code == 304
    Membership.objects.filter(pk=member.pk).update(role=Role.EDITOR)
    assert api.get(f"memberships/{member.pk}", If_None_Match=etag).status_code == 200


def test_lists_cost_the_same_however_long(
    project: Project, django_assert_max_num_queries: Any
) -> None:
    for _each in range(20):
        make_user(roles={project: Role.VIEWER})
        record(actor=None, action="test.x", obj=project)
    api = Api(make_user(roles={project: Role.ADMIN}))
    # Token and user, its last use, the role somewhere, the page.
    for path in ("memberships", "audit", "projects", "tokens"):
        with django_assert_max_num_queries(5):
            assert api.get(path).status_code == 200
