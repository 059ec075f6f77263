"""Items of a run whose broker goes away, is slow or refuses, or that is killed: real processes."""

from __future__ import annotations

import json
import re
import resource
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.yardkit.broker_proxy import Proxy
from tests.yardspider.center import small_center
from tests.yardspider.commands import command, environment
from tests.yardspider.published_items import published_items
from tests.yardspider.test_broker_lost import PATIENCE_SECONDS, Outage, outage
from tests.yardspider.test_remote import broker_url, exit_state, variables
from yardkit import topology
from yardkit.broker import connect

__all__ = ["broker_url", "outage"]

pytestmark = pytest.mark.fault

SPIDER = """
import asyncio
from yardspider import Request, Spider, SpiderSettings

class Shop(Spider):
    settings = SpiderSettings(speed=0, concurrency=20, publish_retries=100)

    def start(self):
        for number in range(int(self.arguments["pages"])):
            yield Request(f"http://h/{number}")

    def parse(self, response):
        number = int(response.url.rpartition("/")[2])
        for part in range(3):
            yield {"page": number, "part": part}
        yield {"page": number, "file": self.files.put(f"{number}.txt", b"%d" % number)}
"""

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start a run of the shop at a broker."""
    (tmp_path / "shop.py").write_text(SPIDER)
    processes = []

    def run(
        url: str,
        boot: str = "b1",
        *,
        pages: int,
        settings: tuple[str, ...] = (),
        spider: str = "shop:Shop",
        **env: str,
    ) -> subprocess.Popen[str]:
        arguments = json.dumps({"pages": pages})
        process = subprocess.Popen(
            command("run", spider, *(word for text in settings for word in ("--set", text))),
            cwd=tmp_path,
            env=environment(
                **variables(
                    url, tmp_path, CRAWLYARD_BOOT=boot, CRAWLYARD_ARGUMENTS=arguments, **env
                )
            ),
            stderr=subprocess.PIPE,
            text=True,
        )
        processes.append(process)
        return process

    yield run
    for process in processes:
        process.kill()
        process.communicate()


def finish(process: subprocess.Popen[str]) -> str:
    _, errors = process.communicate(timeout=PATIENCE_SECONDS)
    assert "Traceback" not in errors
    return errors


def pages_of(items: list[dict[str, Any]], each: int) -> set[int]:
    """The pages whose items are all there."""
    found: dict[int, int] = {}
    for item in items:
        found[item["page"]] = found.get(item["page"], 0) + 1
    assert all(count <= each for count in found.values()), "an item came twice"
    return {page for page, count in found.items() if count == each}


@pytest.mark.covers("DS.1", "DS.12")
def test_a_broker_that_is_away_in_the_middle_loses_no_item(
    outage: Outage, start: Start, tmp_path: Path
) -> None:
    with small_center(outage.center_url, lambda url: "x") as center:
        process = start(outage.url, pages=400, settings=("speed=60",))
        center.wait_for(lambda: any(report.success for report in center.reports), 60)
        outage.begin()
        # Reads until the run says that it has lost its broker.
        assert process.stderr is not None
        assert any("WARNING" in line and " lost " in line for line in process.stderr)
        time.sleep(10)
        outage.end()
        errors = finish(process)
        assert process.returncode == 0, errors
        left = exit_state(tmp_path)
        assert (left["state"], left["success"], left["items"]) == ("exited", 400, 1600)
        files: set[str] = set()
        assert pages_of(published_items(outage.center_url, files), 4) == set(range(400))
        assert files == {f"{page}.txt" for page in range(400)}


@pytest.mark.covers("DS.1", "DS.2")
def test_a_broker_that_stays_away_leaves_no_false_success(
    outage: Outage, start: Start, tmp_path: Path
) -> None:
    with small_center(outage.center_url, lambda url: "x") as center:
        process = start(outage.url, pages=4000, settings=("speed=60", "publish_retries=3"))
        center.wait_for(lambda: any(report.success for report in center.reports), 60)
        outage.begin()
        errors = finish(process)
        outage.end()
    assert process.returncode == 2
    left = exit_state(tmp_path)
    assert (left["state"], left["failed"]) == ("failed", 0)
    assert left["reason"].startswith("the broker is gone")
    stored = published_items(outage.center_url)
    # What was under way when the broker went is named; it may have been nothing.
    warned = re.search(r"(\d+) items( and \d+ files)? were not confirmed by the broker", errors)
    assert len(stored) >= left["items"] - (int(warned[1]) if warned else 0)
    assert 0 < left["success"] <= len(pages_of(stored, 4))


@pytest.mark.covers("DS.1")
@pytest.mark.parametrize(
    "point",
    [
        "spider.before_items",
        "spider.after_items",
        "spider.before_file_part",
        "spider.items_confirmed",
    ],
)
def test_what_had_succeeded_before_a_kill_is_in_the_queue(
    broker_url: str, start: Start, point: str
) -> None:
    with small_center(broker_url, lambda url: "x") as center:
        settings = ("speed=50", "statistics_seconds=0.1")
        # The files of the pages are confirmed one by one, so that a later hit is meant there.
        hits = {"spider.items_confirmed": 200, "spider.before_file_part": 100}
        hit = hits.get(point, 4)
        killed = start(
            broker_url, "b1", pages=400, settings=settings, FAILPOINTS=f"{point}=kill@{hit}"
        )
        finish(killed)
        assert killed.returncode == -signal.SIGKILL
        success = max(report.success for report in center.reports)
        assert success > 0
        assert len(pages_of(published_items(broker_url), 4)) >= success
        # The next execution has numbers of its own.
        again = start(broker_url, "b2", pages=50)
        errors = finish(again)
        assert again.returncode == 0, errors
        assert pages_of(published_items(broker_url), 4) == set(range(50))


@pytest.mark.covers("DS.1")
@pytest.mark.services
def test_a_slow_broker_slows_the_spider_and_keeps_its_memory_flat(
    rabbit_vhost: str, start: Start, tmp_path: Path
) -> None:
    # Noise, which does not get smaller: 100 items of 50 kB a page, a gigabyte in all.
    (tmp_path / "noise.py").write_text(
        "import os, base64\n"
        "from shop import Shop\n"
        "class Noise(Shop):\n"
        "    def parse(self, response):\n"
        "        for part in range(100):\n"
        "            yield {'noise': base64.b64encode(os.urandom(37_500)).decode()}\n"
    )
    parts = urlsplit(rabbit_vhost)
    with (
        Proxy(parts.hostname or "127.0.0.1", parts.port or 5672) as proxy,
        small_center(rabbit_vhost, lambda url: "x") as center,
    ):
        process = start(
            proxy.address(rabbit_vhost),
            pages=200,
            settings=("unconfirmed_bytes=4000000",),
            spider="noise:Noise",
        )
        center.wait_for(lambda: any(report.items for report in center.reports), 60)
        proxy.slow(0.0, bytes_per_second=1_000_000)
        begin = memory_of(process.pid)
        most, sent = begin, []
        for _ in range(20):
            time.sleep(0.5)
            most = max(most, memory_of(process.pid))
            sent.append(len(center.items))
        assert most < begin + 60_000_000, (begin, most)
        assert sent[-1] < 200, sent


def memory_of(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * resource.getpagesize()


@pytest.mark.covers("DS.1")
def test_a_deleted_queue_is_made_again(broker_url: str, start: Start, tmp_path: Path) -> None:
    with small_center(broker_url, lambda url: "x") as center:
        process = start(broker_url, pages=300, settings=("speed=50",))
        center.wait_for(lambda: any(report.success for report in center.reports), 60)
        with closing(connect(broker_url, name="operator")) as broker:
            broker.delete(topology.ITEMS.name)
        errors = finish(process)
        assert process.returncode == 0, errors
        assert "publishing works again" in errors
        assert exit_state(tmp_path)["success"] == 300
