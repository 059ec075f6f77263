"""Seeds from a file."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.yardspider.crawls import changed
from tests.yardspider.seed_runs import Pages, run_seeds
from yardspider import Request, SeedSpider, Spider
from yardspider.engine import CrawlEngine
from yardspider.outputs import ItemList
from yardspider.seeds.memory import MemoryFrontier
from yardspider.testing import FakeCenter


class Watched(MemoryFrontier):
    """Remembers how many seeds came at once."""

    def __init__(self) -> None:
        super().__init__()
        self.batches: list[int] = []

    async def add(self, seeds: Any) -> Any:
        if seeds:
            self.batches.append(len(seeds))
        return await super().add(seeds)


class Cheap(SeedSpider):
    """Looks at its seeds and fetches nothing."""

    def requests(self, seed: Any) -> Any:
        return []


@pytest.mark.covers("S3.19")
def test_a_file_is_added_in_batches_of_2048_without_its_empty_lines(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "yardspider")
    file = tmp_path / "seeds.txt"
    lines = [f"http://h/{number}" for number in range(5000)]
    lines[10:10] = ["", "   "]
    file.write_bytes(b"\xef\xbb\xbf" + "\r\n".join(lines).encode() + b"\nhttp://h/\xff\n")
    frontier = Watched()
    settings = changed(initial_seeds=str(file), empty_seconds=1)
    result = run_seeds(Cheap, lambda request: "", frontier=frontier, settings=settings)
    assert frontier.batches == [2046, 2048, 906]
    assert (result.seeds.added, result.seeds.succeeded) == (5000, 5000)
    assert {seed.data for seed in frontier.seeds} == {f"http://h/{n}" for n in range(5000)}
    assert f"all 5003 lines of {file} are loaded, 2 of them empty" in caplog.text
    assert f"{file}: line 5003 is not UTF-8, left out" in caplog.text


def test_the_first_seeds_are_crawled_while_the_rest_is_still_read(tmp_path: Path) -> None:
    file = tmp_path / "seeds.txt"
    file.write_text("\n".join(f"http://h/{number}" for number in range(10_000)))
    frontier = Watched()
    settings = changed(initial_seeds=str(file))
    center = FakeCenter(lambda request: "")
    known: list[int] = []

    class Stops(Pages):
        def requests(self, seed: Any) -> Any:
            known.append(sum(frontier.batches))
            engine.stop("enough")
            return Request(seed.data)

    frontier.use_clock(center.clock.milliseconds)
    engine: CrawlEngine

    async def go() -> Any:
        nonlocal engine
        engine = CrawlEngine(
            Stops(), settings, center, ItemList(), clock=center.clock, frontier=frontier
        )
        return await engine.run()

    outcome = asyncio.run(go())
    assert outcome.state == "stopped"
    assert known[0] < 10_000


def test_a_spider_that_takes_none_loads_them_too(tmp_path: Path) -> None:
    file = tmp_path / "seeds.txt"
    file.write_text("one\ntwo\none\n")
    result = run_seeds(Spider, {}, settings=changed(initial_seeds=str(file)))
    assert result.outcome.state == "exited"
    assert (result.seeds.added, result.seeds.duplicates) == (2, 1)


def test_a_file_that_is_not_there_fails_the_run() -> None:
    result = run_seeds(Spider, {}, settings=changed(initial_seeds="/nowhere/seeds.txt"))
    assert result.outcome.state == "failed"
    assert result.outcome.reason == (
        "cannot read initial_seeds /nowhere/seeds.txt: No such file or directory"
    )
