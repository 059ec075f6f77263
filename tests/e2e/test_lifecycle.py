"""A run is paused, resumed, restarted and stopped by a user, with every part real."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, StorageState, expect

from tests.e2e.counting_site import CountingSite, tree
from tests.e2e.demo_process import Demo

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]

PAGES = 300
ADDRESSES = PAGES + 1
# Where to keep pictures of the pages.
PICTURES = os.environ.get("CRAWLYARD_PICTURES")


@pytest.fixture(scope="module")
def site() -> Iterator[CountingSite]:
    with CountingSite(tree(PAGES)) as counting:
        yield counting


@pytest.fixture(scope="module")
def demo(site: CountingSite, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    demo = Demo(tmp_path_factory.mktemp("lifecycle"), "--json", "--url", site.url)
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


def keep(page: Page, name: str) -> None:
    """Pictures for a wide screen and for a phone."""
    if not PICTURES:
        return
    for width in (1280, 390):
        page.set_viewport_size({"width": width, "height": 900})
        page.screenshot(path=Path(PICTURES) / f"{name}-{width}.png", full_page=True)
    page.set_viewport_size({"width": 1280, "height": 900})


def call(page: Page, method: str, path: str, body: dict[str, Any]) -> dict[str, Any]:
    """REST, as the person who is logged in."""
    token = next(one["value"] for one in page.context.cookies() if one["name"] == "csrftoken")
    headers = {"X-CSRFToken": token}
    answer = page.request.fetch(f"/api/v1/{path}", method=method, data=body, headers=headers)
    assert answer.ok, answer.text()
    found: dict[str, Any] = answer.json()
    return found


def start(page: Page, *, speed: float) -> int:
    """Slow the job down, start it and go to the page of its run; the number of the run."""
    page.goto("/admin/")
    call(page, "PATCH", "jobs/1", {"speed": speed})
    run: int = call(page, "POST", "jobs/1/start", {"overlap": "allow"})["id"]
    page.goto(f"/runs/{run}")
    return run


def is_now(page: Page, state: str) -> None:
    found = page.locator("#run [data-state]").first
    expect(found).to_have_attribute("data-state", state, timeout=60_000)


def press(page: Page, name: str) -> None:
    page.locator("#run .cy-actions").get_by_role("button", name=name, exact=True).click()
    if name in ("Restart", "Stop"):
        # The page that asks has one button of this name.
        page.locator("#content-main").get_by_role("button", name=name, exact=True).click()


def fetch(page: Page, run: int) -> dict[str, Any]:
    found: dict[str, Any] = page.request.get(f"/api/v1/runs/{run}").json()
    return found


@pytest.mark.covers("S1.8", "S1.9", "S1.10", "S1.11")
def test_pause_resume_restart_and_stop_from_the_page_of_the_run(
    page: Page, demo: Demo, site: CountingSite, problems: list[str]
) -> None:
    page.on("dialog", lambda dialog: dialog.accept())
    site.hits.clear()
    run = start(page, speed=20)
    is_now(page, "running")
    demo.until(lambda: sum(site.hits.values()) >= 20)
    press(page, "Pause")
    is_now(page, "paused")
    hits = sum(site.hits.values())
    expect(page.locator("[data-standing=done]").first).to_contain_text("pause")
    keep(page, "paused")
    # Twenty a second would have been asked for meanwhile.
    page.wait_for_timeout(2_000)
    assert sum(site.hits.values()) == hits < ADDRESSES

    press(page, "Resume")
    is_now(page, "running")
    demo.until(lambda: sum(site.hits.values()) > hits)

    boot = demo.child("run", "yardspider.spiders:SiteSpider").pid
    press(page, "Restart")
    demo.until(lambda: fetch(page, run)["restarts"] == 1)
    page.goto(f"/runs/{run}")
    is_now(page, "running")
    demo.until(lambda: demo.child("run", "yardspider.spiders:SiteSpider").pid != boot)
    # A word to stop that comes before it listens is not answered: it begins with the first page
    # again once it does.
    demo.until(lambda: site.hits["/0.html"] == 2)
    keep(page, "restarted")

    press(page, "Stop")
    is_now(page, "cancelled")
    keep(page, "stopped")
    shown = fetch(page, run)
    moves = [move["to_state"] for move in shown["moves"]]
    assert moves == [
        *("queued", "starting", "running", "pausing", "paused", "resuming", "running"),
        *("stopping", "starting", "running", "stopping", "cancelled"),
    ]

    def commands() -> list[dict[str, Any]]:
        found = page.request.get(f"/api/v1/runs/{run}/commands").json()["results"]
        return list(reversed(found))

    # The last answer may be read only after the end.
    demo.until(lambda: commands()[-1]["accepted"] is not None)
    assert [(one["action"], one["accepted"]) for one in commands()] == [
        ("pause", True),
        ("resume", True),
        ("restart", True),
        ("exit", True),
    ]
    assert problems == []


@pytest.mark.covers("S1.9", "S1.11")
def test_a_run_that_was_paused_gets_every_page_once(
    page: Page, demo: Demo, site: CountingSite
) -> None:
    site.hits.clear()
    run = start(page, speed=60)
    demo.until(lambda: sum(site.hits.values()) >= 30)
    press(page, "Pause")
    is_now(page, "paused")
    press(page, "Resume")
    is_now(page, "exited")
    assert len(site.hits) == ADDRESSES
    assert set(site.hits.values()) == {1}
    counters = page.request.get(f"/api/v1/runs/{run}/counters").json()
    assert (counters["total"], counters["success"], counters["left"]) == (ADDRESSES, ADDRESSES, 0)
    assert counters["balanced"]


def test_the_page_of_a_run_fits_a_phone(page: Page, demo: Demo) -> None:
    page.goto("/admin/jobs/run/")
    for path in ("/runs/1", "/runs/2"):
        page.set_viewport_size({"width": 390, "height": 844})
        page.goto(path)
        page.wait_for_load_state("networkidle")
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, path
