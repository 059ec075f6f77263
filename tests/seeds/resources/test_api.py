"""Resource pools over REST: who may what, and that only a lease shows a secret."""

from __future__ import annotations

import json
from typing import Any

import pytest

from apps.access.models import AuditRecord
from apps.access.states import Role
from apps.projects.models import Project
from apps.seeds.models import Resource, ResourcePool
from apps.seeds.states import ResourceState
from tests.access.factories import Api, make_project, make_user
from tests.seeds.resources.factories import PASSWORD, make_pool, make_resource

pytestmark = pytest.mark.django_db


@pytest.fixture
def project() -> Project:
    return make_project()


@pytest.fixture
def editor(project: Project) -> Api:
    return Api(make_user(roles={project: Role.EDITOR}, username="ed"))


@pytest.mark.covers("S3.21")
def test_from_an_empty_pool_to_a_ban(project: Project, editor: Api) -> None:
    made = editor.post("resource-pools", {"project": project.pk, "name": "accounts"})
    assert made.status_code == 201, made.content
    pool = made.json()
    assert (pool["rotation_percent"], pool["lease_seconds"], pool["total"]) == (70, 14_400, 0)
    text = f"name,user,password\nann,ann@example.com,{PASSWORD}\n"
    done = editor.post(f"resource-pools/{pool['id']}/import", {"file_format": "csv", "text": text})
    assert done.json() == {"added": 1, "changed": 0, "unchanged": 0}
    leased = editor.post(f"resource-pools/{pool['id']}/lease", {})
    assert leased.status_code == 201
    assert leased["Cache-Control"] == "no-store"
    resource = leased.json()["resource"]
    assert resource["secret"] == {"user": "ann@example.com", "password": PASSWORD}
    entry = AuditRecord.objects.get(action="seeds.lease_resource")
    assert (entry.actor_label, entry.object_label) == ("ed", "ann")
    none = editor.post(f"resource-pools/{pool['id']}/lease", {})
    assert (none.status_code, none.json()["resource"]) == (200, None)
    assert int(none["Retry-After"]) == 3600
    back = editor.post(
        f"resources/{resource['id']}/return",
        {"lease": resource["lease"], "outcome": "not_ok", "reason": "captcha"},
    ).json()
    assert back["code"] == "returned"
    assert back["resource"]["score"] == pytest.approx(0.9)
    late = editor.post(f"resources/{resource['id']}/release", {})
    assert (late.status_code, late.json()["code"]) == (409, "wrong_state")
    banned = editor.post(f"resources/{resource['id']}/ban", {"reason": "blocked"}).json()
    assert (banned["state"], banned["reason"]) == ("banned", "blocked")
    shown = editor.get(f"resource-pools/{pool['id']}").json()
    assert (shown["total"], shown["banned"], shown["at_hand"]) == (1, 1, 0)
    assert editor.post(f"resources/{resource['id']}/unban").json()["state"] == "free"


def test_no_other_answer_has_a_secret(project: Project, editor: Api) -> None:
    pool = make_pool(project)
    body = {"pool": pool.pk, "name": "ann", "secret": {"password": PASSWORD}}
    made = editor.post("resources", body)
    assert made.status_code == 201, made.content
    number = made.json()["id"]
    answers = [
        made,
        editor.get("resources"),
        editor.get(f"resources/{number}"),
        editor.patch(f"resources/{number}", {"secret": PASSWORD + "2"}),
        editor.post(f"resources/{number}/reset"),
        editor.post(f"resources/{number}/disable"),
        editor.get("resource-pools"),
        editor.get("audit"),
    ]
    texts = [answer.content.decode() for answer in answers]
    export = editor.get(f"resource-pools/{pool.pk}/export")
    texts.append(b"".join(export.streaming_content).decode())
    assert not [text for text in texts if PASSWORD in text or '"secret"' in text]
    assert "ann,disabled" in texts[-1]
    assert Resource.objects.get(pk=number).secret == json.dumps({"secret": PASSWORD + "2"})
    assert PASSWORD not in str(list(AuditRecord.objects.values("before", "after")))


@pytest.mark.slow("1 s")
@pytest.mark.parametrize(
    ("path", "body", "needed"),
    [
        ("resource-pools/{pool}/lease", {}, Role.EDITOR),
        ("resource-pools/{pool}/import", {"text": "name,secret\na,b\n"}, Role.EDITOR),
        ("resources/{resource}/return", {"lease": 1, "outcome": "ok"}, Role.OPERATOR),
        ("resources/{resource}/ban", {}, Role.OPERATOR),
        ("resources/{resource}/reset", {}, Role.OPERATOR),
    ],
    ids=lambda value: str(value) if isinstance(value, str) else "",
)
@pytest.mark.parametrize("held", list(Role))
def test_the_role_that_is_needed(
    path: str, body: dict[str, Any], needed: Role, held: Role, project: Project
) -> None:
    resource = make_resource(make_pool(project), state=ResourceState.LEASED, lease=1)
    at = path.format(pool=resource.pool_id, resource=resource.pk)
    response = Api(make_user(roles={project: held})).post(at, body)
    if held.covers(needed):
        assert response.status_code < 300, response.content
    else:
        assert (response.status_code, response.json()["code"]) == (403, "role_required")


def test_what_is_wrong_is_told_without_the_secret(project: Project, editor: Api) -> None:
    pool = make_pool(project)
    make_resource(pool, name="ann")
    text = f"name,secret\nann,x\n,{PASSWORD}\n"
    answers = [
        editor.post(f"resource-pools/{pool.pk}/import", {"text": text}),
        editor.post("resources", {"pool": pool.pk, "name": "a", "secret": {PASSWORD: 5}}),
        editor.post("resources", {"pool": pool.pk, "name": "ann", "secret": PASSWORD}),
        editor.post(f"resource-pools/{pool.pk}/import", {"text": f'name,secret\na,"{PASSWORD}'}),
    ]
    assert [each.status_code for each in answers] == [422] * 4, [a.content for a in answers]
    assert answers[0].json()["fields"] == {"text": ["Line 3: a name is needed."]}
    assert not [each for each in answers if f"hunter2-top-secret,{PASSWORD}" in str(each.content)]
    assert PASSWORD not in answers[0].content.decode() + answers[3].content.decode()
    again = editor.post("resource-pools", {"project": project.pk, "name": pool.name})
    assert again.status_code == 400
    off = ResourcePool.objects.create(project=project, name="off", is_enabled=False)
    refused = editor.post(f"resource-pools/{off.pk}/lease", {})
    assert (refused.status_code, refused.json()["code"]) == (409, "pool_disabled")


def test_a_pool_stays_in_its_project(project: Project, editor: Api) -> None:
    pool, other = make_pool(project), make_pool(project)
    resource = make_resource(pool)
    changed = editor.patch(f"resource-pools/{pool.pk}", {"project": 0, "rest_seconds": 9}).json()
    assert (changed["project"], changed["rest_seconds"]) == (project.pk, 9)
    moved = editor.patch(f"resources/{resource.pk}", {"pool": other.pk, "name": "new"}).json()
    assert (moved["pool"], moved["name"]) == (pool.pk, "new")


def test_lists_ask_little(
    project: Project, editor: Api, django_assert_max_num_queries: Any
) -> None:
    pool = make_pool(project)
    for _ in range(3):
        make_resource(pool)
        make_pool(project)
    for path in ("resources", "resource-pools"):
        with django_assert_max_num_queries(12) as first:
            editor.get(path)
        for _ in range(5):
            make_resource(pool)
            make_pool(project)
        with django_assert_max_num_queries(len(first)):
            editor.get(path)
