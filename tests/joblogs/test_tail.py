"""The live tail in a real browser: a log that grows, hostile lines, narrow and dark."""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from tests.e2e.daemon_processes import Daemons
from tests.e2e.demo_process import free_port
from tests.joblogs.factories import record
from yardkit import topology
from yardkit.broker import Broker, Outgoing, connect
from yardkit.protocol import LogBatch, LogRecord, encode

pytestmark = [pytest.mark.browser, pytest.mark.timeout(240)]

ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"]
# Where to keep pictures of the page: docs/images when they are made for the documentation.
PICTURES = os.environ.get("CRAWLYARD_PICTURES")
# A run and somebody who is logged in, made in a process like any other.
WORLD = """
from importlib import import_module
from django.conf import settings
from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
from django.utils import timezone
from apps.access.models import User
from apps.jobs.models import Job
from apps.jobs.services import start_run
from apps.projects.models import Project
project = Project.objects.create(name="News", slug="news")
names = ("headlines", "markets", "weather", "sport", "prices", "books")
jobs = [Job.objects.create(project=project, name=name, spider="news:All") for name in names]
runs = [start_run(job=job, now=timezone.now(), actor=None).pk for job in jobs]
user = User.objects.create_superuser(username="ops", password="a-better-one-4711")
session = import_module(settings.SESSION_ENGINE).SessionStore()
session[SESSION_KEY] = str(user.pk)
session[BACKEND_SESSION_KEY] = settings.AUTHENTICATION_BACKENDS[-1]
session[HASH_SESSION_KEY] = user.get_session_auth_hash()
session.save()
print(*runs, session.session_key)
"""
# Lines that have overtaken others, such as those of a new execution, are held back for 5 s.
HELD_BACK_MS = 30_000
AXE = {"runOnly": ["wcag2a", "wcag2aa"]}
HOSTILE = [
    "<script>document.title = 'forged'</script><img src=x onerror=\"document.title='forged'\">",
    "\x1b[31mred\x1b[0m \x1b]0;forged\x07 \x1b[2J\x1b[H gone",
    "invoice \u202egnp.exe\u202c \u2066x",
    "one\nERROR forged: two\rthree\u2028four",
    "中文日志：抓取 https://example.com/新闻?页=1 完成",
    "שלום עולם مرحبا",
    "{{ 7*7 }} {% now %} ${7*7} %s \x00",
    "a" * 12_000,
]


class Site:
    """A web process and an ingester, and the queue that leads to them."""

    def __init__(self, folder: Path) -> None:
        url = f"sqlite:///{folder / 'broker.sqlite3'}"
        self.daemons = Daemons(folder, BROKER_URL=url)
        self.daemons.migrate()
        words = self.daemons.manage("shell", "-v0", "-c", WORLD).stdout.splitlines()[-1].split()
        self.runs, self.session = list(map(int, words[:6])), words[6]
        self.port = free_port()
        self.base = f"http://127.0.0.1:{self.port}"
        self.daemons.start("web", "run_web", "--port", str(self.port))
        self.daemons.start("ingester", "run_log_ingester")
        self.broker: Broker = connect(url, name="test")
        self.broker.declare(topology.LOGS)
        self.daemons.until_logged("web", "Uvicorn running")
        self.daemons.until_logged("ingester", "is running")
        self._seq = dict.fromkeys(self.runs, 0)

    def write(self, run: int, *texts: str, boot: str = "b1", dropped: int = 0) -> None:
        """The run writes these lines."""
        lines: list[LogRecord] = []
        for text in texts:
            self._seq[run] += 1
            lines.append(record(self._seq[run], text, at=time.time()))
        for begin in range(0, len(lines) or 1, 500):
            piece = lines[begin : begin + 500]
            message = LogBatch(stream=f"run:{run}", boot=boot, lines=piece, dropped=dropped)
            outgoing = Outgoing(body=encode(message), key=topology.LOGS.name)
            self.broker.publish([outgoing]).result(30)

    def skip(self, run: int, count: int) -> None:
        """So many lines never come."""
        self._seq[run] += count

    def until_stored(self, page: Page | None, run: int, text: str) -> None:
        """Until whoever asks for the last line gets this one, and a page would have it, too."""
        deadline = time.monotonic() + 60
        address = f"{self.base}/api/v1/runs/{run}/logs?tail=1"
        cookies = {"Cookie": f"sessionid={self.session}"}
        while True:
            answer = requests.get(address, headers=cookies, timeout=10).json()["results"]
            if answer and answer[0]["text"] == text:
                break
            assert time.monotonic() < deadline
            time.sleep(0.05)
        if page is not None:
            page.wait_for_timeout(1000)

    def end(self) -> None:
        self.broker.close()
        self.daemons.end()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    site = Site(tmp_path_factory.mktemp("tail"))
    yield site
    site.end()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
        yield browser
        browser.close()


def open_log(
    context: BrowserContext, site: Site, run: int, problems: list[str], place: str = ""
) -> Page:
    page = enter(context, site, problems)
    page.goto(f"{site.base}/logs/run:{run}{place}")
    expect(page.locator("[data-connection]")).to_have_attribute("data-kind", "live")
    return page


def assert_fits(page: Page, width: int) -> None:
    wide = page.evaluate("document.documentElement.scrollWidth > window.innerWidth")
    assert not wide, f"the page is wider than {width}"


def enter(context: BrowserContext, site: Site, problems: list[str]) -> Page:
    """A page of somebody who is logged in."""
    context.add_cookies([{"name": "sessionid", "value": site.session, "url": site.base}])
    context.set_default_timeout(30_000)
    page = context.new_page()
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on(
        "console",
        lambda message: problems.append(message.text) if message.type == "error" else None,
    )
    return page


@pytest.fixture
def problems() -> list[str]:
    return []


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    yield context
    context.close()


def keep(page: Page, name: str) -> None:
    if PICTURES:
        page.screenshot(path=Path(PICTURES) / f"{name}.png", full_page=True)


def at_end(page: Page) -> bool:
    script = "e => e.scrollHeight - e.scrollTop - e.clientHeight < 24"
    return bool(page.locator("[data-list]").evaluate(script))


def downloaded(page: Page, run: int) -> str:
    with page.expect_download() as download:
        page.get_by_role("link", name="Download", exact=True).click()
    assert download.value.suggested_filename == f"run-{run}.log"
    return Path(download.value.path()).read_text()


def rows(page: Page) -> int:
    return page.locator(".cy-log-line").count()


def test_lines_come_by_themselves_and_do_no_harm(
    site: Site, context: BrowserContext, problems: list[str]
) -> None:
    run = site.runs[0]
    page = open_log(context, site, run, problems)
    expect(page.locator("[data-empty]")).to_have_text(
        "No log lines yet. Output of the execution appears here."
    )
    title = page.title()
    site.write(run, "INFO first", "WARNING second", "ERROR third", "plain", *HOSTILE)
    expect(page.locator(".cy-log-line")).to_have_count(4 + len(HOSTILE))
    texts = page.locator(".cy-log-text").all_inner_texts()
    assert texts[4] == HOSTILE[0]
    assert texts[5] == "red   gone"
    assert texts[6] == "invoice \\u202egnp.exe\\u202c \\u2066x"
    assert texts[7] == "one\\nERROR forged: two\\rthree\\u2028four"
    assert texts[8] == HOSTILE[4]
    assert page.title() == title
    assert page.locator("[data-list] script, [data-list] img").count() == 0
    page.get_by_role("button", name=re.compile("Show all 12,000")).click()
    assert page.locator(".cy-log-text").last.inner_text() == HOSTILE[-1]
    levels = page.locator(".cy-log-line").evaluate_all("all => all.map(e => e.dataset.level)")
    assert levels[:4] == ["INFO", "WARNING", "ERROR", ""]
    # A second execution of the run, and one that had to drop lines.
    site.write(run, "once more", boot="b2", dropped=12_345)
    dropped = page.locator("[data-dropped]")
    expect(dropped).to_contain_text("12,345 lines were dropped", timeout=HELD_BACK_MS)
    # The number of the first line of the second execution tells that others did not come.
    marks = page.locator(".cy-log-mark")
    missing = f"{4 + len(HOSTILE)} lines are missing"
    expect(marks).to_have_text(["started again", missing], timeout=HELD_BACK_MS)
    assert problems == []


def test_every_line_has_an_address(
    site: Site, context: BrowserContext, problems: list[str]
) -> None:
    run = site.runs[3]
    site.write(run, *(f"INFO line {number}" for number in range(1, 1201)))
    site.skip(run, 3)
    site.write(run, "ERROR it broke", *(f"INFO more {number}" for number in range(1, 1201)))
    page = open_log(context, site, run, problems, place="#1.300")
    target = page.locator(".cy-log-line[aria-current]")
    expect(target).to_contain_text("line 300", timeout=60_000)
    expect(target).to_be_in_viewport()
    assert not at_end(page)
    # From there to the newest lines.
    page.locator("[data-newest]").click()
    lines = page.locator("[data-list]")
    expect(lines).to_contain_text("more 1200", timeout=HELD_BACK_MS)
    # The first error, and that lines before it never came.
    page.get_by_role("button", name="First error").click()
    expect(target).to_contain_text("it broke")
    expect(target).to_be_in_viewport()
    expect(page.locator("[data-gap]")).to_have_text("3 lines are missing")
    assert page.url.endswith("#1.1204")
    keep(page, "log-first-error")
    # A click on the time of a line gives its address.
    page.locator('[data-ref="1.1210"] a').click()
    expect(target).to_contain_text("more 6")
    assert page.url.endswith("#1.1210")
    # By keys alone.
    lines.focus()
    page.keyboard.press("Enter")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(target).not_to_contain_text("more 6")
    # A line that is not there (any more).
    page.goto(f"{site.base}/logs/run:{run}#9.9")
    expect(page.locator("[data-note]")).to_contain_text("This line no longer exists")
    # A filter does not hide what is asked for.
    page.locator("[data-levels]").select_option(label="ERROR and above")
    expect(page.locator(".cy-log-line")).to_have_count(1)
    page.evaluate("location.hash = '#1.7'")
    expect(target).to_contain_text("line 7")
    assert problems == []


def test_logs_are_searched_and_errors_put_together(
    site: Site, browser: Browser, problems: list[str]
) -> None:
    run, other = site.runs[4], site.runs[5]
    for number, each in enumerate((run, other)):
        site.write(
            each,
            "2026-11-21 03:00:00.000Z INFO yardspider: the run starts",
            *HOSTILE,
            f"WARNING retry {number} of 3: https://shop.example/p/{number} answered 503",
            f"ERROR parse: 价格price 为空, item {number}",
            "Traceback (most recent call last):",
            '  File "headlines.py", line 12, in parse',
            "KeyError: 'title'",
        )
    for each in (run, other):
        site.until_stored(None, each, "KeyError: 'title'")
    for width, height in ((1280, 900), (390, 844)):
        for scheme in ("light", "dark"):
            for language in ("en", "zh-hans"):
                context = browser.new_context(
                    viewport={"width": width, "height": height},
                    color_scheme=scheme,
                    locale={"en": "en", "zh-hans": "zh-CN"}[language],
                )
                page = enter(context, site, problems)
                name = f"{width}-{scheme}-{language}"
                page.goto(f"{site.base}/logs?text=价格&level=ERROR")
                expect(page.locator(".cy-found li")).to_have_count(2)
                expect(page.locator(".cy-found mark").first).to_have_text("价格")
                assert_fits(page, width)
                keep(page, f"logs-search-{name}")
                page.goto(f"{site.base}/logs/errors")
                expect(page.locator(".cy-kinds > li").first).to_be_visible()
                assert_fits(page, width)
                keep(page, f"logs-errors-{name}")
                context.close()
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page = enter(context, site, problems)
    page.goto(f"{site.base}/logs?text=retry")
    page.locator(".cy-found li a").first.click()
    target = page.locator(".cy-log-line[aria-current]")
    expect(target).to_contain_text("answered 503")
    page.goto(f"{site.base}/logs/errors")
    kinds = page.locator(".cy-kinds > li").filter(has_text="News / prices")
    kind = kinds.filter(has_text="价格price")
    kind.get_by_role("button", name="Ignore").click()
    expect(kind).to_have_count(0)
    keys = kinds.filter(has_text="KeyError")
    keys.get_by_role("link", name="Show an example").click()
    expect(target).to_contain_text("KeyError: 'title'")
    for path in ("/logs?text=retry", "/logs/errors?state=", f"/logs/run:{run}"):
        page.goto(site.base + path)
        page.wait_for_timeout(500)
        found = Axe().run(page, options=AXE).response["violations"]
        serious = [each for each in found if each["impact"] in ("serious", "critical")]
        told = [
            (each["id"], node["html"], node["failureSummary"])
            for each in serious
            for node in each["nodes"]
        ]
        assert told == [], path
    context.close()
    assert problems == []


def test_narrow_and_dark(site: Site, browser: Browser, problems: list[str]) -> None:
    run = site.runs[1]
    site.write(
        run,
        HOSTILE[-1],
        "2026-11-21 03:00:00.000Z INFO yardspider: the run starts",
        "INFO 200 https://example.com/a/very/long/address/that/does/not/fit?page=1&size=200",
        "WARNING retry 2 of 3: the host answered 503",
        "ERROR parse: KeyError: 'title'",
        "Traceback (most recent call last):",
        '  File "headlines.py", line 12, in parse',
        *HOSTILE[:-1],
        dropped=3,
    )
    for width, height in ((1280, 900), (390, 844)):
        for scheme in ("light", "dark"):
            context = browser.new_context(
                viewport={"width": width, "height": height}, color_scheme=scheme
            )
            page = open_log(context, site, run, problems)
            expect(page.locator(".cy-log-line")).to_have_count(6 + len(HOSTILE))
            assert_fits(page, width)
            background = page.locator(".cy-log").evaluate(
                "e => getComputedStyle(e).backgroundColor"
            )
            assert (background == "rgb(255, 255, 255)") == (scheme == "light"), background
            keep(page, f"log-{width}-{scheme}")
            context.close()
    assert problems == []


def test_a_long_log_is_followed_read_and_searched(
    site: Site, context: BrowserContext, problems: list[str]
) -> None:
    run = site.runs[2]
    site.write(run, *(f"line {number}" for number in range(1, 10_001)))
    page = open_log(context, site, run, problems)
    lines = page.locator("[data-list]")
    expect(lines).to_contain_text("line 10000", timeout=60_000)
    assert at_end(page)
    # While it is followed, the page does not grow without end.
    for begin in range(10_001, 20_001, 2000):
        site.write(run, *(f"line {number}" for number in range(begin, begin + 2000)))
    expect(lines).to_contain_text("line 20000", timeout=60_000)
    assert at_end(page)
    assert rows(page) <= 2000
    # Whoever scrolls up stays where they are, and is told of what comes.
    lines.evaluate("e => e.scrollTop = e.scrollHeight / 2")
    expect(page.locator("[data-newest]")).to_be_visible()
    place = lines.evaluate("e => e.scrollTop")
    site.write(run, "ERROR the needle", "after it")
    expect(page.locator("[data-newest]")).to_contain_text("(2)")
    assert lines.evaluate("e => e.scrollTop") == place
    page.locator("[data-newest]").click()
    expect(page.locator("[data-newest]")).to_be_hidden()
    assert at_end(page)
    # Up to older lines.
    shown = rows(page)
    lines.evaluate("e => e.scrollTop = 0")
    expect(page.locator(".cy-log-line").nth(shown + 400)).to_be_attached()
    assert lines.evaluate("e => e.scrollTop") > 0
    # Pause, and go on.
    page.get_by_role("button", name="Stop following").click()
    site.write(run, "written while paused")
    site.until_stored(page, run, "written while paused")
    assert "written while paused" not in lines.inner_text()
    page.get_by_role("button", name="Follow log").click()
    expect(lines).to_contain_text("written while paused")
    # Only what is looked for.
    page.locator("[data-contains]").fill("NEEDLE")
    expect(page.locator(".cy-log-line")).to_have_count(1)
    page.locator("[data-contains]").fill("not there")
    expect(page.locator("[data-empty]")).to_have_text("No line matches.")
    page.locator("[data-contains]").fill("")
    page.locator("[data-levels]").select_option(label="ERROR and above")
    expect(page.locator(".cy-log-line")).to_have_count(1)
    # The file holds the levels that are shown.
    assert downloaded(page, run).count("\n") == 1
    page.locator("[data-levels]").select_option(label="All lines")
    assert downloaded(page, run).count("\n") == 20_003
    assert problems == []
