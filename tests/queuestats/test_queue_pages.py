"""The page of queues and that of one queue: with the test client, and in a browser."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import Any

import axe_playwright_python.sync_playwright as axe
import pytest
from django.urls import reverse
from django.utils import timezone
from playwright.sync_api import expect

from apps.access.states import Role
from apps.projects.models import Project
from apps.queuestats.admin.queues import curves
from apps.queuestats.models import QueueState
from apps.queuestats.services import record_gauges, record_observed_seconds
from tests.access.factories import enter, make_project, make_superuser, make_user
from tests.e2e.chromium import keep
from tests.queuestats.test_queues import flow, make_queue
from tests.routing.test_explain_in_browser import browsing, fits

pytestmark = pytest.mark.django_db
ROOT = "/admin/queuestats/queuestate/"


def fill(project: Project) -> datetime:
    """A dozen queues of every kind, an hour of their lengths, a minute of what flows."""
    now = timezone.now()
    second = int(now.timestamp())
    record_observed_seconds(since=second - 300, until=second)
    make_queue("logs", at=now, waiting=12345, taken=500, readers=2, out_total=1)
    make_queue("statistics", at=now, waiting=3, taken=0, readers=1, out_total=1)
    make_queue("runners", at=now, waiting=4, taken=0, readers=0)
    make_queue("dead", at=now, waiting=2, readers=1)
    make_queue("celery.builds", at=now, waiting=0, engine="files")
    make_queue(
        "in:orders", project=project, at=now, waiting=88, readers=2, engine="kafka", way="in"
    )
    make_queue(
        "out:spiders",
        project=project,
        at=now,
        engine="redis",
        way="out",
        address="spider:queue:公司信息",
        problem="Error 111 connecting to redis.example:6379. Connection refused.",
    )
    for minute in range(0, 60, 2):
        if not 20 < minute < 30:
            readings = {
                ("queue.ready", None, "logs"): 12000 - 100.0 * minute,
                ("queue.ready", project.pk, "in:orders"): 80.0 + minute % 7,
            }
            record_gauges(readings, now=now - timedelta(minutes=minute, seconds=5))
    flow("queue.out", "logs", 900, now)
    flow("queue.in", "logs", 950, now)
    flow("queue.out", "statistics", 3, now)
    flow("queue.in", "statistics", 3, now)
    return now


def test_the_page_says_that_nobody_samples(client: Any) -> None:
    boss = enter(make_superuser())
    page = boss.get(ROOT).content.decode()
    assert "run_monitor has not been started" in page
    QueueState.objects.create(
        key="0 logs", name="logs", way="inside", at=timezone.now() - timedelta(minutes=3)
    )
    page = boss.get(reverse("admin:queuestats_queues_live")).content.decode()
    assert "run_monitor is not running" in page


def test_pages_of_queues_show_what_one_may_see() -> None:
    project = make_project()
    fill(project)
    viewer = enter(make_user(roles={project: Role.VIEWER}))
    stranger = enter(make_user(roles={make_project(): Role.VIEWER}))
    page = viewer.get(ROOT).content.decode()
    assert "in:orders" in page
    assert "12,345" not in page
    assert "in:orders" not in stranger.get(ROOT).content.decode()
    one = f"{reverse('admin:queuestats_queue')}?project={project.pk}&name=in%3Aorders"
    page = viewer.get(one).content.decode()
    assert f"/api/v1/projects/{project.pk}/series/points?name=queue.ready" in page
    assert stranger.get(one).status_code == 404
    assert viewer.get(f"{reverse('admin:queuestats_queue')}?name=logs").status_code == 404
    boss = enter(make_superuser())
    assert "/api/v1/series/points" in boss.get(f"{ROOT}queue?name=logs").content.decode()


def test_a_curve_has_gaps() -> None:
    assert curves([]) == []
    assert curves([None, None]) == []
    assert curves([0.0, 5.0, None, 10.0]) == ["0.0,23.0 40.0,12.0", "120.0,1.0 120.0,1.0"]


@pytest.mark.browser
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("language", "scheme", "width"),
    [("en", "light", 1280), ("en", "dark", 390), ("zh-hans", "dark", 1280)],
)
def test_in_a_browser(
    live_server: Any, settings: Any, language: str, scheme: str, width: int
) -> None:
    fill(make_project(name="orders", slug="orders"))
    session = enter(make_superuser()).cookies[settings.SESSION_COOKIE_NAME]
    with browsing(live_server.url, session, scheme, width) as page:
        page.context.add_cookies(
            [{"name": settings.LANGUAGE_COOKIE_NAME, "value": language, "url": live_server.url}]
        )
        page.goto(ROOT)
        expect(page.locator("[data-connection][data-kind=live]")).to_be_visible()
        rows = page.locator("tr[data-queue]")
        expect(rows).to_have_count(7)
        expect(rows.first).to_have_attribute("data-standing", "problem")
        keep(page, f"queues-{language}-{width}")
        assert fits(page)
        assert grave(page) == "[]"

        page.locator("tr[data-queue=logs] a").first.click()
        expect(page.locator("[data-chart] canvas").first).to_be_visible()
        expect(page.locator(".cy-chart-legend li").first).to_contain_text("12,000")
        keep(page, f"queue-{language}-{width}")
        assert fits(page)
        assert grave(page) == "[]"


def grave(page: Any) -> str:
    """What axe finds serious or critical in what this page is about."""
    found = axe.Axe().run(page, context="#content, main").response["violations"]
    grave = [each for each in found if each["impact"] in ("serious", "critical")]
    return json.dumps([(each["id"], node["html"]) for each in grave for node in each["nodes"]])
