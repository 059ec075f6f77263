"""Debian's Chromium for tests of the pages: how it is started, watched and pictured."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, Locator, Page, sync_playwright

ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
# The same engine without windows of its own starts and draws at half the cost.
BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser")
# Milliseconds that a page may take: the processes of an installation share the machine with it.
SLOW = 90_000
# Where to keep pictures of the pages: docs/images when they are made for the documentation.
PICTURES = os.environ.get("CRAWLYARD_PICTURES")


@contextmanager
def launched() -> Iterator[Browser]:
    """A browser of a test's own."""
    named = os.environ.get("CRAWLYARD_TEST_CHROMIUM")
    path = named or next(filter(None, map(shutil.which, BROWSERS)), None)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
        try:
            yield browser
        finally:
            browser.close()


def watch(page: Page, problems: list[str]) -> None:
    """Note every error of the page; what its security policy blocks is one too."""
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on(
        "console",
        lambda message: problems.append(message.text) if message.type == "error" else None,
    )


def field(page: Page, name: str) -> Locator:
    """A field of an admin form, on whichever of its tabs."""
    found = page.locator(f"#id_{name}")
    # A click that leads here waits until the page begins, not until it is all there; its tabs
    # work once its scripts have run.
    found.wait_for(state="attached")
    page.wait_for_load_state("domcontentloaded")
    tab = page.locator("div.tab-wrapper").filter(has=found)
    if tab.count():
        slug = (tab.get_attribute("x-show") or "").partition("'")[2].rstrip("'")
        page.locator(f"a[x-on\\:click=\"activeFieldsetTab = '{slug}'\"]").click()
    return found


def keep(page: Page, name: str, *, whole: bool = True) -> None:
    """A picture of the page, or of what a person sees of it without scrolling."""
    if PICTURES:
        page.screenshot(path=Path(PICTURES) / f"{name}.png", full_page=whole)
