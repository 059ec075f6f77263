"""A replay's items are those of the recorded run, also when agent and spider are killed."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.yardkit.recordings.writers import WarcRecorder
from tests.yardscrapy.runs import ENVIRONMENT, Watcher
from tests.yardscrapy.scrapy_platform import ScrapyPlatform
from tests.yardscrapy.test_cli import project

pytestmark = [
    pytest.mark.covers("OB.5"),
    pytest.mark.fault,
    pytest.mark.slow("starts a center and agents"),
]

SHOP = "https://shop.example"
PAGES = 2000
SCRAPY = f"""
import scrapy
class Shop(scrapy.Spider):
    name = "shop"
    start_urls = ["{SHOP}/0"]
    def parse(self, response):
        yield {{"url": response.url, "text": response.css("p::text").get()}}
        yield from response.follow_all(css="a")
"""
OURS = f"""
from yardspider import Request, Spider, SpiderSettings
class Shop(Spider):
    start_urls = ["{SHOP}/0"]
    settings = SpiderSettings(speed=0, request_timeout_seconds=2, no_answer_seconds=30)
    def parse(self, response):
        yield {{"url": response.url, "text": response.css("p::text").get()}}
        for url in response.links():
            yield Request(url)
"""
# The recorded run has fetched each page once.
EXPECTED = sorted((f"{SHOP}/{number}", f"page {number}") for number in range(PAGES))


@pytest.fixture(scope="module")
def replaying(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ScrapyPlatform]:
    folder = tmp_path_factory.mktemp("replay")
    warc = WarcRecorder(folder / "shop.warc.gz")
    for number in range(PAGES):
        children = [n for n in (3 * number + 1, 3 * number + 2, 3 * number + 3) if n < PAGES]
        links = "".join(f"<a href=/{n}>x</a>" for n in children)
        warc.add(f"{SHOP}/{number}", f"<p>page {number}</p>{links}".encode())
    platform = ScrapyPlatform(folder, replay=folder / "shop.warc.gz")
    yield platform
    platform.close()


def spider_command(kind: str, folder: Path) -> list[str]:
    """Write a spider; return the command that runs it in ``folder``."""
    if kind == "scrapy":
        project(folder, spider=SCRAPY, settings="DOWNLOAD_TIMEOUT = 2")
        return [sys.executable, "-m", "yardscrapy", "crawl", "shop"]
    folder.mkdir()
    (folder / "shop.py").write_text(OURS)
    return [sys.executable, "-m", "yardspider", "run", "shop:Shop"]


def until(reached: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not reached():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize("victim", ["agent", "spider"])
@pytest.mark.parametrize("kind", ["scrapy", "yardspider"])
def test_items_equal_those_of_the_recorded_run(
    kind: str, victim: str, replaying: ScrapyPlatform, tmp_path: Path
) -> None:
    command = spider_command(kind, tmp_path / "project")
    watcher = Watcher(replaying)
    of_run = replaying.run()
    run = int(of_run["CRAWLYARD_RUN"])

    def start(incarnation: str) -> subprocess.Popen[bytes]:
        folder = tmp_path / incarnation
        folder.mkdir()
        with (folder / "log.txt").open("wb") as log:
            return subprocess.Popen(
                command,
                cwd=tmp_path / "project",
                env={
                    **ENVIRONMENT,
                    **of_run,
                    "CRAWLYARD_BOOT": incarnation,
                    "CRAWLYARD_RUN_DIR": str(folder),
                },
                stdout=log,
                stderr=log,
            )

    process = start("b1")
    try:
        until(lambda: len(watcher.of(run).items) >= 1 or process.poll() is not None)
        assert process.poll() is None, "it has ended before anything could be killed"
        if victim == "agent":
            replaying.daemons.processes["agent-1"].kill()
            replaying.daemons.processes["agent-1"].wait()
            replaying.start_agent("agent-1")
            last = "b1"
        else:
            process.kill()
            process.wait()
            # The dataset takes items of the incarnation that finishes; these tests have no writer.
            watcher.of(run).items.clear()
            process = start("b2")
            last = "b2"
        assert process.wait(120) == 0, (tmp_path / last / "log.txt").read_text()
    finally:
        process.kill()
        process.wait()
    left = json.loads((tmp_path / last / "exit.json").read_text())
    assert left["state"] == "exited"
    found = sorted((item["url"], item["text"]) for item in watcher.of(run).items)
    watcher.close()
    assert found == EXPECTED
