"""The own account, the first link and the page that asks, in Chromium, wide and narrow."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from tests.e2e.chromium import keep
from tests.e2e.installation import Installation
from tests.plugins.browser_session import OpenPage

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]
WIDTHS = [
    pytest.param(False, id="wide"),
    pytest.param(True, id="phone", marks=pytest.mark.long("the same, wide; every page on a phone")),
]

WIDER = "document.documentElement.scrollWidth > document.documentElement.clientWidth"


@pytest.mark.parametrize("phone", WIDTHS)
def test_the_own_account(
    phone: bool, open_page: OpenPage, accessible: Callable[[Page], list[str]], problems: list[str]
) -> None:
    page = open_page(phone=phone)
    page.goto("/admin/account/")
    expect(page.get_by_role("heading", name="Active sessions")).to_be_visible()
    expect(page.get_by_text("this session")).to_be_visible()
    keep(page, f"access-account-{'phone' if phone else 'wide'}")
    assert not page.evaluate(WIDER)
    assert accessible(page) == []
    assert problems == []


@pytest.mark.parametrize("phone", WIDTHS)
def test_an_invitation_is_opened_by_its_link(
    phone: bool,
    open_page: OpenPage,
    installation: Installation,
    accessible: Callable[[Page], list[str]],
    problems: list[str],
) -> None:
    name = "anna-phone" if phone else "anna-wide"
    text = installation.daemons.manage("invite", name).stdout
    key = re.search(r"#(\S+)", text)
    assert key is not None
    page = open_page(phone=phone)
    page.context.clear_cookies()
    page.goto(f"/admin/welcome/#{key[1]}")
    expect(page.get_by_text(f"Choose a password for {name}")).to_be_visible()
    # Neither the address nor what stands before it has the key any more.
    assert key[1] not in page.url
    keep(page, f"access-welcome-{'phone' if phone else 'wide'}")
    assert not page.evaluate(WIDER)
    assert accessible(page) == []
    page.locator("#id_password").fill("correct horse battery")
    page.locator("#id_again").fill("correct horse battery")
    page.locator("#id_again").press("Enter")
    page.wait_for_url(lambda url: "/welcome/" not in url)
    assert problems == []


@pytest.mark.parametrize("phone", WIDTHS)
def test_deleting_many_asks_for_their_number(
    phone: bool,
    open_page: OpenPage,
    installation: Installation,
    accessible: Callable[[Page], list[str]],
) -> None:
    kind = "phone" if phone else "wide"
    for number in range(2):
        made = ADD.format(name=f"gone-{kind}-{number}")
        installation.daemons.manage("shell", "-v0", "-c", made)
    page = open_page(phone=phone)
    page.goto(f"/admin/access/user/?q=gone-{kind}")
    for tick in page.locator("input[name=_selected_action]").all():
        tick.check()
    page.locator("select[name=action]").first.select_option("delete_selected")
    page.get_by_role("button", name="Run", exact=False).first.click()
    expect(page.locator("#id_typed")).to_be_visible()
    keep(page, f"access-ask-{'phone' if phone else 'wide'}")
    assert not page.evaluate(WIDER)
    assert accessible(page) == []
    page.locator("#id_typed").fill("2")
    page.locator("#content-main").get_by_role("button", name="Delete", exact=True).click()
    expect(page.locator("body")).to_contain_text("2 users deleted")


# Without TLS there is no clipboard, and a browser may forbid the old way too.
FORBID = """
Object.defineProperty(navigator, "clipboard", {value: undefined});
document.execCommand = () => false;
"""


@pytest.mark.parametrize("phone", [False, True], ids=["wide", "phone"])
def test_a_new_token_is_copied(
    phone: bool, open_page: OpenPage, accessible: Callable[[Page], list[str]], problems: list[str]
) -> None:
    page = open_page(phone=phone)
    page.goto("/admin/access/apitoken/add/")
    page.locator("#id_name").fill("nightly")
    page.get_by_role("button", name="Save", exact=True).click()
    secret, button = page.locator("#new-token").inner_text(), page.locator("[data-copy]")
    assert secret.startswith("cy_")
    expect(button).to_have_text("Copy")
    keep(page, f"access-token-{'phone' if phone else 'wide'}")
    assert not page.evaluate(WIDER)
    assert accessible(page) == []
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    button.click()
    expect(button).to_have_text("Copied")
    assert page.evaluate("navigator.clipboard.readText()") == secret
    page.evaluate(FORBID)
    button.click()
    expect(button).to_have_text("Selected: press Ctrl+C")
    assert page.evaluate("window.getSelection().toString()").strip() == secret
    assert problems == []


ADD = "from apps.access.models import User; User.objects.create(username='{name}')"
