"""Admin pages of incidents, channels and notifications: content, permissions and actions."""

from __future__ import annotations

import re
from datetime import timedelta
from html import unescape
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from apps.access.models import AuditRecord
from apps.access.states import Role
from apps.alerts.models import Channel, Incident, IncidentNote, Notice
from apps.alerts.services.delivery import secrets_of
from apps.alerts.services.texts import INCIDENTS
from apps.alerts.states import (
    ChannelKind,
    IncidentState,
    NoticeKind,
    NoticeProblem,
    NoticeState,
    Severity,
    Step,
)
from apps.projects.models import Project
from tests.access.factories import make_project, make_superuser, make_user
from tests.alerts.factories import NOW, make_channel, make_incident, make_notice
from tests.confirmation import fields_of

pytestmark = pytest.mark.django_db
LIST = "/admin/alerts/incident/"
CHANNELS = "/admin/alerts/channel/"
TOKEN = "https://oapi.dingtalk.com/robot/send?access_token=s3cret-t0ken"


@pytest.fixture
def project() -> Project:
    return make_project()


def login(user: Any) -> Client:
    client = Client()
    client.force_login(user)
    return client


def person(project: Project, role: Role) -> Client:
    return login(make_user(roles={project: role}))


def html_of(answer: Any) -> str:
    assert answer.status_code == 200, answer.content[:500]
    return str(answer.content.decode())


def text_of(answer: Any) -> str:
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", html_of(answer))).split())


def act(client: Client, incident: Incident, verb: str, **values: Any) -> Any:
    return client.post(f"{LIST}{incident.pk}/{verb}", values, follow=True)


def test_notices_lead_to_the_page_of_the_incident() -> None:
    assert reverse("admin:alerts_incident_changelist") == INCIDENTS
    assert reverse("admin:alerts_incident_change", args=[7]) == f"{INCIDENTS}7/change/"


@pytest.mark.slow("1 s")
def test_the_list_shows_what_is_open(project: Project) -> None:
    make_incident(project=project, facts={"job": "news", "reason": "exit 1"})
    make_incident(
        project=project, state=IncidentState.RECOVERED, ended_at=NOW, facts={"job": "bygones"}
    )
    make_incident(facts={"job": "of the platform"})
    viewer = person(project, Role.VIEWER)
    text = text_of(viewer.get(LIST))
    assert "news" in text
    assert "bygones" not in text
    assert "of the platform" not in text
    assert "bygones" in text_of(viewer.get(f"{LIST}?which=over"))
    assert "news" in text_of(viewer.get(f"{LIST}?which=all"))
    assert "of the platform" in text_of(login(make_superuser()).get(LIST))


@pytest.mark.slow("1 s")
def test_the_list_costs_the_same_for_many(
    project: Project, django_assert_max_num_queries: Any
) -> None:
    for number in range(60):
        make_incident(project=project, key=f"job:{number}")
    viewer = person(project, Role.VIEWER)
    with django_assert_max_num_queries(12):
        viewer.get(LIST)


def test_an_incident_tells_its_story(project: Project) -> None:
    incident = make_incident(
        project=project,
        source="queue.ready",
        key="crawlyard.logs",
        facts={},
        value=12034.0,
        condition={"above": 10000, "for_seconds": 60},
        severity=Severity.CRITICAL,
    )
    IncidentNote.objects.create(incident=incident, at=NOW, what=Step.OPENED, detail={"value": 1.5})
    IncidentNote.objects.create(
        incident=incident, at=NOW, what=Step.ACKNOWLEDGED, by="ann", detail={"note": "<b>mine</b>"}
    )
    make_notice(
        incident=incident,
        channel=make_channel(project=project, name="ops"),
        state=NoticeState.FAILED,
        problem=NoticeProblem.REFUSED,
        answer="310000 sign not match",
        next_try_at=None,
    )
    viewer = person(project, Role.VIEWER)
    page = viewer.get(f"{LIST}{incident.pk}/change/")
    text = text_of(page)
    assert "queue.ready crawlyard.logs is 12,034 (alert: above 10,000, for 60 s)" in text
    assert "<b>mine</b>" in text
    assert "ann" in text
    assert "rejected by the recipient: 310000 sign not match" in text
    assert "Acknowledge" not in text, "a viewer only looks"
    assert "Send again" not in text
    assert "12,034" in text_of(viewer.get(f"{LIST}{incident.pk}/live"))
    stranger = person(make_project(), Role.ADMIN)
    for address in ("change/", "live"):
        assert stranger.get(f"{LIST}{incident.pk}/{address}").status_code == 404
    assert stranger.post(f"{LIST}{incident.pk}/close").status_code == 404
    assert viewer.get(f"{LIST}999999/change/").status_code == 404
    assert viewer.get(f"{LIST}x/change/").status_code == 404


@pytest.mark.slow("3 s")
def test_operators_take_care_of_it(project: Project) -> None:
    incident = make_incident(project=project, opened_at=timezone.now())
    viewer, operator = person(project, Role.VIEWER), person(project, Role.OPERATOR)
    for verb in ("acknowledge", "snooze", "close"):
        assert act(viewer, incident, verb).status_code == 403
        assert operator.get(f"{LIST}{incident.pk}/{verb}").status_code == 405
    assert "Incident acknowledged" in text_of(act(operator, incident, "acknowledge", note="on it"))
    assert "for 60 min" in text_of(act(operator, incident, "snooze", minutes="60"))
    for wrong in ("", "x", "-1", "9" * 17):
        act(operator, incident, "snooze", minutes=wrong)
    incident.refresh_from_db()
    assert incident.snoozed_until is not None
    assert incident.snoozed_until - timezone.now() < timedelta(minutes=61)
    assert "closed" in text_of(act(operator, incident, "close"))
    assert "has ended" in text_of(act(operator, incident, "close"))
    incident.refresh_from_db()
    assert (incident.state, incident.acknowledged_by is not None) == (IncidentState.CLOSED, True)
    actions = set(AuditRecord.objects.values_list("action", flat=True))
    assert {"alerts.acknowledge", "alerts.snooze", "alerts.close"} <= actions


def test_many_are_closed_at_once_but_no_foreign_ones(project: Project) -> None:
    mine = [make_incident(project=project, key=f"job:{number}") for number in range(3)]
    foreign = make_incident(project=make_project())
    other = make_user(roles={project: Role.OPERATOR, foreign.project: Role.VIEWER})  # type: ignore[dict-item]
    client = login(other)

    def close(*incidents: Incident) -> Any:
        chosen = {"_selected_action": [each.pk for each in incidents]}
        return client.post(LIST, {"action": "close_selected", **chosen}, follow=True)

    assert close(mine[0], foreign).status_code == 403
    assert "3 incidents closed" in text_of(close(*mine))
    assert Incident.objects.filter(state=IncidentState.OPEN).get() == foreign


@pytest.mark.slow("2 s")
def test_a_notice_is_sent_again_by_operators(project: Project) -> None:
    notice = make_notice(
        channel=make_channel(project=project), state=NoticeState.FAILED, next_try_at=None
    )
    address = f"{LIST}resend/{notice.pk}"
    assert person(project, Role.VIEWER).post(address).status_code == 403
    assert person(make_project(), Role.ADMIN).post(address).status_code == 404
    operator = person(project, Role.OPERATOR)
    assert "Notification queued again" in text_of(operator.post(address, follow=True))
    again = Notice.objects.get(resent_of=notice)
    assert again.state == NoticeState.WAITING
    refused = operator.post(f"{LIST}resend/{again.pk}", follow=True)
    assert "is still being sent" in text_of(refused)
    listed = operator.get("/admin/alerts/notice/")
    assert notice.channel_name in text_of(listed)
    chosen = {"action": "send_again_selected", "_selected_action": [notice.pk, again.pk]}
    text = text_of(operator.post("/admin/alerts/notice/", chosen, follow=True))
    assert "1 notification queued again" in text
    assert operator.get(f"/admin/alerts/notice/{notice.pk}/change/").status_code == 200


@pytest.mark.slow("2 s")
def test_a_channel_is_made_by_its_kind(project: Project) -> None:
    editor = person(project, Role.EDITOR)
    assert "Feishu" in text_of(editor.get(f"{CHANNELS}add/"))
    address = f"{CHANNELS}add/?kind=dingtalk"
    assert "access_token" in text_of(editor.get(address))
    typed = {
        "project": project.pk,
        "name": "ops",
        "language": "zh-hans",
        "enabled": "on",
        "own_url": "https://oapi.dingtalk.com/robot/send",
        "own_mobiles": "13800000000",
        "notify": "end",
    }
    answer = editor.post(address, typed)
    assert "Copy the complete webhook URL" in text_of(answer)
    answer = editor.post(address, typed | {"own_url": TOKEN, "own_key": "SEC12345678"}, follow=True)
    channel = Channel.objects.get()
    assert (channel.kind, channel.project, channel.language) == ("dingtalk", project, "zh-hans")
    assert secrets_of(channel) == {"url": TOKEN, "key": "SEC12345678"}
    subscription = channel.subscriptions.get()
    assert (subscription.project, subscription.every_end) == (project, True)
    assert "oapi.dingtalk.com" in text_of(answer)
    page = html_of(editor.get(f"{CHANNELS}{channel.pk}/change/"))
    assert "13800000000" in page
    for secret in ("s3cret-t0ken", "SEC12345678"):
        assert secret not in page


def test_secrets_of_a_channel_stay_until_they_are_typed_anew(project: Project) -> None:
    channel = make_channel(
        project=project,
        kind=ChannelKind.DINGTALK,
        secrets={"url": TOKEN, "key": "SEC12345678"},
        settings={"mobiles": [], "all": False},
    )
    editor = person(project, Role.EDITOR)
    address = f"{CHANNELS}{channel.pk}/change/"
    typed = {"language": "en", "own_all": "on"}
    editor.post(address, typed)
    channel.refresh_from_db()
    assert secrets_of(channel) == {"url": TOKEN, "key": "SEC12345678"}
    assert channel.settings["all"] is True
    assert not channel.enabled
    editor.post(address, typed | {"own_key-clear": "on"})
    channel.refresh_from_db()
    assert secrets_of(channel) == {"url": TOKEN}
    answer = editor.post(address, typed | {"own_url-clear": "on"})
    assert "This field is required" in text_of(answer)


@pytest.mark.slow("2 s")
@pytest.mark.parametrize("kind", ChannelKind.values)
def test_every_kind_has_a_form(kind: str) -> None:
    assert login(make_superuser()).get(f"{CHANNELS}add/?kind={kind}").status_code == 200


def test_channels_of_the_platform_are_for_its_people(project: Project) -> None:
    editor = person(project, Role.EDITOR)
    typed = {"name": "ops", "language": "en", "own_to": "a@example.com"}
    answer = editor.post(f"{CHANNELS}add/?kind=mail", typed)
    assert answer.status_code == 200
    assert not Channel.objects.exists()
    other = make_project()
    answer = editor.post(f"{CHANNELS}add/?kind=mail", typed | {"project": other.pk})
    assert answer.status_code == 200, "a foreign project is no choice"
    assert not Channel.objects.exists()
    root = login(make_superuser())
    assert root.post(f"{CHANNELS}add/?kind=mail", typed).status_code == 302
    channel = Channel.objects.get()
    assert channel.project is None
    for page in ("change", "delete"):
        # Django's own views redirect to the index page with a message.
        assert editor.get(f"{CHANNELS}{channel.pk}/{page}/")["Location"] == "/admin/"
    assert editor.get(f"{CHANNELS}{channel.pk}/test/").status_code == 403
    assert person(project, Role.VIEWER).get(f"{CHANNELS}add/").status_code == 403


@pytest.mark.slow("2 s")
def test_a_test_is_sent_and_its_answer_shown(project: Project) -> None:
    channel = make_channel(project=project)
    editor = person(project, Role.EDITOR)
    buttons = html_of(editor.get(f"{CHANNELS}{channel.pk}/change/"))
    found = re.search(r'href="([^"]*/test[^"]*)"', buttons)
    assert found is not None
    asked = editor.get(found[1])
    assert "Its recipients get a message" in text_of(asked)
    assert not Notice.objects.exists()
    text = text_of(editor.post(found[1], fields_of(asked), follow=True))
    assert "Test queued" in text
    notice = Notice.objects.get()
    assert notice.kind == NoticeKind.TEST
    Notice.objects.update(state=NoticeState.FAILED, problem="refused", answer="550 no such mailbox")
    assert "550 no such mailbox" in text_of(editor.get(f"{CHANNELS}{channel.pk}/change/"))
