"""Alert pages in a browser: wide and narrow, light and dark, with the keyboard."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.conf import settings as installed
from django.utils import timezone
from playwright.sync_api import Page, expect

from apps.alerts.models import IncidentNote
from apps.alerts.states import (
    ChannelKind,
    IncidentState,
    NoticeKind,
    NoticeProblem,
    NoticeState,
    Severity,
    Step,
)
from tests.access.factories import enter, make_project, make_superuser
from tests.alerts.factories import make_channel, make_incident, make_notice
from tests.e2e.chromium import keep
from tests.routing.test_explain_in_browser import browsing, fits

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


def busy() -> int:
    """Create incidents of all kinds; return the primary key of the most severe one."""
    now = timezone.now()
    project = make_project(name="News of the south")
    mail = make_channel(name="ops-mail", project=project)
    robot = make_channel(
        name="oncall",
        kind=ChannelKind.DINGTALK,
        secrets={"url": "https://oapi.dingtalk.com/robot/send?access_token=x"},
        settings={"mobiles": [], "all": True},
    )
    worst = make_incident(
        rule="queue unread",
        source="queue.ready",
        key="crawlyard.logs",
        facts={},
        value=12034.0,
        condition={"above": 10000, "for_seconds": 60},
        severity=Severity.CRITICAL,
        opened_at=now - timedelta(minutes=40),
        seen_at=now,
        address="/admin/",
    )
    for number, (what, by, detail) in enumerate(
        (
            (Step.OPENED, "", {"value": 10400.0}),
            (Step.ESCALATED, "", {"severity": "critical", "tell": ["oncall"]}),
            (
                Step.SNOOZED,
                "ann",
                {"until": "2026-03-01T12:00:00+00:00", "note": "disk is being moved"},
            ),
        )
    ):
        at = now - timedelta(minutes=40 - 12 * number)
        IncidentNote.objects.create(incident=worst, at=at, what=what, by=by, detail=detail)
    sent = {"state": NoticeState.SENT, "next_try_at": None, "sent_at": now, "attempts": 1}
    make_notice(channel=mail, incident=worst, **sent)
    make_notice(
        channel=robot,
        incident=worst,
        kind=NoticeKind.ESCALATED,
        state=NoticeState.FAILED,
        problem=NoticeProblem.REFUSED,
        answer="310000 sign not match",
        attempts=7,
        next_try_at=None,
    )
    for number in range(4):
        make_incident(
            project=project,
            rule="run failed",
            key=f"job:{number}",
            facts={"job": f"news-{number}", "run": 700 + number, "reason": "exit code 1"},
            opened_at=now - timedelta(hours=number + 1),
            seen_at=now,
            count=number + 1,
            acknowledged_at=now if number == 2 else None,
        )
    make_incident(project=project, state=IncidentState.RECOVERED, ended_at=now)
    return worst.pk


@pytest.mark.parametrize(
    ("scheme", "width", "language"),
    [
        ("light", 1280, "en"),
        ("dark", 390, "zh-hans"),
        pytest.param("dark", 1280, "en", marks=pytest.mark.long("dark, and narrow")),
        pytest.param("light", 390, "en", marks=pytest.mark.long("dark, and narrow")),
    ],
)
def test_pages(
    live_server: Any,
    accessible: Callable[[Page], list[str]],
    scheme: str,
    width: int,
    language: str,
) -> None:
    pk = busy()
    cookies = enter(make_superuser()).cookies
    session = cookies[installed.SESSION_COOKIE_NAME]
    with browsing(live_server.url, session, scheme, width) as page:
        page.context.add_cookies(
            [{"name": installed.LANGUAGE_COOKIE_NAME, "value": language, "url": live_server.url}]
        )
        name = f"{width}-{scheme}"
        for title, path in (
            ("incidents", "/admin/alerts/incident/"),
            ("incident", f"/admin/alerts/incident/{pk}/change/"),
            ("notices", "/admin/alerts/notice/"),
            ("channels", "/admin/alerts/channel/"),
            ("channel-kinds", "/admin/alerts/channel/add/"),
            ("channel-sms", "/admin/alerts/channel/add/?kind=sms"),
            ("rules", "/admin/alerts/rulemute/"),
            ("rule", "/admin/alerts/rulemute/rule/?project=platform"),
        ):
            page.goto(path)
            page.wait_for_load_state("networkidle")
            keep(page, f"alerts-{title}-{name}")
            assert fits(page), title
            assert accessible(page) == [], title


def test_an_incident_is_taken_care_of_by_keyboard(live_server: Any) -> None:
    pk = busy()
    person = make_superuser()
    session = enter(person).cookies[installed.SESSION_COOKIE_NAME]
    with browsing(live_server.url, session, "light", 1280) as page:
        page.goto(f"/admin/alerts/incident/{pk}/change/")
        expect(page.locator("[data-connection]")).to_have_attribute("data-kind", "live")
        page.get_by_label("Note").fill("on it")
        page.get_by_role("button", name="Acknowledge").press("Enter")
        expect(page.locator("#incident-title")).to_contain_text(f"acknowledged by {person}")
        expect(page.locator(".cy-timeline")).to_contain_text("on it")
        # Changes made by other users appear without a reload.
        page.get_by_role("button", name="Send again").last.click()
        expect(page.locator(".cy-table tbody")).to_contain_text("resent")
        page.get_by_role("button", name="Close").click()
        expect(page.locator("#incident-title")).to_contain_text("closed")
        expect(page.get_by_role("button", name="Snooze")).to_have_count(0)
