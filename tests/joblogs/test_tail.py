"""The live tail in a real browser: a log that grows, hostile lines, narrow and dark."""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
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
names = ("headlines", "markets", "weather")
jobs = [Job.objects.create(project=project, name=name, spider="news:All") for name in names]
runs = [start_run(job=job, now=timezone.now(), actor=None).pk for job in jobs]
user = User.objects.create_superuser(username="ops", password="a-better-one-4711")
session = import_module(settings.SESSION_ENGINE).SessionStore()
session[SESSION_KEY] = str(user.pk)
session[BACKEND_SESSION_KEY] = settings.AUTHENTICATION_BACKENDS[0]
session[HASH_SESSION_KEY] = user.get_session_auth_hash()
session.save()
print(*runs, session.session_key)
"""
BACKGROUND = "e => getComputedStyle(e).backgroundColor"
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
        self.runs, self.session = list(map(int, words[:3])), words[3]
        self.port = free_port()
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

    def until_stored(self, page: Page, run: int, text: str) -> None:
        """Until whoever asks for the last line gets this one, and a page would have it, too."""
        deadline = time.monotonic() + 60
        address = f"http://127.0.0.1:{self.port}/api/v1/runs/{run}/logs?tail=1"
        while page.request.get(address).json()["results"][0]["text"] != text:
            assert time.monotonic() < deadline
            time.sleep(0.05)
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


def open_log(context: BrowserContext, site: Site, run: int, problems: list[str]) -> Page:
    base = f"http://127.0.0.1:{site.port}"
    context.add_cookies([{"name": "sessionid", "value": site.session, "url": base}])
    context.set_default_timeout(30_000)
    page = context.new_page()
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on(
        "console",
        lambda message: problems.append(message.text) if message.type == "error" else None,
    )
    page.goto(f"{base}/logs/run:{run}")
    expect(page.locator("[data-connection]")).to_have_attribute("data-kind", "live")
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


def rows(page: Page) -> int:
    return page.locator(".cy-log-line").count()


def test_lines_come_by_themselves_and_do_no_harm(
    site: Site, context: BrowserContext, problems: list[str]
) -> None:
    run = site.runs[0]
    page = open_log(context, site, run, problems)
    expect(page.locator("[data-empty]")).to_have_text("Nothing has been written yet.")
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
    expect(page.locator("[data-dropped]")).to_contain_text("12,345 lines were dropped")
    expect(page.locator(".cy-log-boot")).to_have_text("started again")
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
            wide = page.evaluate("document.documentElement.scrollWidth > window.innerWidth")
            assert not wide, f"the page is wider than {width}"
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
    with page.expect_download() as download:
        page.get_by_role("link", name="Download", exact=True).click()
    text = Path(download.value.path()).read_text()
    assert download.value.suggested_filename == f"run-{run}.log"
    assert text.count("\n") == 20_003
    assert problems == []
