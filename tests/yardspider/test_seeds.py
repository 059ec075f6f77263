"""Seeds in a run, in virtual time: added, leased, followed, finished, given back."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.yardspider.crawls import FAST, changed, check_books
from yardkit.protocol import SeedAnswer, SeedFinish, SeedOutcome, SeedState
from yardkit.seeds import CallRefused, SeedServiceAway
from yardspider import Request, Response, Seed, SeedSpider, SeedTask, Spider
from yardspider.engine import Engine
from yardspider.outputs import ItemList
from yardspider.seeds.memory import MemoryFrontier
from yardspider.settings import SpiderSettings
from yardspider.testing import BEGIN_MS, CrawlResult, FakeCenter, NoAnswer, Page, Slow, crawl

HELD = ("succeeded", "failed", "retried", "ignored", "given_back", "late", "left")


class Pages(SeedSpider):
    """One item a page; links of a page belong to its seed."""

    settings = FAST

    def parse(self, response: Response) -> Iterator[Any]:
        for url in response.links():
            yield Request(url)
        yield {"url": response.url, "seed": response.seed.data if response.seed else ""}


def check_seeds(result: CrawlResult) -> None:
    """Every leased seed has left by one way."""
    check_books(result)
    counts = result.seeds.counts()
    assert counts["leased"] == sum(counts[name] for name in HELD), counts
    if result.outcome.state != "failed":
        assert result.frontier.count(SeedState.RUNNING) == 0


def run_seeds(spider: Any, pages: Any, **options: Any) -> CrawlResult:
    center = pages if isinstance(pages, FakeCenter) else FakeCenter(pages)
    result = asyncio.run(crawl(spider, center, **options))
    check_seeds(result)
    return result


def states(result: CrawlResult) -> dict[str, SeedState]:
    return {seed.data: seed.state for seed in result.frontier.seeds}


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
        engine = Engine(
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
        return await Engine(spider, FAST, center, ItemList(), clock=center.clock).run()

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


# --- a service that is away ---------------------------------------------------------------------


class Away(MemoryFrontier):
    """Does not answer for a while; what it was asked meanwhile was done or not."""

    def __init__(self, seeds: Any, begin: float, end: float, error: Any = None) -> None:
        super().__init__(seeds)
        self.begin, self.end = begin, end
        self.error = error or SeedServiceAway("nobody there")
        self.center = FakeCenter(lambda request: Slow(2, ""))
        self.asked = 0

    def _check(self) -> None:
        self.asked += 1
        if self.begin <= self.center.clock.now() - 1000 < self.end:
            raise self.error

    async def add(self, seeds: Any) -> Any:
        answer = await super().add(seeds)
        if seeds and self.asked:
            self._check()
        return answer

    async def lease(self, limit: int, **options: Any) -> Any:
        self._check()
        return await super().lease(limit, **options)

    async def finish(self, finishes: Any, found: Any) -> Any:
        answer = await super().finish(finishes, found)
        self._check()
        return answer


def test_a_service_that_comes_back_costs_the_time_and_nothing_else() -> None:
    frontier = Away([f"http://h/{number}" for number in range(5)], 1.0, 50.0)
    result = run_seeds(Pages, frontier.center, frontier=frontier)
    assert result.outcome.state == "exited"
    # The first finish was done and its answer lost; it says "repeated" then.
    assert (result.seeds.succeeded, result.seeds.late) == (5, 0)
    assert 110 <= result.outcome.seconds < 116


def test_a_service_that_stays_away_fails_the_run_and_says_so() -> None:
    frontier = Away(["http://h/"], 1.0, 1e9)
    result = run_seeds(Pages, frontier.center, frontier=frontier)
    assert result.outcome.state == "failed"
    reason = "the seed service is away, tried for 60 s: nobody there"
    assert result.outcome.reason == reason
    assert 60 <= result.outcome.seconds < 66
    assert result.seeds.left == 1


def test_a_frontier_that_is_being_moved_is_waited_for_however_long_it_takes() -> None:
    frozen = CallRefused("frozen", "it is being moved", 1.0)
    frontier = Away(["http://h/"], 0.0, 3600.0, frozen)
    result = run_seeds(Pages, frontier.center, frontier=frontier)
    assert result.outcome.state == "exited"
    assert result.seeds.succeeded == 1
    assert result.outcome.seconds > 3600


def test_a_call_that_is_refused_for_good_fails_the_run() -> None:
    refusal = CallRefused("wrong_token", "this token is not of this frontier")
    frontier = Away(["http://h/"], 0.0, 1e9, refusal)
    result = run_seeds(Pages, frontier.center, frontier=frontier)
    assert result.outcome.reason == (
        "the seed service refuses (wrong_token): this token is not of this frontier"
    )


# --- leases -------------------------------------------------------------------------------------


def test_leases_last_as_long_as_the_work() -> None:
    frontier = MemoryFrontier(["http://h/"], lease_seconds=5)
    pages = {"http://h/": Slow(200, "")}
    settings = changed(request_timeout_seconds=300)
    result = run_seeds(Pages, pages, frontier=frontier, settings=settings)
    assert (result.seeds.succeeded, result.seeds.late) == (1, 0)
    assert result.frontier.seeds[0].retry == 0


def test_a_finish_that_comes_too_late_changes_nothing_and_is_counted() -> None:
    class Forgetful(MemoryFrontier):
        async def extend(self, generation: int, *, seconds: float) -> int:
            raise CallRefused("wrong_lease", "it is over")

    frontier = Forgetful([Seed("http://h/", max_retry=2)], lease_seconds=5)
    answers = iter([Slow(10, ""), "fine"])
    result = run_seeds(Pages, lambda request: next(answers), frontier=frontier)
    assert (result.seeds.late, result.seeds.succeeded) == (1, 1)
    assert result.frontier.seeds[0].retry == 1


def test_seeds_that_come_meanwhile_are_taken_and_those_of_later_wait_for_their_time() -> None:
    later = datetime.fromtimestamp(BEGIN_MS / 1000, UTC) + timedelta(seconds=45)
    result = run_seeds(
        Pages, lambda request: "", seeds=[Seed("http://h/later", active_at=later), "http://h/now"]
    )
    assert result.seeds.succeeded == 2
    assert 105 <= result.outcome.seconds < 108


def test_no_more_seeds_are_begun_than_are_fetched_soon() -> None:
    class Watched(MemoryFrontier):
        most = 0

        async def lease(self, limit: int, **options: Any) -> Any:
            answer = await super().lease(limit, **options)
            self.most = max(self.most, self.count(SeedState.RUNNING))
            return answer

    frontier = Watched([f"http://h/{number}" for number in range(300)])
    settings = changed(speed=2, seeds_ahead=10)
    result = run_seeds(Pages, lambda request: "", frontier=frontier, settings=settings)
    assert result.seeds.succeeded == 300
    assert frontier.most <= 14


# --- stop and pause -----------------------------------------------------------------------------


def at(center: FakeCenter, seconds: float, call: Any) -> None:
    center.clock.call_later(seconds, call)


@pytest.mark.covers("S3.18")
@pytest.mark.parametrize(("stop_seconds", "succeeded"), [(1.5, 1), (600.0, 3)])
def test_a_stop_finishes_what_is_out_in_time_and_gives_back_the_rest(
    stop_seconds: float, succeeded: int
) -> None:
    seconds = {"http://h/0": 4.0, "http://h/1": 40.0, "http://h/2": 400.0}
    center = FakeCenter(lambda request: Slow(seconds[request.url], ""))
    settings = changed(
        concurrency=3, stop_seconds=stop_seconds, request_timeout_seconds=1000, seeds_ahead=4
    )
    at(center, 3, lambda: center.tell("exit"))
    seeds = [f"http://h/{number}" for number in range(20)]
    result = run_seeds(Pages, center, seeds=seeds, settings=settings)
    assert result.outcome.state == "stopped"
    assert result.seeds.succeeded == succeeded
    assert result.seeds.leased == succeeded + result.seeds.given_back
    assert {seed.retry for seed in result.frontier.seeds} == {0}
    assert result.frontier.pending == 20 - succeeded


def test_a_pause_gives_back_what_has_not_begun_and_keeps_the_rest() -> None:
    frontier = MemoryFrontier([f"http://h/{number}" for number in range(30)], lease_seconds=30)
    center = FakeCenter(lambda request: Slow(100, ""))
    meanwhile: list[tuple[int, int]] = []

    def look() -> None:
        meanwhile.append((frontier.count(SeedState.RUNNING), frontier.pending))

    at(center, 5, lambda: center.tell("pause"))
    at(center, 3000, look)
    at(center, 3001, lambda: center.tell("resume"))
    settings = changed(concurrency=5, seeds_ahead=5, request_timeout_seconds=1000)
    result = run_seeds(Pages, center, frontier=frontier, settings=settings)
    assert result.outcome.state == "exited"
    assert result.seeds.succeeded == 30
    assert {seed.retry for seed in result.frontier.seeds} == {0}
    leased, pending = meanwhile[0]
    # Those that were out came home during the pause; what had not begun was given back.
    assert leased <= 5
    assert leased + pending >= 20
    assert result.seeds.given_back > 0


def test_a_run_may_wait_for_ever_until_it_is_told_to_exit() -> None:
    center = FakeCenter(lambda request: "")
    at(center, 3600, lambda: center.tell("exit"))
    result = run_seeds(Pages, center, seeds=["http://h/"], settings=changed(empty_seconds=0))
    assert result.outcome.state == "stopped"
    assert result.outcome.seconds >= 3600


def test_a_download_that_fails_is_told_of_its_seed(caplog: pytest.LogCaptureFixture) -> None:
    result = run_seeds(
        Pages,
        lambda request: NoAnswer(),
        seeds=[Seed("http://h/", max_retry=1)],
        settings=changed(download_retries=0),
    )
    assert result.outcome.state == "failed"
    assert result.frontier.finishes == [
        SeedFinish(0, "http://h/", 1, SeedOutcome.FAILURE, "", None)
    ]
    assert "seed http://h/: connection: connection refused (http://h/)" in caplog.text


def test_a_long_run_of_a_day_tells_how_far_it_is(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "yardspider")
    settings = SpiderSettings(speed=1.0)
    result = run_seeds(
        Pages, lambda request: "", seeds=[f"http://h/{n}" for n in range(100)], settings=settings
    )
    assert result.seeds.succeeded == 100
    told = [line for line in caplog.messages if line.startswith("seeds: ")]
    assert len(told) >= 3
    assert told[-1] == "seeds: 100 leased, 100 succeeded"


def test_no_new_page_is_asked_for_while_too_many_seeds_wait() -> None:
    class Sower(Spider):
        settings = changed(concurrency=1, seed_service_seconds=1000)

        def start(self) -> Iterator[Request]:
            for number in range(10):
                yield Request(f"http://h/{number}")

        def parse(self, response: Response) -> None:
            self.seeds.add_all(f"{response.url}/{number}" for number in range(4000))

    class Slow(MemoryFrontier):
        async def add(self, seeds: Any) -> Any:
            if seeds and center.clock.now() < 1200:
                raise SeedServiceAway("nobody there")
            return await super().add(seeds)

    center, sent = FakeCenter(lambda request: ""), []
    at(center, 150, lambda: sent.append(len(center.requests)))
    result = run_seeds(Sower, center, frontier=Slow())
    # Three pages make twelve thousand.
    assert sent == [3]
    assert (result.seeds.added, len(result.requests)) == (40_000, 10)
    assert 200 <= result.outcome.seconds < 203


def test_seeds_that_arrive_with_the_stop_are_given_back() -> None:
    class Late(MemoryFrontier):
        async def lease(self, limit: int, **options: Any) -> Any:
            if center.clock.now() > 1003:
                for _ in range(10):
                    center.tell("exit")
                    await asyncio.sleep(0)
            return await super().lease(limit, **options)

    center = FakeCenter(lambda request: "")
    later = datetime.fromtimestamp(BEGIN_MS / 1000 + 5, UTC)
    frontier = Late([Seed("http://h/", active_at=later)])
    result = run_seeds(Pages, center, frontier=frontier, settings=changed(empty_seconds=0))
    assert result.outcome.state == "stopped"
    assert frontier.count(SeedState.RUNNING) == 0
