"""Texts of mails, chat messages and SMS: what, where, since when, what to do, links."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from apps.alerts.services.delivery import send_notices
from apps.alerts.services.texts import when_text
from apps.alerts.states import ChannelKind, IncidentState, NoticeKind, Severity
from tests.access.factories import make_project
from tests.alerts.factories import NOW, make_channel, make_incident, make_notice
from tests.alerts.servers import Mailbox, dingtalk, json_reply, mail_server, serving

pytestmark = pytest.mark.django_db
KEY = "SEC1234567890abcdef"
YARD = "https://yard.example.com"


@pytest.fixture(autouse=True)
def near(settings: Any) -> None:
    """Allow the local servers of these tests."""
    settings.ALERTS_ALLOWED_NETWORKS = ["127.0.0.0/8"]
    settings.PUBLIC_URL = YARD


@pytest.fixture
def mailbox(settings: Any) -> Iterator[Mailbox]:
    with mail_server() as box:
        settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
        settings.EMAIL_HOST, settings.EMAIL_PORT = "127.0.0.1", box.port
        settings.DEFAULT_FROM_EMAIL = "Crawlyard <yard@example.com>"
        yield box


def told_by(channel: Any, **fields: Any) -> Any:
    values = {"severity": Severity.CRITICAL, "rule": "run failed", "project": channel.project}
    incident = make_incident(**(values | {"began_at": NOW - timedelta(minutes=5)} | fields))
    kind = NoticeKind.OPENED if incident.is_open else NoticeKind.RECOVERED
    make_notice(channel=channel, incident=incident, kind=kind)
    assert send_notices(channel=channel.pk, now=NOW) == 1
    return incident


def test_a_mail_by_night(mailbox: Mailbox) -> None:
    channel = make_channel(project=make_project(name="shop"))
    found = told_by(channel)
    told_by(channel, state=IncidentState.RECOVERED, ended_at=NOW + timedelta(minutes=30))
    (_to, mail), (_again, over) = mailbox.received
    assert mail["Subject"] == "[critical] job news: run 7 failed (exit 1)"
    assert mail.get_content().splitlines() == [
        "[critical] job news: run 7 failed (exit 1)",
        "",
        "Where: shop",
        "Rule: run failed",
        "Since: 2026-03-01 11:55:00 UTC",
        "What to do: Check the end of its log, fix the cause and start the job again.",
        "",
        f"Incident: {YARD}/admin/alerts/incident/{found.pk}/change/",
        f"Page: {YARD}/admin/jobs/run/7/change/",
    ]
    assert over["Subject"] == "[critical] Recovered: job news: run 7 failed (exit 1)"
    text = over.get_content()
    assert "Ended: 2026-03-01 12:30:00 UTC, after 35 min" in text
    assert "What to do" not in text


def test_a_robot_by_night() -> None:
    with serving(dingtalk(KEY, NOW)) as robot:
        channel = make_channel(
            kind=ChannelKind.DINGTALK,
            language="zh-hans",
            secrets={"url": f"{robot.url}/robot/send?access_token=t0ken", "key": KEY},
            settings={"mobiles": ["13800000000"]},
        )
        found = told_by(channel, facts={"job": "新闻", "run": 7, "reason": "exit 1"})
        said = robot.heard[0].json
    assert said["at"] == {"atMobiles": ["13800000000"], "isAtAll": False}
    rows = said["text"]["content"].splitlines()
    assert "新闻" in rows[0]
    assert f"{YARD}/admin/alerts/incident/{found.pk}/change/" in rows[-3]
    assert rows[-1] == "@13800000000"


def test_a_text_message_by_night() -> None:
    with serving(lambda _asked: json_reply()) as gateway:
        channel = make_channel(
            kind=ChannelKind.SMS,
            project=make_project(name="shop"),
            settings={"url": f"{gateway.url}/", "body": '{"text": "{text}"}', "numbers": ["1"]},
        )
        found = told_by(channel)
        said = gateway.heard[0].json["text"]
    assert said == (
        "[critical] job news: run 7 failed (exit 1) · shop, 03-01 11:55 · "
        f"{YARD}/admin/alerts/incident/{found.pk}/change/"
    )


@pytest.mark.parametrize(
    ("source", "condition", "text"),
    [
        ("dead_letters.held", {}, "immediately"),
        ("queue.unread", {"for_seconds": 60}, "for 60 s"),
        ("run.failed", {}, "every time"),
        ("run.failed", {"times": 3, "in_seconds": 600}, "3 times in 10 min"),
        ("queue.ready", {"above": 10, "for_seconds": 300}, "above 10, for 5 min"),
        ("queue.ready", {"above": 10}, "above 10"),
    ],
)
def test_what_lasts_how_long(source: str, condition: dict[str, float], text: str) -> None:
    assert when_text(source, condition) == text
