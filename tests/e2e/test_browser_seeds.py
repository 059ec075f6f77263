"""The main path of seeds in a real browser: from a frontier to one with other rules."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, StorageState, expect

from tests.e2e.chromium import SLOW, field, keep, watch
from tests.e2e.installation import Installation
from tests.plugins.stores import lend_rabbit_vhost

pytestmark = [pytest.mark.services, pytest.mark.browser, pytest.mark.timeout(600)]
LIST = "/admin/seeds/frontier/"
# As long as Chinese texts get, with nothing to break at.
LONG = "新闻评论页每三天抓取一次同一地址在三天之内只抓取一次超过三天之后视为新的种子重新抓取" * 3


@pytest.fixture(scope="module")
def installation(
    tmp_path_factory: pytest.TempPathFactory, redis_url: str
) -> Iterator[Installation]:
    """The web, the seed service and a worker."""
    # Of their own: nobody else answers calls about frontiers of the same number.
    with lend_rabbit_vhost() as broker:
        stores = {"BROKER_URL": broker, "REDIS_URL": redis_url}
        with Installation(tmp_path_factory.mktemp("seeds"), stores) as installation:
            installation.start_some("seeds", "worker")
            yield installation


def tab(page: Page, name: str) -> None:
    """Another page of the frontier."""
    page.locator(".cy-tabs").get_by_role("link", name=name, exact=True).click()


def make(page: Page, name: str, **fields: str) -> str:
    """A frontier by its form; the address of its page."""
    page.goto(f"{LIST}add/")
    page.locator("#id_project").select_option(index=1)
    for box, value in ({"name": name} | fields).items():
        field(page, box).fill(value)
    page.get_by_role("button", name="Save", exact=True).click()
    page.wait_for_url(re.compile(r"/frontier/\d+/$"))
    return page.url


def add(page: Page, *lines: str, when: str = "now") -> None:
    tab(page, "Add seeds")
    page.locator("#id_seeds").fill("\n".join(lines))
    page.locator("#id_when").select_option(when)
    page.get_by_role("button", name="Add", exact=True).click()


def look_up(page: Page, url: str) -> None:
    tab(page, "Look up a URL")
    page.locator("#id_url").fill(url)
    page.get_by_role("button", name="Look up", exact=True).click()


def count(page: Page, name: str, value: str) -> None:
    """What the books say, as soon as the service has reported it."""
    expect(page.locator(f'[data-books="{name}"]')).to_have_text(value, timeout=SLOW)


@pytest.mark.covers("S3.2", "S3.3", "S3.9")
def test_seeds_are_added_looked_up_forgotten_dropped_and_moved(
    page: Page, installation: Installation, problems: list[str]
) -> None:
    page.on("dialog", lambda dialog: dialog.accept())
    # While somebody types, the page says what the rules do.
    page.goto(f"{LIST}add/")
    hint = page.locator("[data-hint-shown]")
    field(page, "keys").fill("canonical")
    page.locator("#id_example").fill("https://Example.com/?b=2&a=1#top")
    expect(hint).to_contain_text("https://example.com/?a=1&b=2")
    field(page, "segments").fill("dag")
    expect(hint).to_contain_text("there is no resolver 'dag'")
    field(page, "segments").fill("none")
    expect(hint).to_contain_text("All seeds are in one segment")
    keep(page, "seeds-add")

    make(page, "news", keys="page", description="News of the day")
    expect(page.locator("body")).to_contain_text(
        "No seeds yet. Added seeds appear here by segment."
    )
    add(page, "https://a.cn/1", "https://a.cn/2", "https://a.cn/1#top", "https://a.cn/3")
    expect(page.locator("#answer-title")).to_have_text("3 new, 1 duplicates, 0 rejected.")
    add(page, "https://a.cn/1", when="default")
    expect(page.locator("#answer-title")).to_have_text("1 new, 0 duplicates, 0 rejected.")
    tab(page, "Overview")
    # The page follows the reports without being asked.
    count(page, "added", "4")
    count(page, "pending", "4")
    expect(page.locator("[data-connection]")).to_have_text("Live")
    expect(page.locator(".cy-balance")).to_contain_text("All seeds accounted for")
    today = page.locator('tr[data-when="now"]')
    expect(today.locator('[data-count="duplicates"]')).to_have_text("1")

    look_up(page, "https://a.cn/2#comments")
    expect(page.locator("#answer-title")).to_contain_text("Known since")
    expect(page.locator("[data-known-state]")).to_contain_text("pending", ignore_case=True)
    keep(page, "seeds-look-up")
    page.get_by_role("button", name="Forget").click()
    page.locator("#content-main").get_by_role("button", name="Forget").click()
    expect(page.locator("body")).to_contain_text("Forgotten: its key")
    look_up(page, "https://a.cn/2")
    expect(page.locator("#answer-title")).to_have_text("New: not in the URL queue yet.")
    tab(page, "Overview")
    count(page, "forgotten", "1")

    # Other rules: what they would do, then the moving.
    tab(page, "Granularity")
    page.locator("#id_segments").fill("none")
    page.get_by_role("button", name="Preview").click()
    expect(page.locator("#answer-title")).to_contain_text("3 seeds would be moved")
    expect(page.locator("#answer")).to_contain_text("default segment")
    keep(page, "seeds-granularity")
    page.get_by_role("button", name="Move 3 seeds").click()
    move = page.locator("tr[data-operation]").first
    expect(move).to_have_attribute("data-state", "done", timeout=SLOW)
    expect(page.locator('[data-segment="0"] [data-count="pending"]')).to_have_text(
        "2", timeout=SLOW
    )
    count(page, "pending", "2")

    # A segment goes when somebody has seen what is in it.
    page.locator('[data-segment="0"]').get_by_title("Drop this segment").click()
    page.get_by_role("button", name="Drop 2 seeds").click()
    expect(page.locator('tr[data-operation][data-state="done"]')).to_have_count(2, timeout=SLOW)
    count(page, "added", "0")

    page.get_by_role("button", name="Pause leasing").click()
    expect(page.locator("[data-troubles]")).to_contain_text("Paused: seeds are accepted")
    page.goto("/admin/")
    expect(page.locator("[data-seeds]")).to_contain_text("all seeds accounted for")
    assert problems == []
    assert installation.tracebacks() == {}


def test_a_file_goes_in_and_comes_out_again(
    page: Page, tmp_path: Path, problems: list[str]
) -> None:
    file = tmp_path / "种子.txt"
    file.write_text("".join(f"https://a.cn/{number}\n" for number in range(500)))
    make(page, "files")
    tab(page, "Add seeds")
    for new, known in (("500", "0"), ("0", "500")):
        page.locator("#id_file").set_input_files(file)
        page.get_by_role("button", name="Import").click()
        said = f"500 lines: {new} new, {known} duplicates, 0 rejected."
        expect(page.locator("[data-said]")).to_have_text(said)
    tab(page, "Overview")
    count(page, "pending", "500")
    with page.expect_download() as download:
        page.locator('[data-segment="0"]').get_by_title("Export its seeds").click()
    lines = download.value.path().read_text().splitlines()
    assert len(lines) == 500
    assert problems == []


@pytest.mark.parametrize(
    "scheme", ["light", pytest.param("dark", marks=pytest.mark.long("the same in light"))]
)
def test_pages_fit_a_phone_with_long_texts(
    browser: Browser,
    installation: Installation,
    session: StorageState,
    page: Page,
    problems: list[str],
    scheme: str,
) -> None:
    name = "very-long-name-without-a-place-to-break-at-0123456789-" + scheme
    where = make(page, name, description=LONG)
    add(page, f"https://a.cn/{'长' * 300}", "https://a.cn/2")
    tab(page, "Overview")
    count(page, "pending", "2")
    context = browser.new_context(
        base_url=installation.address,
        viewport={"width": 390, "height": 844},
        storage_state=session,
        color_scheme="dark" if scheme == "dark" else "light",
    )
    phone = context.new_page()
    watch(phone, problems)
    segment = page.locator("tr[data-segment]").get_attribute("data-segment")
    ends = ("", "look-up", "seeds", "granularity", "change/", f"drop?segment={segment}", "wipe")
    for address in (LIST, f"{LIST}add/", *(f"{where}{end}" for end in ends)):
        phone.goto(address)
        phone.wait_for_load_state()
        width = phone.evaluate("document.documentElement.scrollWidth")
        assert width <= 390, f"{address} is {width} wide"
        slug = re.sub(r"\W+", "-", address.partition("/frontier/")[2]).strip("-")
        keep(phone, f"seeds-phone-{slug}-{scheme}")
    context.close()
    assert problems == []


def test_the_page_says_that_the_service_is_gone(page: Page, installation: Installation) -> None:
    make(page, "lonely")
    add(page, "https://a.cn/1")
    tab(page, "Overview")
    count(page, "pending", "1")
    expect(page.locator("[data-troubles]")).to_have_count(0)
    installation.daemons.stop("seeds", signal.SIGKILL)
    troubles = page.locator("[data-troubles]")
    expect(troubles).to_contain_text("The seed service is unavailable", timeout=SLOW)
    expect(troubles).to_contain_text("No seed is lost")
    expect(troubles).to_contain_text(re.compile(r"last heartbeat \d+ s ago"))
    count(page, "pending", "1")
    keep(page, "seeds-away")
    look_up(page, "https://a.cn/1")
    expect(page.locator("#answer")).to_contain_text("The seed service is unavailable")
