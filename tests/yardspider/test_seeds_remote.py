"""Seeds of a run in a process of its own, over a real broker: its end, its stop, its kill."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.yardspider.center import SmallCenter, small_center
from tests.yardspider.commands import command, environment
from tests.yardspider.published_items import published_items
from tests.yardspider.small_seeds import FRONTIER, TOKEN, SmallSeeds, small_seeds
from tests.yardspider.test_remote import variables
from yardkit.protocol import SeedState
from yardspider.seeds.memory import MemoryFrontier

PATIENCE_SECONDS = 60
LEASE_SECONDS = 4.0
SEEDS = 40

SPIDER = """
from yardspider import Request, Seed, SeedSpider, Spider


class Follows(SeedSpider):
    def parse(self, response):
        yield {"url": response.url, "try": response.seed.retry}
        yield Seed(response.url.replace("//h/", "//found/"))
        yield Request(response.url + "/more", self.more)

    def requests(self, seed):
        return [] if "//found/" in seed.data else [Request(seed.data)]

    def more(self, response):
        yield {"url": response.url, "try": response.seed.retry}


class Finds(Spider):
    start_urls = ["http://h/1"]

    def parse(self, response):
        for number in range(3000):
            self.seeds.add(f"http://h/{number}")
"""


@pytest.fixture(
    params=[
        pytest.param("sqlite", marks=pytest.mark.twin),
        pytest.param("rabbitmq", marks=pytest.mark.services),
    ]
)
def broker_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/broker.db"
    url: str = request.getfixturevalue("rabbit_vhost")
    return url


@pytest.fixture
def center(broker_url: str) -> Iterator[SmallCenter]:
    with small_center(broker_url, lambda url: "<p>page</p>") as small:
        yield small


@pytest.fixture
def seeds(broker_url: str) -> Iterator[SmallSeeds]:
    frontier = MemoryFrontier(
        [f"http://h/{number}" for number in range(SEEDS)], lease_seconds=LEASE_SECONDS
    )
    with small_seeds(broker_url, frontier) as service:
        yield service


Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(broker_url: str, tmp_path: Path) -> Iterator[Start]:
    processes = []
    (tmp_path / "seedy.py").write_text(SPIDER, encoding="utf-8")

    def run_it(spider: str, *settings: str, boot: str = "b1") -> subprocess.Popen[str]:
        options = [word for setting in settings for word in ("--set", setting)]
        told = {
            "CRAWLYARD_BOOT": boot,
            "CRAWLYARD_FRONTIER": str(FRONTIER),
            "CRAWLYARD_FRONTIER_TOKEN": TOKEN,
        }
        process = subprocess.Popen(
            command("run", spider, *options),
            cwd=tmp_path,
            env=environment(**variables(broker_url, tmp_path, **told)),
            stderr=subprocess.PIPE,
            text=True,
        )
        processes.append(process)
        return process

    yield run_it
    for process in processes:
        process.kill()
        process.communicate()


def ended(process: subprocess.Popen[str]) -> str:
    _, errors = process.communicate(timeout=PATIENCE_SECONDS)
    assert "Traceback" not in errors, errors
    return errors


def until(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def told(folder: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((folder / "exit.json").read_text())
    return content


def check_ends(frontier: MemoryFrontier) -> None:
    """Everything has succeeded, the seeds and those found, and none was finished twice."""
    found = [seed for seed in frontier.seeds if "//found/" in seed.data]
    assert len(found) == SEEDS
    assert len(frontier.seeds) == 2 * SEEDS
    assert {seed.state for seed in frontier.seeds} == {SeedState.SUCCEEDED}
    finishes = Counter((one.key, one.generation) for one in frontier.finishes)
    assert set(finishes.values()) == {1}


@pytest.mark.slow("3 s")
def test_a_run_works_its_frontier_off_and_says_what_it_did(
    start: Start, center: SmallCenter, seeds: SmallSeeds, tmp_path: Path
) -> None:
    log = ended(start("seedy:Follows", "speed=0", "empty_seconds=1"))
    check_ends(seeds.frontier)
    content = told(tmp_path)
    assert content["state"] == "exited"
    assert content["success"] == 2 * SEEDS
    counts = content["seeds"]
    assert (counts["leased"], counts["succeeded"], counts["added"]) == (80, 80, 40)
    assert "seeds: 80 leased, 80 succeeded, 40 added" in log


@pytest.mark.fault
@pytest.mark.covers("S3.15", "S3.16")
def test_the_seeds_of_a_killed_run_come_back_and_none_is_lost(
    start: Start, center: SmallCenter, seeds: SmallSeeds, tmp_path: Path, broker_url: str
) -> None:
    frontier = seeds.frontier
    process = start("seedy:Follows", "speed=30", "seeds_ahead=10")
    until(lambda: frontier.count(SeedState.SUCCEEDED) >= 8, "some seeds")
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=PATIENCE_SECONDS)
    with seeds.lock:
        left = frontier.count(SeedState.RUNNING)
        done = {seed.key for seed in frontier.seeds if seed.state == SeedState.SUCCEEDED}
    assert 0 < left <= 60
    log = ended(start("seedy:Follows", "speed=0", "empty_seconds=6", boot="b2"))
    check_ends(frontier)
    again = {one.key for one in frontier.finishes if one.key in done}
    assert again == done, log
    # What the killed one had out has one try less, all other seeds have none.
    assert sum(seed.retry for seed in frontier.seeds) == left
    # Items are confirmed before their seed is finished: those of finished seeds are all there.
    urls = {item["url"] for item in published_items(broker_url)}
    for number in range(SEEDS):
        assert {f"http://h/{number}", f"http://h/{number}/more"} <= urls


@pytest.mark.slow("2 s")
def test_a_run_that_is_stopped_gives_its_seeds_back_at_once(
    start: Start, center: SmallCenter, seeds: SmallSeeds, tmp_path: Path
) -> None:
    frontier = seeds.frontier
    process = start("seedy:Follows", "speed=20", "seeds_ahead=10")
    until(lambda: frontier.count(SeedState.SUCCEEDED) >= 5, "some seeds")
    process.terminate()
    ended(process)
    assert process.returncode == 128 + signal.SIGTERM
    assert frontier.count(SeedState.RUNNING) == 0
    assert sum(seed.retry for seed in frontier.seeds) == 0
    counts = told(tmp_path)["seeds"]
    assert counts["left"] == counts["late"] == 0
    assert counts["leased"] == counts["succeeded"] + counts["given_back"]


@pytest.mark.slow("10 s")
def test_the_run_does_not_end_before_its_finds_are_confirmed(
    start: Start, center: SmallCenter, seeds: SmallSeeds, tmp_path: Path
) -> None:
    seeds.silent = True
    process = start("seedy:Finds", "speed=0")
    center.wait_for(lambda: any(report.success for report in center.reports))
    time.sleep(3)
    assert process.poll() is None
    seeds.silent = False
    ended(process)
    assert len(seeds.frontier.seeds) == 3000
    counts = told(tmp_path)["seeds"]
    assert (counts["added"], counts["duplicates"]) == (3000 - SEEDS, SEEDS)


@pytest.mark.slow("20 s")
def test_a_run_whose_finds_nobody_takes_fails_and_says_so(
    start: Start, center: SmallCenter, seeds: SmallSeeds, tmp_path: Path
) -> None:
    seeds.silent = True
    ended(start("seedy:Finds", "speed=0", "seed_service_seconds=2"))
    content = told(tmp_path)
    assert content["state"] == "failed"
    assert "the seed service is away, tried for 2 s" in content["reason"]
    assert content["seeds"]["unconfirmed"] == 3000
