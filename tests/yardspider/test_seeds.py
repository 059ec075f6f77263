"""Seeds in a run, in virtual time: the chain of a seed, what is said of it, what is found."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.yardspider.crawls import FAST, changed
from tests.yardspider.seed_runs import Pages, run_seeds, states
from yardkit.protocol import SeedAnswer, SeedState
from yardspider import Request, Response, Seed, SeedSpider, SeedTask, Spider
from yardspider.engine import CrawlEngine
from yardspider.outputs import ItemList
from yardspider.seeds.memory import MemoryFrontier
from yardspider.testing import BEGIN_MS, FakeCenter, Page, Slow

# --- the chain ----------------------------------------------------------------------------------


@pytest.mark.covers("S3.15", "S3.20")
def test_seeds_are_crawled_with_all_that_comes_of_them_until_the_frontier_is_empty() -> None:
    pages = {
        "http://h/a": "<a href=/a1>1</a><a href=/a2>2</a>",
        "http://h/a1": "<a href=/a2>2</a>",
        "http://h/a2": "",
        "http://h/b": "<a href=/a1>1</a>",
    }
    result = run_seeds(Pages, pages, seeds=["http://h/a", "http://h/b"])
    assert result.outcome.state == "exited"
    assert 60 <= result.outcome.seconds < 63
    # What two seeds lead to is fetched for each: a seed is crawled whole.
    assert sorted((item["seed"][-1], item["url"][-2:]) for item in result.items) == [
        ("a", "/a"),
        ("a", "a1"),
        ("a", "a2"),
        ("b", "/b"),
        ("b", "a1"),
        ("b", "a2"),
    ]
    assert set(states(result).values()) == {SeedState.SUCCEEDED}
    assert (result.seeds.leased, result.seeds.succeeded) == (2, 2)


@pytest.mark.covers("S3.17")
@pytest.mark.parametrize("broken", ["a callback raises", "a page is gone", "requests raises"])
def test_a_seed_of_which_anything_failed_is_tried_again_until_its_tries_are_used_up(
    broken: str,
) -> None:
    class Broken(Pages):
        def requests(self, seed: SeedTask) -> Any:
            if broken == "requests raises":
                raise ValueError("no")
            return super().requests(seed)

        def parse(self, response: Response) -> Iterator[Any]:
            yield from super().parse(response)
            if broken == "a callback raises" and response.url.endswith("/2"):
                raise ValueError("no price")

    pages = {"http://h/": "<a href=/1>1</a><a href=/2>2</a>", "http://h/1": ""}
    if broken != "a page is gone":
        pages["http://h/2"] = ""
    result = run_seeds(Broken, pages, seeds=["http://h/"])
    assert states(result) == {"http://h/": SeedState.FAILED}
    assert (result.seeds.leased, result.seeds.retried, result.seeds.failed) == (3, 2, 1)
    if broken != "requests raises":
        # Each try asks for its pages anew.
        assert [request.url for request in result.requests].count("http://h/1") == 3


def test_the_next_try_may_succeed() -> None:
    answers = iter([Page(404), Page(200)])
    result = run_seeds(Pages, lambda request: next(answers), seeds=["http://h/"])
    assert states(result) == {"http://h/": SeedState.SUCCEEDED}
    assert (result.seeds.retried, result.seeds.succeeded) == (1, 1)


@pytest.mark.parametrize("asynchronous", [False, True], ids=["generator", "coroutine"])
def test_what_the_spider_says_goes_before_what_the_requests_came_to(asynchronous: bool) -> None:
    class Says(SeedSpider):
        settings = FAST

        def say(self, response: Response) -> None:
            seed = response.seed
            assert seed is not None
            word = seed.data.rpartition("/")[2]
            if word == "finish":
                seed.finish({"price": 7})
                raise ValueError("too late")
            {"ignore": seed.ignore, "give_up": seed.give_up, "fail": seed.fail}[word]()

        async def awaited(self, response: Response) -> None:
            await asyncio.sleep(0)
            self.say(response)

        def parse(self, response: Response) -> Any:
            return self.awaited(response) if asynchronous else self.say(response)

    words = ("finish", "ignore", "give_up", "fail")
    result = run_seeds(Says, lambda request: "", seeds=[f"http://h/{word}" for word in words])
    assert [state.name for state in states(result).values()] == [
        "SUCCEEDED",
        "IGNORED",
        "FAILED",
        "FAILED",
    ]
    assert [one.result for one in result.frontier.finishes if one.result] == [{"price": 7}]
    assert (result.seeds.failed, result.seeds.retried, result.seeds.ignored) == (2, 2, 1)


def test_a_result_that_cannot_be_sent_fails_the_try() -> None:
    class Unsendable(SeedSpider):
        settings = FAST

        def parse(self, response: Response) -> None:
            assert response.seed is not None
            response.seed.finish(object())

    result = run_seeds(Unsendable, lambda request: "", seeds=[Seed("http://h/", max_retry=1)])
    assert states(result) == {"http://h/": SeedState.FAILED}
    assert "the result of a seed cannot be sent" in result.failures[0].reason


def test_a_grabbed_seed_tells_its_spider_and_takes_its_address_back() -> None:
    told = []

    class Grabbed(SeedSpider):
        settings = FAST

        def parse(self, response: Response) -> None:
            assert response.seed is not None
            told.append((response.seed.is_grab, response.seed.ext))
            response.seed.finish("ten")

    frontier = MemoryFrontier()
    message = Seed("http://h/", ext={"city": "Berlin"}, urgent=True).message(0)
    asyncio.run(frontier.add([type(message)(message.data, ext={**message.ext, "_grab": "q 7"})]))
    result = run_seeds(Grabbed, lambda request: "", frontier=frontier)
    assert told == [(True, {"city": "Berlin"})]
    assert [(one.grab, one.result) for one in result.frontier.finishes] == [("q 7", "ten")]


def test_a_detached_request_does_not_hold_up_the_seed() -> None:
    class Detached(SeedSpider):
        settings = FAST

        def parse(self, response: Response) -> Iterator[Any]:
            yield Request("http://h/slow", self.later, detached=True)

        def later(self, response: Response) -> Iterator[Any]:
            yield {"seed": response.seed, "ended": states_now()}

    frontier = MemoryFrontier(["http://h/"])

    def states_now() -> list[str]:
        return [seed.state.name for seed in frontier.seeds]

    pages = {"http://h/": "", "http://h/slow": Slow(10, "")}
    result = run_seeds(Detached, pages, frontier=frontier)
    assert result.items == [{"seed": None, "ended": ["SUCCEEDED"]}]


# --- adding -------------------------------------------------------------------------------------


@pytest.mark.covers("S3.17", "S3.4")
def test_seeds_found_are_added_after_the_finish_and_items_are_written_before() -> None:
    order: list[str] = []

    class Sink(ItemList):
        def flush(self) -> None:
            if self.items and "items" not in order:
                order.append("items")

    class Watched(MemoryFrontier):
        async def finish(self, finishes: Any, found: Any) -> Any:
            order.append(f"finish, found {len(found)}")
            return await super().finish(finishes, found)

    class Finds(SeedSpider):
        settings = changed(statistics_seconds=1000)

        def parse(self, response: Response) -> Iterator[Any]:
            yield {"url": response.url}
            yield Seed("http://h/later", active_after=timedelta(days=3))
            yield Seed("http://h/")

    center, frontier = FakeCenter(lambda request: ""), Watched(["http://h/"])
    frontier.use_clock(center.clock.milliseconds)

    async def go() -> Any:
        engine = CrawlEngine(
            Finds(), Finds.settings, center, Sink(), clock=center.clock, frontier=frontier
        )
        return await engine.run()

    outcome = asyncio.run(go())
    assert order == ["items", "finish, found 2"]
    assert (outcome.seeds.added, outcome.seeds.duplicates, outcome.seeds.succeeded) == (1, 1, 1)
    later = frontier.seeds[1]
    assert (later.state, later.due // 86_400_000 - BEGIN_MS // 86_400_000) == (SeedState.INIT, 3)


def test_any_spider_adds_seeds_from_all_kinds_of_callbacks() -> None:
    answers: list[SeedAnswer] = []

    class Finds(Spider):
        settings = FAST
        start_urls = ["http://h/1", "http://h/2"]

        def parse(self, response: Response) -> Any:
            return self.plain(response) if response.url.endswith("1") else self.waits(response)

        def plain(self, response: Response) -> None:
            self.seeds.add("http://h/x")
            self.seeds.add_all(f"http://h/{number}" for number in range(5000))

        async def waits(self, response: Response) -> Any:
            answers.append(await self.seeds.add("http://h/x", ext={"a": 1}))
            answers.append(await self.seeds.add("http://h/y", active_at=BEGIN_MS))
            answers.extend(await self.seeds.add_all(["", Seed("http://h/y", active_at=BEGIN_MS)]))
            yield Seed("http://h/z")

    result = run_seeds(Finds, lambda request: "")
    assert [answer.code for answer in answers] == ["duplicate", "new", "empty_data", "duplicate"]
    assert result.outcome.state == "exited"
    assert result.outcome.seconds < 2
    assert (result.seeds.added, result.seeds.duplicates, result.seeds.refused) == (5003, 2, 1)


def test_a_seed_with_more_finds_than_a_message_takes_loses_none() -> None:
    class Sitemap(SeedSpider):
        settings = changed(empty_seconds=1)

        def parse(self, response: Response) -> Iterator[Any]:
            if response.url.endswith("map"):
                for number in range(7001):
                    yield Seed(f"data {number}")

        def requests(self, seed: SeedTask) -> Any:
            return Request(seed.data) if seed.data.startswith("http") else None

    result = run_seeds(Sitemap, lambda request: "", seeds=["http://h/map"])
    assert (result.seeds.added, result.seeds.succeeded) == (7001, 7002)


@pytest.mark.parametrize("kind", ["yields", "adds", "takes"])
def test_a_run_without_a_frontier_fails_and_says_so(kind: str) -> None:
    class Finds(Spider):
        settings = FAST
        start_urls = ["http://h/"]

        def parse(self, response: Response) -> Any:
            if kind == "adds":
                self.seeds.add("http://h/x")
            return [Seed("http://h/x")]

    spider = Pages() if kind == "takes" else Finds()
    center = FakeCenter(lambda request: "")

    async def go() -> Any:
        return await CrawlEngine(spider, FAST, center, ItemList(), clock=center.clock).run()

    outcome = asyncio.run(go())
    assert (outcome.state, outcome.reason) == (
        "failed",
        "this run has no frontier to take seeds; choose one in its job",
    )


def test_what_a_seed_cannot_be_is_told_where_it_is_made() -> None:
    with pytest.raises(ValueError, match="not both"):
        Seed("x", active_at=1, active_after=timedelta(1))
    with pytest.raises(ValueError, match="has no time zone"):
        Seed("x", active_at=datetime(2026, 7, 1))  # noqa: DTZ001 - that is what is refused
    assert (
        Seed("x", active_at=datetime(2026, 7, 1, 12, tzinfo=UTC)).message(0).active_at == BEGIN_MS
    )
    with pytest.raises(ValueError, match="_grab"):
        Seed("x", ext={"_grab": "queue"})
