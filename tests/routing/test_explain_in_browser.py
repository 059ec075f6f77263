"""The explain and replay pages in a real browser: readable, also on phones, and allowed by CSP."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from django.conf import settings
from playwright.sync_api import Page, expect

from apps.access.states import Role
from apps.projects.models import Project
from tests.access.factories import enter, make_project, make_user
from tests.e2e.chromium import keep, launched, watch
from tests.routing.factories import arrive
from tests.routing.page_rules import NORTH, SOUTH, SPARE, activate_rules, save_rules

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]
ITEM = {
    "task_params": {"company_name": "宁乡县老粮仓镇楚江冻库", "province": "GD", "level": 2},
    "data_type": "change",
    "rt": True,
}


@pytest.fixture
def project() -> Project:
    project = make_project(name="ic", slug="ic")
    activate_rules(project)
    save_rules(project, outbounds=(replace(NORTH, selector=("province == 'GD'",)), SOUTH, SPARE))
    for name in ("GD", "BJ", "JS", "SH", "GD", "HN"):
        arrive(project, item={"province": name, "data_type": "change", "level": 9})
    return project


@pytest.fixture
def session(project: Project) -> Any:
    """Session cookie of a viewer, created before the browser starts its event loop."""
    return enter(make_user(roles={project: Role.VIEWER})).cookies[settings.SESSION_COOKIE_NAME]


@contextmanager
def browsing(
    address: str, session: Any, scheme: Any, width: int, problems: list[str] | None = None
) -> Iterator[Page]:
    """Page of the viewer; the test fails on errors in its console.

    Given a list of ``problems``, they are put there instead: what a policy blocks is one.
    """
    given, problems = problems, []
    with launched() as browser:
        context = browser.new_context(
            base_url=address, color_scheme=scheme, viewport={"width": width, "height": 900}
        )
        context.add_cookies([{"name": session.key, "value": session.value, "url": address}])
        page = context.new_page()
        watch(page, problems)
        yield page
        context.close()
    if given is not None:
        given += problems
    else:
        assert problems == []


def fits(page: Page) -> bool:
    """Return whether the page needs no horizontal scrolling."""
    root = "document.documentElement"
    return bool(page.evaluate(f"{root}.scrollWidth <= {root}.clientWidth"))


@pytest.mark.covers("S2.7")
@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 390)])
def test_explain_and_replay(
    live_server: Any, session: Any, project: Project, scheme: str, width: int
) -> None:
    with browsing(live_server.url, session, scheme, width) as page:
        page.goto(f"/routing/explain?project={project.pk}")
        page.locator("#id_text").fill(json.dumps(ITEM, ensure_ascii=False, indent=1))
        page.locator("#id_inbound").select_option("logs")
        page.get_by_role("button", name="Explain").click()
        expect(page.locator("#outcome-title")).to_have_text("Sent to south")
        expect(page.locator('.cy-way[aria-current="true"]')).to_contain_text("south")
        expect(page.locator(".cy-ways .cy-part-failing").first).to_contain_text("province == 'BJ'")
        assert json.loads(page.locator("#message-json").inner_text())["province"] == "GD"
        assert fits(page)
        page.locator("[data-copy='message-json']").click()
        expect(page.locator("[data-copy='message-json']")).to_have_text("Copied")
        keep(page, f"explain-{width}")

        page.goto(f"/routing/replay?project={project.pk}&version=2")
        expect(page.locator("#outcome-title")).to_contain_text(
            "of 6 tasks would be routed differently"
        )
        keep(page, f"replay-{width}")
        assert fits(page)
        page.locator("#rows-title + table a").first.click()
        expect(page.locator("#outcome-title")).to_be_visible()
        assert "version=2" in page.url
        assert fits(page)

        page.locator("#id_text").fill('{"a": 1,\n "b": }')
        page.get_by_role("button", name="Explain").click()
        expect(page.locator(".cy-wrong-place mark")).to_have_text("}")
        keep(page, f"explain-refused-{width}")
