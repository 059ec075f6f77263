"""The main path in a real browser: log in, start the job, watch the counters, see the end."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, StorageState, expect

from tests.e2e.chromium import field, keep, watch
from tests.e2e.demo_process import Demo

pytestmark = [pytest.mark.browser, pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    demo = Demo(tmp_path_factory.mktemp("browser"), "--json")
    try:
        demo.until(lambda: demo.stdout.endswith("}\n"), 90)
        yield demo
    finally:
        demo.end()


@pytest.fixture(scope="module")
def address(demo: Demo) -> str:
    return demo.address


@pytest.fixture(scope="module")
def session(browser: Browser, demo: Demo) -> StorageState:
    return demo.log_in(browser)


def counter(page: Page, name: str) -> int:
    text = page.locator(f'[data-counter="{name}"]').first.inner_text()
    return int(re.sub(r"\D", "", text))


def test_a_person_starts_the_sample_job_and_watches_it_end(
    page: Page, demo: Demo, problems: list[str]
) -> None:
    page.goto("/admin/")
    keep(page, "home")
    page.goto("/admin/jobs/job/")
    page.get_by_role("link", name="Sample site", exact=True).click()
    page.locator(".cy-tabs").get_by_role("link", name="Settings", exact=True).click()
    # Slow enough for a person to watch.
    field(page, "speed").fill("25")
    page.get_by_role("button", name="Save", exact=True).click()
    page.wait_for_url(re.compile(r"/jobs/\d+$"))
    page.get_by_role("button", name="Start", exact=True).click()
    page.wait_for_url(re.compile(r"/runs/\d+$"))
    state = page.locator("#run [data-state]").first
    expect(state).to_have_attribute("data-state", "running", timeout=30_000)
    seen: list[int] = []
    pictured = False
    while state.get_attribute("data-active") == "true" and len(seen) < 400:
        seen.append(counter(page, "success"))
        if seen[-1] > 120 and not pictured:
            pictured = True
            keep(page, "run")
        page.wait_for_timeout(100)
    expect(state).to_have_attribute("data-state", "exited", timeout=60_000)
    expect(state).to_have_attribute("data-final", "true", timeout=30_000)
    assert len(set(seen)) > 4, f"the counters did not move: {seen}"
    assert seen == sorted(seen)
    figures = {name: counter(page, name) for name in ("left", "total", "success", "failed")}
    pages = demo.report()["pages"]
    assert figures == {"left": 0, "total": pages, "success": pages, "failed": 0}
    expect(page.locator("#run")).to_contain_text("All requests accounted for.")
    keep(page, "run-ended")
    assert problems == []


def test_the_pages_speak_chinese(chinese_page: Page, demo: Demo, problems: list[str]) -> None:
    page = chinese_page
    page.goto("/admin/jobs/run/")
    expect(page.locator("html")).to_have_attribute("lang", "zh-hans")
    expect(page.locator("body")).to_contain_text("运行")
    page.goto("/runs/1")
    expect(page.locator("#run")).to_contain_text("请求核对一致")
    keep(page, "run-zh")
    assert problems == []


@pytest.mark.parametrize(
    "scheme", ["light", pytest.param("dark", marks=pytest.mark.long("the same in light"))]
)
def test_pages_work_under_their_security_policy(
    browser: Browser, demo: Demo, session: StorageState, problems: list[str], scheme: Any
) -> None:
    address = f"http://127.0.0.1:{demo.port}"
    for state in (None, session):
        context = browser.new_context(base_url=address, color_scheme=scheme, storage_state=state)
        page = context.new_page()
        watch(page, problems)
        if state is None:
            page.goto("/admin/login/")
            page.get_by_role("button", name="Log in").click(trial=True)
        else:
            for path in (
                "/admin/",
                "/admin/jobs/job/",
                "/admin/jobs/job/1/change/",
                "/jobs/1",
                "/runs/1",
            ):
                page.goto(path)
                expect(page.locator("nav, header").first).to_be_visible()
            page.goto("/api/v1/docs")
            page.get_by_role("button", name="Expand operation").first.wait_for()
            page.get_by_role("link", name="jobs", exact=True).click()
            expect(page.get_by_text("/api/v1/jobs", exact=True).first).to_be_visible()
        context.close()
    assert problems == []
