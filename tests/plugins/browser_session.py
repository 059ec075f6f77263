"""A browser on a running web, and a person who has logged in: what every test of pages shares.

A module that needs more than the web names its own ``installation`` (module-wide); everything
else follows it::

    pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]

    def test_a_page(page, accessible, problems):
        page.goto("/admin/")
        assert accessible(page) == []
        assert problems == []
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal, Protocol

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, StorageState

from tests.e2e.chromium import SLOW, launched, watch
from tests.e2e.installation import PASSWORD, Installation

DESKTOP = {"width": 1280, "height": 900}
PHONE = {"width": 390, "height": 844}
LOCALES = {"en": "en-GB", "zh-hans": "zh-CN"}
# What axe calls worse than a nuisance: people with a screen reader or weak eyes are kept out.
GRAVE = ("serious", "critical")


class OpenPage(Protocol):
    """Opens a page of one's own; it is closed, and its errors are known, when the test ends."""

    def __call__(
        self,
        language: str = "en",
        scheme: Literal["light", "dark"] = "light",
        *,
        phone: bool = False,
    ) -> Page: ...


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Chromium, for one module."""
    with launched() as browser:
        yield browser


@pytest.fixture(scope="module")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    """The web alone, with everything embedded."""
    with Installation(tmp_path_factory.mktemp("web"), {}) as installation:
        installation.start_some()
        yield installation


@pytest.fixture(scope="module")
def address(installation: Installation) -> str:
    """Where the web is."""
    return installation.address


@pytest.fixture(scope="module")
def session(browser: Browser, address: str) -> StorageState:
    """Cookies of the superuser ``admin``."""
    context = browser.new_context(base_url=address)
    page = context.new_page()
    page.goto("/admin/login/")
    page.locator("#id_username").fill("admin")
    page.locator("#id_password").fill(PASSWORD)
    page.locator("#id_password").press("Enter")
    page.wait_for_url("**/admin/")
    state = context.storage_state()
    context.close()
    return state


@pytest.fixture
def problems() -> list[str]:
    """Every error of every page of this test; what the security policy blocks is one too."""
    return []


@pytest.fixture
def open_page(
    browser: Browser, address: str, session: StorageState, problems: list[str]
) -> Iterator[OpenPage]:
    """Pages in a language, light or dark, as wide as a desk or a phone."""
    contexts: list[BrowserContext] = []

    def opened(
        language: str = "en", scheme: Literal["light", "dark"] = "light", *, phone: bool = False
    ) -> Page:
        context = browser.new_context(
            base_url=address,
            viewport=PHONE if phone else DESKTOP,
            storage_state=session,
            color_scheme=scheme,
            locale=LOCALES[language],
        )
        contexts.append(context)
        context.set_default_timeout(SLOW)
        page = context.new_page()
        watch(page, problems)
        return page

    yield opened
    for context in contexts:
        context.close()


@pytest.fixture
def page(open_page: OpenPage) -> Page:
    """The usual one: English, light, as wide as a desk."""
    return open_page()


@pytest.fixture
def chinese_page(open_page: OpenPage) -> Page:
    """The same in Chinese."""
    return open_page("zh-hans")


@pytest.fixture(scope="session")
def accessible() -> Callable[[Page], list[str]]:
    """``accessible(page)``: what axe-core finds serious or critical, each with where it is."""
    # Only here: it reads half a megabyte of script.
    from axe_playwright_python.sync_playwright import Axe

    axe = Axe()

    def grave(page: Page) -> list[str]:
        # What fades in has the contrast of its end only then.
        page.evaluate(
            "Promise.allSettled(document.getAnimations()"
            ".filter((each) => each.effect.getComputedTiming().iterations < 100)"
            ".map((each) => each.finished))"
        )
        # Of what passes one example is enough: else a long page is described node by node.
        found = axe.run(page, options={"resultTypes": ["violations"]}).response["violations"]
        return [
            f"{rule['impact']} {rule['id']}: {node['target'][-1]} {node['html'][:120]}"
            for rule in found
            if rule["impact"] in GRAVE
            for node in rule["nodes"]
        ]

    return grave


def fits(page: Page) -> bool:
    """Whether nothing is wider than the window."""
    inside: bool = page.evaluate(
        "document.documentElement.scrollWidth <= document.documentElement.clientWidth"
    )
    return inside
