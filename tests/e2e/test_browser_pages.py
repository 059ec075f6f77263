"""The main pages in a real browser: for everybody, on every screen, by keys alone."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Literal

import pytest
from playwright.sync_api import Page, expect

from tests.e2e.chromium import keep
from tests.e2e.installation import Installation
from tests.plugins.browser_session import OpenPage, fits

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]

PAGES = {
    "home": "/admin/",
    "run": "/runs/1",
    "runs": "/admin/jobs/run/?state__in=failed",
    "jobs": "/admin/jobs/job/",
    "job": "/admin/jobs/job/1/change/",
    "job-overview": "/jobs/1",
    "agents": "/admin/agents/agent/",
    "agent": "/admin/agents/agent/1/change/",
    "hosts": "/admin/jobs/host/",
    "queues": "/admin/queuestats/queuestate/",
    "incidents": "/admin/alerts/incident/",
    "incident": "/admin/alerts/incident/1/change/",
    "logs": "/logs",
    "failures": "/admin/health",
    "runbook": "/admin/health/runbook?section=run_center",
    "keys": "/admin/keys",
    "trail": "/admin/access/auditrecord/",
    "change": "/admin/access/auditrecord/1/change/",
    "rules": "/admin/routing/routerreport/rules/",
    "frontiers": "/admin/seeds/frontier/",
    "sources": "/admin/sources/sourcestate/",
    "bizzes": "/admin/requeststore/shardreport/",
}
OTHERS = pytest.mark.long("the same in light, and every page in Chinese, dark and on a phone")
LOOKS = [
    ("en", "light", False),
    pytest.param("zh-hans", "dark", True, marks=OTHERS),
    pytest.param("en", "dark", False, marks=OTHERS),
    pytest.param("zh-hans", "light", True, marks=OTHERS),
]


@pytest.fixture(scope="module")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    """The web alone, after a busy day."""
    with Installation(tmp_path_factory.mktemp("pages"), {}) as installation:
        installation.start_some()
        installation.fill()
        yield installation


@pytest.mark.parametrize(("language", "scheme", "phone"), LOOKS)
def test_the_main_pages_are_for_everybody(
    open_page: OpenPage,
    accessible: Callable[[Page], list[str]],
    problems: list[str],
    language: str,
    scheme: Literal["light", "dark"],
    phone: bool,
) -> None:
    page = open_page(language, scheme, phone=phone)
    wrong = []
    for name, address in PAGES.items():
        answer = page.goto(address)
        assert answer is not None
        assert answer.status == 200, address
        assert page.locator("html").get_attribute("lang") == language
        page.wait_for_load_state()
        wrong += [f"{name}: {each}" for each in accessible(page)]
        if not fits(page):
            wrong.append(f"{name}: too wide")
        keep(page, f"page-{name}-{language}-{scheme}{'-phone' if phone else ''}")
    assert wrong == []
    assert problems == []


def test_the_palette_leads_to_a_run(page: Page, problems: list[str]) -> None:
    page.goto("/admin/jobs/job/")
    page.locator("body").press("Control+k")
    field = page.locator("#search-input-command")
    expect(field).to_be_focused()
    field.fill("#1")
    expect(page.locator("#command-results-list a").first).to_have_attribute("href", "/runs/1")
    field.press("Enter")
    page.wait_for_url("**/runs/1")
    # The button in the sidebar opens the same, and what fits nothing says what there is.
    page.locator("[data-palette]").click()
    field.fill("no such thing anywhere")
    nothing = page.locator("[data-nothing] a")
    expect(nothing).to_be_visible()
    field.press("Escape")
    field.press("Escape")
    expect(field).to_be_hidden()
    assert problems == []


def test_the_open_palette_is_accessible(
    page: Page, accessible: Callable[[Page], list[str]], problems: list[str]
) -> None:
    page.goto("/admin/")
    page.locator("[data-palette]").click()
    page.locator("#search-input-command").fill("papers")
    expect(page.locator("#command-results-list a").first).to_be_visible()
    assert accessible(page) == []
    keep(page, "palette", whole=False)
    assert problems == []


def test_keys_lead_from_page_to_page(page: Page, problems: list[str]) -> None:
    page.goto("/admin/")
    body = page.locator("body")
    body.press("g")
    body.press("j")
    page.wait_for_url("**/admin/jobs/job/")
    body.press("/")
    search = page.locator("#searchbar")
    expect(search).to_be_focused()
    # Letters that are typed into a field are letters.
    search.press_sequentially("gr?")
    expect(search).to_have_value("gr?")
    search.blur()
    body.press("?")
    page.wait_for_url("**/admin/keys")
    page.locator("[data-single-keys]").uncheck()
    body.press("g")
    body.press("h")
    page.wait_for_timeout(500)
    assert page.url.endswith("/admin/keys")
    assert problems == []


def test_a_filter_is_kept_renamed_and_deleted(page: Page, problems: list[str]) -> None:
    page.goto("/admin/jobs/run/?state__in=failed")
    page.get_by_label("Name of this filter", exact=True).fill("Broken")
    page.get_by_role("button", name="Save filter").click()
    chip = page.locator(".cy-chip", has_text="Broken")
    expect(chip).to_have_attribute("aria-current", "true")
    page.goto("/admin/jobs/run/")
    chip.click()
    page.wait_for_url(re.compile(r"state__in=failed"))
    page.get_by_text("Edit", exact=True).click()
    page.get_by_label("Name of the filter Broken").fill("Failed ones")
    page.get_by_role("button", name="Rename").click()
    expect(page.locator(".cy-chip", has_text="Failed ones")).to_be_visible()
    page.get_by_text("Edit", exact=True).click()
    page.get_by_role("button", name="Delete the filter").click()
    expect(page.locator(".cy-chip")).to_have_count(0)
    assert problems == []


def test_the_history_of_a_job_tells_what_changed(page: Page, problems: list[str]) -> None:
    page.goto("/admin/jobs/job/1/change/")
    page.locator('a[href="/admin/jobs/job/1/history/"]').click()
    expect(page.locator("[data-history-of]")).to_contain_text("Everything that was done to job 1.")
    page.locator("#result_list a", has_text=re.compile(r"\d{2}:\d{2}")).first.click()
    speed = page.locator('[data-field="speed"]')
    expect(speed.locator(".cy-was")).to_have_text("10.0")
    expect(speed.locator(".cy-is")).to_have_text("20.0")
    expect(page.locator('[data-field="notes"] [data-sign="+"]')).to_have_count(2)
    assert problems == []


def test_the_failure_page_counts_what_hangs_on_each_part(page: Page, problems: list[str]) -> None:
    page.goto("/admin/health")
    expect(page.locator("[data-connection]")).to_have_text("Live")
    broker = page.locator('[data-part="broker"]')
    expect(broker).to_have_attribute("data-part-state", "well")
    expect(broker.locator("[data-fact]").nth(1)).to_have_text("3,300")
    expect(page.locator('[data-part="center"]')).to_have_attribute("data-part-state", "away")
    page.locator('[data-part="center"]').get_by_role("link", name="Runbook").click()
    expect(page.locator(".cy-runbook")).to_contain_text("SIGTERM")
    assert problems == []
