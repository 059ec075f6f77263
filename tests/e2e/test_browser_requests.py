"""The main path of the request store in a real browser: handed in, looked up, re-balanced."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, StorageState, expect

from tests.e2e.chromium import SLOW, keep, watch
from tests.e2e.installation import Installation
from tests.plugins.stores import lend_rabbit_vhost

pytestmark = [pytest.mark.services, pytest.mark.browser, pytest.mark.timeout(600)]
ROOT = "/admin/requeststore/shardreport/"
# As long as Chinese texts get, with nothing to break at.
LONG = "新闻评论页每三天抓取一次同一地址在三天之内只抓取一次超过三天之后视为新的请求重新抓取" * 3


class Configured(Installation):
    """With the bizzes of one project, which a test may change."""

    def apply(self, **bizzes: object) -> None:
        file = self.daemons.folder / "bizzes.yaml"
        file.write_text(json.dumps({"bizzes": bizzes}, ensure_ascii=False))
        self.daemons.manage("config", "apply", "biz", str(file), "--project", "default")
        # Within a second every process has it.
        time.sleep(1.5)


@pytest.fixture(scope="module")
def installation(tmp_path_factory: pytest.TempPathFactory, redis_url: str) -> Iterator[Configured]:
    """The web and a worker, on embedded storage nodes and a Redis queue."""
    with lend_rabbit_vhost() as broker:
        stores = {"BROKER_URL": broker, "REDIS_URL": redis_url}
        with Configured(tmp_path_factory.mktemp("requests"), stores) as installation:
            installation.start_some("worker")
            yield installation


def tab(page: Page, name: str) -> None:
    page.locator(".cy-tabs").get_by_role("link", name=name, exact=True).click()


def hand_in(installation: Configured, number: int) -> list[str]:
    """Requests by REST; their ids."""
    (biz,) = (each for each in installation.rest.rows("/bizzes") if each["name"] == "news")
    urls = [f"https://example.com/{each}" for each in range(number)]
    body = {"project": biz["project"], "biz": "news", "requests": urls}
    ids: list[str] = installation.rest.make("/requests", **body)["ids"]
    return ids


@pytest.mark.covers("S4.29", "S4.14")
def test_requests_are_handed_in_looked_up_and_rebalanced(
    page: Page, installation: Configured, problems: list[str]
) -> None:
    page.on("dialog", lambda dialog: dialog.accept())
    installation.apply(news={"description": "News of the day", "epochs": [{"splits": 4}]})
    page.goto(ROOT)
    page.get_by_role("link", name="news", exact=True).click()
    expect(page.locator("#names-title")).to_be_visible()
    tab(page, "Submit")
    page.locator("#id_url").fill("https://example.com/one")
    page.get_by_role("button", name="Submit").click()
    number = page.locator("[data-id]").get_attribute("data-id") or ""
    expect(page.locator("[data-step]")).to_have_count(2)
    keep(page, "requests-story")

    ids = hand_in(installation, 80)
    page.goto(ROOT)
    page.locator('input[name="id"]').fill(f" {number} ")
    page.get_by_role("button", name="Find", exact=True).click()
    expect(page.locator("[data-id]")).to_have_text(number)
    tab(page, "Requests")
    expect(page.locator(f'a[href$="/request/{ids[-1]}"]')).to_be_visible()
    keep(page, "requests-list")

    since = int(time.time() * 1000)
    installation.apply(news={"epochs": [{"splits": 4}, {"since": since, "splits": 16}]})
    tab(page, "Re-balance")
    would = page.locator("[data-would]")
    expect(would).to_have_text(re.compile(r"\d+ of 81 requests would move to 16 splits\."))
    keep(page, "requests-rebalance")
    moved = (re.search(r"(\d+) of", would.inner_text()) or ["", ""])[1]
    page.get_by_role("button", name="Start re-balance").click()
    row = page.locator("tr[data-rebalance]").first
    # The page follows the worker without being asked.
    expect(row).to_have_attribute("data-state", "done", timeout=SLOW)
    expect(row.locator("[data-moved]")).to_have_text(moved)
    expect(page.locator("body")).to_contain_text("Remove the older epochs from the settings")
    for each in (ids[0], ids[-1], number):
        page.goto(f"{ROOT}request/{each}")
        expect(page.locator("[data-id]")).to_have_text(each)
    assert problems == []
    assert installation.tracebacks() == {}


@pytest.mark.parametrize(
    "scheme", ["light", pytest.param("dark", marks=pytest.mark.long("the same in light"))]
)
def test_pages_fit_a_phone_with_long_texts(
    browser: Browser,
    installation: Configured,
    session: StorageState,
    problems: list[str],
    scheme: str,
) -> None:
    name = "a_biz_with_the_longest_name_of_a"
    epochs = [{"splits": 4}, {"since": 1, "splits": 9}]
    installation.apply(**{"news": {}, name: {"description": LONG, "epochs": epochs}})
    (biz,) = (each for each in installation.rest.rows("/bizzes") if each["name"] == name)
    request = {
        "url": f"https://example.com/{'a' * 300}?token=x",
        "headers": {"X-Very-Long-Header-Name-Without-A-Break": "v" * 200},
        "meta": {"text": LONG},
    }
    body = {"project": biz["project"], "biz": name, "requests": [request]}
    (number,) = installation.rest.make("/requests", **body)["ids"]
    context = browser.new_context(
        base_url=installation.address,
        viewport={"width": 390, "height": 844},
        storage_state=session,
        color_scheme="dark" if scheme == "dark" else "light",
    )
    context.set_default_timeout(SLOW)
    phone = context.new_page()
    watch(phone, problems)
    pages = ("", "requests", "try-out", "rebalance")
    where = [ROOT, f"{ROOT}look-up", f"{ROOT}request/{number}"]
    for address in [*where, *(f"{ROOT}biz/{biz['id']}/{each}" for each in pages)]:
        phone.goto(address)
        phone.wait_for_load_state()
        width = phone.evaluate("document.documentElement.scrollWidth")
        assert width <= 390, f"{address} is {width} wide"
        slug = re.sub(r"\W+", "-", address.removeprefix(ROOT).replace(number, "story")).strip("-")
        keep(phone, f"requests-phone-{slug}-{scheme}")
    context.close()
    assert problems == []
