"""REST endpoints of incidents, channels and notifications."""

from __future__ import annotations

from typing import Any

import pytest
from django.utils import timezone

from apps.access.states import Role
from apps.alerts.models import Channel, Notice
from apps.alerts.services.delivery import secrets_of
from apps.alerts.states import ChannelKind, IncidentState, NoticeState, Severity
from apps.projects.models import Project
from tests.access.factories import Api, make_project, make_superuser, make_user
from tests.alerts.factories import make_channel, make_incident, make_notice

pytestmark = pytest.mark.django_db
HOOK = "https://hooks.example.com/hook/s3cret"
KEY = "a-key-of-some-length"


@pytest.fixture
def project() -> Project:
    return make_project()


def as_a(role: Role, project: Project) -> Api:
    return Api(make_user(roles={project: role}))


def test_incidents_are_listed_and_filtered(
    project: Project, django_assert_max_num_queries: Any
) -> None:
    mine = make_incident(project=project, severity=Severity.CRITICAL)
    make_incident(project=project, state=IncidentState.RECOVERED, ended_at=timezone.now())
    make_incident()
    viewer = as_a(Role.VIEWER, project)
    with django_assert_max_num_queries(12):
        found = viewer.get("/api/v1/incidents").json()["results"]
    assert len(found) == 2
    found = viewer.get("/api/v1/incidents?state=open&severity=critical").json()["results"]
    assert [each["id"] for each in found] == [mine.pk]
    assert "news" in found[0]["text"]
    assert found[0]["facts"] == {"job": "news", "run": 7, "reason": "exit 1"}
    assert as_a(Role.ADMIN, make_project()).get(f"/api/v1/incidents/{mine.pk}").status_code == 404
    assert len(Api(make_superuser()).get("/api/v1/incidents").json()["results"]) == 3


@pytest.mark.slow("1 s")
def test_operators_acknowledge_snooze_and_close(project: Project) -> None:
    incident = make_incident(project=project, opened_at=timezone.now())
    path = f"/api/v1/incidents/{incident.pk}"
    assert as_a(Role.VIEWER, project).post(f"{path}/acknowledge", {}).status_code == 403
    person = make_user(roles={project: Role.OPERATOR})
    operator = Api(person)
    told = operator.post(f"{path}/acknowledge", {"note": "on it"}).json()
    assert told["acknowledged_by"] == person.username
    assert told["story"][0]["detail"]["note"] == "on it"
    told = operator.post(f"{path}/snooze", {"seconds": 600}).json()
    assert told["snoozed_until"]
    assert operator.post(f"{path}/snooze", {"seconds": 5}).status_code == 400
    assert operator.post(f"{path}/close", {}).json()["state"] == "closed"
    assert operator.post(f"{path}/close", {}).status_code == 409


def test_a_channel_takes_secrets_and_gives_none_back(project: Project) -> None:
    editor = as_a(Role.EDITOR, project)
    body = {
        "project": project.pk,
        "name": "hook",
        "kind": "webhook",
        "secrets": {"url": HOOK, "key": KEY},
    }
    made = editor.post("/api/v1/channels", body)
    assert made.status_code == 201, made.json()
    shown = made.json()
    assert (shown["host"], shown["has_secrets"]) == ("hooks.example.com", ["url", "key"])
    for answer in (made, editor.get("/api/v1/channels"), editor.get("/api/v1/audit")):
        assert "s3cret" not in answer.content.decode()
        assert KEY not in answer.content.decode()
    path = f"/api/v1/channels/{shown['id']}"
    changed = editor.patch(path, {"enabled": False, "name": "other"}).json()
    assert (changed["enabled"], changed["name"]) == (False, "hook")
    channel = Channel.objects.get()
    assert secrets_of(channel) == {"url": HOOK, "key": KEY}
    editor.patch(path, {"secrets": {"key": KEY * 2}})
    channel.refresh_from_db()
    assert secrets_of(channel) == {"url": HOOK, "key": KEY * 2}
    assert editor.post("/api/v1/channels", body).status_code == 409
    refused = editor.post(
        "/api/v1/channels", body | {"name": "x", "secrets": {"url": "http://10.0.0.1/"}}
    )
    assert refused.status_code == 422
    assert set(refused.json()["fields"]) == {"url", "key"}
    assert as_a(Role.VIEWER, project).patch(path, {"enabled": True}).status_code == 403
    assert editor.delete(path).status_code == 204


def test_channels_of_the_platform_are_for_its_people(project: Project) -> None:
    body = {"name": "ops", "kind": "mail", "settings": {"to": ["a@example.com"]}}
    assert as_a(Role.ADMIN, project).post("/api/v1/channels", body).status_code == 403
    root = Api(make_superuser())
    made = root.post("/api/v1/channels", body).json()
    assert made["project"] is None
    assert as_a(Role.ADMIN, project).get(f"/api/v1/channels/{made['id']}").status_code == 404


def test_a_test_is_sent(project: Project) -> None:
    channel = make_channel(project=project, kind=ChannelKind.MAIL)
    path = f"/api/v1/channels/{channel.pk}/test"
    assert as_a(Role.OPERATOR, project).post(path).status_code == 403
    told = as_a(Role.EDITOR, project).post(path)
    assert told.status_code == 202
    assert (told.json()["kind"], told.json()["state"]) == ("test", "waiting")


def test_notices_are_sent_again(project: Project) -> None:
    notice = make_notice(channel=make_channel(project=project))
    path = f"/api/v1/notices/{notice.pk}"
    operator = as_a(Role.OPERATOR, project)
    assert operator.post(f"{path}/resend").status_code == 409
    Notice.objects.update(state=NoticeState.SENT)
    assert as_a(Role.VIEWER, project).post(f"{path}/resend").status_code == 403
    told = operator.post(f"{path}/resend")
    assert (told.status_code, told.json()["resent_of"]) == (202, notice.pk)
    listed = operator.get(f"/api/v1/notices?incident={notice.incident_id}&state=waiting").json()
    assert [each["id"] for each in listed["results"]] == [told.json()["id"]]
    assert as_a(Role.ADMIN, make_project()).get(path).status_code == 404
