"""The main path of sources in a real browser: credentials, dry run, start, books, stop, failure."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Page, StorageState, expect

from tests.e2e.chromium import SLOW, field, keep, watch
from tests.e2e.installation import Installation
from tests.sources.octoparse_double import PASSWORD as VENDOR_PASSWORD
from tests.sources.octoparse_double import TASK, USER, OctoparseDouble, serving

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]
LIST = "/admin/sources/sourcestate/"
# As long as Chinese texts get, with nothing to break at.
LONG = "公司新闻列表每半小时抓取一次七天之内的数据保留更早的数据不要重复抓取" * 3


@pytest.fixture(scope="module")
def double() -> Iterator[OctoparseDouble]:
    with serving(OctoparseDouble(2_000)) as double:
        yield double


@pytest.fixture(scope="module")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    """The web and a collector, with everything embedded."""
    folder = tmp_path_factory.mktemp("sources")
    with Installation(folder, {}, SOURCES_ALLOWED_NETWORKS="127.0.0.0/8") as installation:
        installation.start_some("collector")
        yield installation


def apply(installation: Installation, folder: Path, **sources: dict[str, Any]) -> None:
    """The active sources of the project."""
    file = folder / "sources.json"
    file.write_text(json.dumps({"sources": sources}))
    installation.daemons.manage("config", "apply", "--project", "default", "sources", str(file))


def octoparse(double: OctoparseDouble, **more: Any) -> dict[str, Any]:
    return {
        "base_url": double.url,
        "task_id": TASK,
        "credentials": "vendor",
        "auto_start": False,
        "rate_limit": 20,
        **more,
    }


def card(page: Page, name: str) -> Locator:
    return page.locator(f'[data-source="{name}"]')


def press(page: Page, name: str, button: str) -> None:
    card(page, name).get_by_role("button", name=button).click()


def counts(page: Page, name: str, **wanted: str) -> None:
    """The books of its newest harvest, as soon as the page has them."""
    for count, value in wanted.items():
        box = card(page, name).locator(f'[data-count="{count}"]')
        expect(box).to_have_text(value, timeout=SLOW)
    expect(card(page, name).locator("[data-balanced]")).to_have_attribute("data-balanced", "true")


@pytest.mark.covers("S0.8", "S0.17", "S0.20")
def test_a_source_is_configured_looked_at_harvested_and_stopped(
    page: Page,
    installation: Installation,
    double: OctoparseDouble,
    tmp_path: Path,
    problems: list[str],
) -> None:
    page.goto("/admin/sources/credential/add/")
    page.locator("#id_project").select_option(index=1)
    for box, value in (("name", "vendor"), ("username", USER), ("password", VENDOR_PASSWORD)):
        field(page, box).fill(value)
    page.get_by_role("button", name="Save", exact=True).click()
    page.wait_for_url("**/credential/")
    expect(page.locator("#result_list")).to_contain_text("user name, password")

    broken = {"kind": "json", "base_url": f"{double.url}/nothing", "retries": 0}
    apply(
        installation,
        tmp_path,
        news=octoparse(double, description=LONG),
        broken=broken | {"auto_start": False},
    )
    page.goto(LIST)
    expect(page.locator("[data-connection]")).to_have_text("Live")
    press(page, "news", "Dry run")
    said = "20 batches: 2,000 new and 0 already imported records, of 2,000 in total"
    expect(page.locator("body")).to_contain_text(said)
    expect(card(page, "news")).to_contain_text("No imports yet.")

    press(page, "news", "Start")
    counts(page, "news", read="2,000", published="2,000", filtered="0")
    expect(card(page, "news")).to_have_attribute("data-activity", "idle", timeout=SLOW)
    expect(card(page, "news")).to_contain_text("last start offset 1,900")
    expect(page.locator('[data-queue="job_data"]')).to_contain_text("2,000 records available")
    expect(page.locator("[data-troubles]")).to_have_count(0)

    # Only what is new, and the batch in which the last one began.
    double.total = 2_500
    press(page, "news", "Dry run")
    said = "6 batches: 500 new and 100 already imported records, of 2,500 in total"
    expect(page.locator("body")).to_contain_text(said)
    press(page, "news", "Start")
    counts(page, "news", read="600", published="500", re_read="100")
    keep(page, "sources")

    # What failed is said first.
    press(page, "broken", "Start")
    troubles = page.locator("[data-troubles]")
    expect(troubles).to_contain_text("broken failed", timeout=SLOW)
    expect(troubles).to_contain_text("status 401")
    above, below = troubles.bounding_box(), card(page, "news").bounding_box()
    assert above is not None
    assert below is not None
    assert above["y"] < below["y"]
    keep(page, "sources-failed")

    # A stop holds after the batch in hand, and the next start goes on there.
    double.total, double.latency = 12_500, 0.3
    press(page, "news", "Start")
    expect(card(page, "news").locator("[data-progress]")).to_be_visible(timeout=SLOW)
    keep(page, "sources-running")
    press(page, "news", "Stop")
    expect(card(page, "news")).to_have_attribute("data-activity", "idle", timeout=SLOW)
    expect(card(page, "news")).to_contain_text("stopped by a user")
    double.latency = 0.0
    card(page, "news").get_by_role("link", name="news").click()
    expect(page.locator("tr[data-harvest]")).to_have_count(3)
    press(page, "news", "Start")
    expect(page.locator("tr[data-harvest]")).to_have_count(4, timeout=SLOW)
    expect(page.locator("tr[data-harvest]").first).to_contain_text("resumed")
    expect(card(page, "news")).to_contain_text("last start offset 12,400", timeout=SLOW)
    keep(page, "sources-one")
    assert problems == []
    assert installation.tracebacks() == {}


@pytest.mark.parametrize(
    ("language", "scheme"),
    [
        ("en", "dark"),
        pytest.param("zh-hans", "light", marks=pytest.mark.long("the same in English")),
    ],
)
def test_pages_fit_a_phone(
    browser: Browser,
    installation: Installation,
    session: StorageState,
    double: OctoparseDouble,
    tmp_path: Path,
    problems: list[str],
    language: str,
    scheme: str,
) -> None:
    long = "very-long-name-without-a-place-to-break-at-0123456789-abcdefghij"
    apply(
        installation,
        tmp_path,
        **{long: octoparse(double, description=LONG), "news": octoparse(double)},
    )
    context = browser.new_context(
        base_url=installation.address,
        viewport={"width": 390, "height": 844},
        storage_state=session,
        color_scheme="dark" if scheme == "dark" else "light",
        locale="zh-CN" if language == "zh-hans" else "en-GB",
    )
    phone = context.new_page()
    watch(phone, problems)
    ends = ("sourcestate/", f"sourcestate/source/?name={long}", "sourcestate/source/?name=news")
    for end in (*ends, "harvest/", "credential/", "credential/add/"):
        phone.goto(f"/admin/sources/{end}")
        phone.wait_for_load_state()
        assert phone.locator("html").get_attribute("lang") == language
        width = phone.evaluate("document.documentElement.scrollWidth")
        assert width <= 390, f"{end} is {width} wide"
        slug = end.replace("/", "-").replace(long, "long").replace("?name=", "")
        keep(phone, f"sources-phone-{slug}-{scheme}")
    context.close()
    assert problems == []
