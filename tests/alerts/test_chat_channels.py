"""Slack, Teams, Discord, Telegram, PagerDuty, Opsgenie and ntfy, against servers that validate."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from apps.alerts.models import Channel, Notice
from apps.alerts.services.delivery import send_notices
from apps.alerts.services.incidents import close
from apps.alerts.states import ChannelKind, IncidentState, NoticeKind, NoticeProblem, NoticeState
from tests.access.factories import make_superuser
from tests.alerts import chat_servers
from tests.alerts.factories import NOW, make_channel, make_incident, make_notice
from tests.alerts.servers import Asked, Reply, Server, serving
from tests.alerts.test_delivery import state_of
from tests.jobs.factories import make_project

pytestmark = [pytest.mark.django_db, pytest.mark.covers("UX.6")]

PAGER_KEY = "0123456789abcdef0123456789abcdef"
# Secrets and settings of each kind, by the URL of its server.
KINDS: dict[str, Callable[[str], tuple[dict[str, str], dict[str, Any]]]] = {
    "slack": lambda url: ({"url": f"{url}/services/T000/B000/t0ken"}, {"all": False}),
    "teams": lambda url: ({"url": f"{url}/workflows/x/invoke?sig=t0ken"}, {}),
    "discord": lambda url: ({"url": f"{url}/api/webhooks/1/t0ken"}, {"all": False}),
    "telegram": lambda url: ({"token": "123456:ABC-t0ken-of-bot"}, {"chat": "-100123", "url": url}),
    "pagerduty": lambda url: ({"key": PAGER_KEY}, {"url": url}),
    "opsgenie": lambda url: ({"key": "t0ken-of-an-integration"}, {"url": f"{url}/"}),
    "ntfy": lambda url: ({"topic": "t0ken-topic", "token": "tk_t0ken-of-ntfy"}, {"url": url}),
}
REPLIES: dict[str, Callable[[Asked], Reply]] = {kind: getattr(chat_servers, kind) for kind in KINDS}
# What each answers to a wrong secret.
REFUSALS = {
    "slack": ({"url": "/services/T000/B000/wr0ng"}, "HTTP 404: no_service"),
    "teams": ({"url": "/workflows/x/invoke?sig=wr0ng"}, "HTTP 401: "),
    "discord": ({"url": "/api/webhooks/2/wr0ng"}, 'HTTP 404: {"message": "Unknown Webhook"'),
    "telegram": ({"token": "123456:wr0ng-token"}, "401 Unauthorized"),
    "pagerduty": ({"key": "wr0ng-key"}, "HTTP 400: "),
    "opsgenie": ({"key": "wr0ng-key"}, "HTTP 401: "),
    "ntfy": ({"topic": "wr0ng"}, 'HTTP 403: {"code": 40301'),
}


@pytest.fixture(autouse=True)
def near(settings: Any) -> None:
    """Allow the local servers of these tests."""
    settings.ALERTS_ALLOWED_NETWORKS = ["127.0.0.0/8"]
    settings.PUBLIC_URL = "https://crawl.example.com"


def channel_of(kind: str, server: Server, **fields: Any) -> Channel:
    secrets, plain = KINDS[kind](server.url)
    return make_channel(kind=kind, secrets=secrets, settings=plain, **fields)


@pytest.mark.parametrize("kind", KINDS)
def test_a_long_message_of_hostile_text_is_accepted(kind: str) -> None:
    facts = {
        "job": "<!channel> @everyone *x* [a](http://b) 价" * 300,
        "run": 7,
        "reason": "`x`" * 900,
    }
    with serving(REPLIES[kind]) as server:
        channel = channel_of(kind, server, project=make_project(slug="news"))
        notice = make_notice(channel=channel, incident=make_incident(facts=facts))
        assert send_notices(channel=channel.pk, now=NOW) == 1, state_of(notice)
        assert state_of(notice)[:2] == (NoticeState.SENT, "")
        text = server.heard[0].body.decode()
        assert "/admin/alerts/incident/" in text
        test = Notice.objects.create(
            channel=channel, channel_name="x", kind=NoticeKind.TEST, created_at=NOW, next_try_at=NOW
        )
        send_notices(channel=channel.pk, now=NOW + timedelta(seconds=1))
        assert state_of(test)[0] == NoticeState.SENT, state_of(test)


@pytest.mark.parametrize("kind", KINDS)
def test_the_wait_that_a_service_asks_for_is_kept(kind: str) -> None:
    with serving(chat_servers.too_many(kind)) as server:
        channel = channel_of(kind, server)
        notice = make_notice(channel=channel)
        assert send_notices(channel=channel.pk, now=NOW) == 0
        assert state_of(notice)[:2] == (NoticeState.WAITING, NoticeProblem.TOO_MANY)
        assert notice.next_try_at is not None
        assert 76 < (notice.next_try_at - NOW).total_seconds() < 82
        server.reply = REPLIES[kind]
        assert send_notices(channel=channel.pk, now=NOW + timedelta(seconds=90)) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_a_refusal_is_shown_without_the_secret(kind: str) -> None:
    wrong, answer = REFUSALS[kind]
    with serving(REPLIES[kind]) as server:
        secrets, plain = KINDS[kind](server.url)
        wrong = {name: server.url + text if name == "url" else text for name, text in wrong.items()}
        channel = make_channel(kind=kind, secrets={**secrets, **wrong}, settings=plain)
        notice = make_notice(channel=channel)
        assert send_notices(channel=channel.pk, now=NOW) == 0
    state, problem, shown = state_of(notice)
    assert (state, problem) == (NoticeState.WAITING, NoticeProblem.REFUSED)
    assert shown.startswith(answer)
    assert "wr0ng" not in shown


@pytest.mark.parametrize("kind", ["slack", "discord", "telegram", "ntfy"])
def test_the_page_of_a_proxy_is_no_success(kind: str) -> None:
    with serving(lambda _asked: (200, {"Content-Type": "text/html"}, b"<h1>Log in</h1>")) as server:
        channel = channel_of(kind, server)
        notice = make_notice(channel=channel)
        assert send_notices(channel=channel.pk, now=NOW) == 0
    assert state_of(notice)[:2] == (NoticeState.WAITING, NoticeProblem.REFUSED)


def ended(kind: str, server: Server) -> list[Any]:
    """Open an incident and let it recover; return the two bodies."""
    channel, incident = channel_of(kind, server), make_incident()
    make_notice(channel=channel, incident=incident)
    send_notices(channel=channel.pk, now=NOW)
    incident.state, incident.ended_at = IncidentState.RECOVERED, NOW + timedelta(minutes=9)
    incident.save()
    make_notice(channel=channel, incident=incident, kind=NoticeKind.RECOVERED)
    send_notices(channel=channel.pk, now=NOW + timedelta(minutes=9))
    return [asked.json for asked in server.heard]


def test_pagerduty_resolves_what_it_triggered() -> None:
    with serving(chat_servers.pagerduty) as server:
        first, second = ended("pagerduty", server)
    assert (first["event_action"], second["event_action"]) == ("trigger", "resolve")
    assert first["dedup_key"] == second["dedup_key"]
    assert first["payload"]["severity"] == "warning"
    assert first["payload"]["timestamp"] == "2026-03-01T12:00:00+00:00"


def test_opsgenie_closes_what_it_created() -> None:
    with serving(chat_servers.opsgenie) as server:
        first, _second = ended("opsgenie", server)
        assert f"/v2/alerts/{first['alias']}/close" in server.heard[1].path
    assert first["details"]["reason"] == "exit 1"
    assert first["priority"] == "P3"


def test_each_alert_of_a_storm_is_an_event_of_its_own() -> None:
    with serving(chat_servers.pagerduty) as server:
        channel = channel_of("pagerduty", server)
        for number in range(6):
            make_notice(channel=channel, incident=make_incident(key=f"job:{number}"))
        assert send_notices(channel=channel.pk, now=NOW) == 6
    assert len({asked.json["dedup_key"] for asked in server.heard}) == 6


def test_an_incident_that_a_person_closes_is_resolved_where_it_stays_open_otherwise() -> None:
    with serving(chat_servers.pagerduty) as server:
        pager, mail, incident = channel_of("pagerduty", server), make_channel(), make_incident()
        make_notice(channel=pager, incident=incident)
        make_notice(channel=mail, incident=incident, state=NoticeState.SENT)
        send_notices(channel=pager.pk, now=NOW)
        close(incident=incident, actor=make_superuser(), now=NOW + timedelta(minutes=1))
        send_notices(channel=pager.pk, now=NOW + timedelta(minutes=1))
        assert [asked.json["event_action"] for asked in server.heard] == ["trigger", "resolve"]
    assert not mail.notices.filter(kind=NoticeKind.RECOVERED).exists()


def test_slack_shows_facts_as_plain_text() -> None:
    with serving(chat_servers.slack) as server:
        channel = channel_of("slack", server)
        make_notice(channel=channel, incident=make_incident(facts={"job": "<!here>", "run": 1}))
        send_notices(channel=channel.pk, now=NOW)
        body = server.heard[0].json
    assert "<!here>" not in body["text"]
    assert [block["text"]["type"] for block in body["blocks"]] == [
        "plain_text",
        "plain_text",
        "mrkdwn",
    ]


def test_every_kind_that_calls_a_service_is_tested() -> None:
    older = {"mail", "sms", "webhook", "dingtalk", "wecom", "feishu"}
    assert set(ChannelKind.values) == {*KINDS, *older}
