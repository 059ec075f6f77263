"""REST endpoints of sources, imports, credentials and records."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.utils import timezone

from apps.access.models import AuditRecord
from apps.access.states import Role
from apps.projects.models import Project
from apps.sources.models import Credential, HandedRecord, Harvest, SourceState
from tests.access.factories import Api, make_project, make_user
from tests.sources.records import broker_at, publish, sourced

pytestmark = pytest.mark.django_db


@pytest.fixture
def project(sqlite_broker_url: str) -> Iterator[Project]:
    with broker_at(sqlite_broker_url):
        yield sourced()


def as_a(role: Role, project: Project) -> Api:
    return Api(make_user(roles={project: role}))


def path(project: Project, action: str) -> str:
    return f"/api/v1/sources/projects/{project.pk}/{action}"


def test_a_project_shows_its_sources_and_their_newest_harvest(project: Project) -> None:
    for number in (1, 2):
        Harvest.objects.create(
            project=project,
            source="news",
            state="completed",
            reason="end",
            total=100 * number,
            read=5,
            published=3,
            filtered=2,
            ended_at=timezone.now(),
        )
    viewer = as_a(Role.VIEWER, project)
    told = viewer.get(f"/api/v1/sources/projects/{project.pk}").json()
    news = told["sources"][0]
    assert (news["name"], news["harvest"]["total"], news["harvest"]["progress"]) == ("news", 200, 1)
    assert news["harvest"]["balanced"] is True
    assert told["version"] == 1
    listed = viewer.get("/api/v1/harvests?source=news&state=completed").json()["results"]
    assert [each["total"] for each in listed] == [200, 100]
    assert viewer.get("/api/v1/harvests?state=failed").json()["results"] == []
    stranger = as_a(Role.ADMIN, make_project())
    assert stranger.get(f"/api/v1/sources/projects/{project.pk}").status_code == 404
    assert stranger.get("/api/v1/harvests").json()["results"] == []
    assert stranger.get(f"/api/v1/harvests/{listed[0]['id']}").status_code == 404


def test_start_stop_and_marker(project: Project) -> None:
    operator, editor = as_a(Role.OPERATOR, project), as_a(Role.EDITOR, project)
    assert operator.post(path(project, "start"), {}).json() == [
        {"name": "news", "became": "queued"}
    ]
    busy = editor.post(path(project, "marker"), {"name": "news", "marker": 5})
    assert (busy.status_code, busy.json()["code"]) == (409, "source_busy")
    assert operator.post(path(project, "stop"), {"sources": ["news"]}).status_code == 200
    assert operator.post(path(project, "marker"), {"name": "news", "marker": 5}).status_code == 403
    moved = editor.post(
        path(project, "marker"), {"name": "news", "marker": 270_050, "by_seed_rule": True}
    )
    assert moved.json()["last_start_offset"] == 270_050
    assert moved.json()["never_read"] == [{"from": 0, "to": 49, "why": "seed_rule"}]
    assert editor.post(path(project, "marker"), {"name": "news", "marker": -1}).status_code == 400
    assert editor.post(path(project, "marker"), {"name": "what", "marker": 1}).status_code == 404
    back = editor.post(path(project, "marker"), {"name": "news", "marker": None})
    assert back.json()["last_start_offset"] is None
    assert operator.post(path(project, "start"), {"sources": []}).status_code == 400


@pytest.mark.covers("S0.36")
def test_records_by_lease(project: Project) -> None:
    publish(project, 1, 5)
    operator, viewer = as_a(Role.OPERATOR, project), as_a(Role.VIEWER, project)
    peeked = viewer.post(path(project, "peek"), {"count": 2}).json()
    assert [each["record"] for each in peeked["records"]] == [{"n": 1}, {"n": 2}]
    assert viewer.post(path(project, "lease"), {}).status_code == 403
    leased = operator.post(path(project, "lease"), {"count": 3, "seconds": 60}).json()
    assert [each["id"] for each in leased["records"]] == ["record-1", "record-2", "record-3"]
    size = viewer.get(path(project, "queue-size")).json()
    assert (size["size"], size["leased"]) == (2, 3)
    body = {"lease": leased["lease"], "ids": ["record-1"]}
    assert operator.post(path(project, "acknowledge"), body).json() == {"records": 1}
    assert operator.post(path(project, "give-back"), {"lease": leased["lease"]}).json() == {
        "records": 2
    }
    gone = operator.post(path(project, "acknowledge"), body)
    assert (gone.status_code, gone.json()["code"]) == (404, "unknown_lease")
    taken = operator.post(path(project, "consume"), {"count": 100}).json()
    assert [each["record"]["n"] for each in taken["records"]] == [2, 3, 4, 5]
    assert not HandedRecord.objects.exists()
    assert operator.post(path(project, "lease"), {"seconds": 0}).status_code == 400


def test_credentials_are_written_and_never_read(project: Project) -> None:
    editor = as_a(Role.EDITOR, project)
    body = {"project": project.pk, "name": "vendor", "username": "me", "password": "s3cret-word"}
    made = editor.post("/api/v1/source-credentials", body)
    assert made.status_code == 201
    assert set(made.json()) == {"id", "project", "name", "created_at", "updated_at"}
    row = Credential.objects.get()
    assert (row.username, row.password) == ("me", "s3cret-word")
    taken = editor.post("/api/v1/source-credentials", body)
    assert (taken.status_code, taken.json()["code"]) == (400, "invalid")
    where = f"/api/v1/source-credentials/{row.pk}"
    assert editor.patch(where, {"token": "t0ken-word"}).status_code == 200
    row.refresh_from_db()
    assert (row.password, row.token) == ("s3cret-word", "t0ken-word")
    refused = editor.patch(where, {"headers": "not json"})
    assert (refused.status_code, refused.json()["code"]) == (422, "bad_credential")
    told = editor.get(where).content + str(list(AuditRecord.objects.values())).encode()
    assert b"s3cret" not in told
    assert b"t0ken" not in told
    api = {"kind": "json", "base_url": "https://a.example", "credentials": "vendor"}
    sourced(project, one=api)
    used = editor.delete(where)
    assert (used.status_code, used.json()["code"]) == (409, "credential_in_use")
    sourced(project)
    assert editor.delete(where).status_code == 204
    assert as_a(Role.VIEWER, project).post("/api/v1/source-credentials", body).status_code == 403


def test_a_row_of_a_source_that_was_taken_out_is_still_shown(project: Project) -> None:
    SourceState.objects.create(project=project, name="old", marker=7)
    told = as_a(Role.VIEWER, project).get(f"/api/v1/sources/projects/{project.pk}").json()
    old = next(each for each in told["sources"] if each["name"] == "old")
    assert (old["configured"], old["last_start_offset"]) == (False, 7)
