"""Seeds in a run, in virtual time: a service that is away, leases, stops and pauses."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.yardspider.crawls import changed
from tests.yardspider.seed_runs import Pages, at, run_seeds
from yardkit.protocol import SeedFinish, SeedOutcome, SeedState
from yardkit.seeds import CallRefused, SeedServiceAway
from yardspider import Request, Response, Seed, Spider
from yardspider.seeds.memory import MemoryFrontier
from yardspider.settings import SpiderSettings
from yardspider.testing import BEGIN_MS, FakeCenter, NoAnswer, Slow

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


@pytest.mark.slow("6 s")
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


@pytest.mark.slow("1 s")
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


@pytest.mark.slow("2 s")
@pytest.mark.covers("S3.13")
def test_seeds_are_had_in_batches_and_no_more_than_are_fetched_soon() -> None:
    class Watched(MemoryFrontier):
        most = calls = 0

        async def lease(self, limit: int, **options: Any) -> Any:
            self.calls += self.pending > 0
            answer = await super().lease(limit, **options)
            self.most = max(self.most, self.count(SeedState.RUNNING))
            return answer

    frontier = Watched([f"http://h/{number}" for number in range(300)])
    settings = changed(speed=2, seeds_ahead=10)
    result = run_seeds(Pages, lambda request: "", frontier=frontier, settings=settings)
    assert result.seeds.succeeded == 300
    assert frontier.most <= 14
    # From memory, which is filled when half of it is gone: a call for each seed would be 300.
    assert 30 <= frontier.calls <= 60


# --- stop and pause -----------------------------------------------------------------------------


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


@pytest.mark.slow("5 s")
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


@pytest.mark.slow("5 s")
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


@pytest.mark.slow("2 s")
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
