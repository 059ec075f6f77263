"""The window and the speed: the slow start, and changes while a run is under way."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest

from tests.yardspider.crawls import changed, check_books
from yardspider import Request, Response, Spider
from yardspider.errors import BadInput
from yardspider.pace import CrawlPace
from yardspider.testing import CrawlResult, FakeCenter, Slow, crawl


class Many(Spider):
    """Three hundred pages."""

    def start(self) -> Iterator[Request]:
        for number in range(300):
            yield Request(f"http://h/{number}")

    def parse(self, response: Response) -> None:
        return None


async def crawled(center: FakeCenter, **settings: Any) -> CrawlResult:
    result = await crawl(Many, center, settings=changed(**settings))
    check_books(result)
    assert result.outcome.state == "exited"
    return result


class Watched(FakeCenter):
    """Remembers when each request was sent, and how many were out at once."""

    def __init__(self, seconds: float) -> None:
        super().__init__(lambda request: Slow(seconds, ""))
        self.sent: list[float] = []

    def send(self, items: Any) -> None:
        self.sent += [self.clock.now()] * len(items)
        super().send(items)

    def out(self, seconds: float, at: float) -> int:
        return sum(at - seconds < sent <= at for sent in self.sent)


@pytest.mark.covers("S3.20")
async def test_the_window_grows_evenly_from_one() -> None:
    center = Watched(4.0)
    await crawled(center, concurrency=20, slow_start_seconds=100)
    begin = center.sent[0]
    for second in range(1, 100, 7):
        assert center.out(4.0, begin + second) == max(1, 20 * second // 100)
    fast = Watched(4.0)
    await crawled(fast, concurrency=20)
    assert fast.out(4.0, fast.sent[0]) == 20


@pytest.mark.covers("S3.20")
async def test_concurrency_changes_while_the_run_is_under_way() -> None:
    center = Watched(10.0)
    center.clock.call_later(35, lambda: center.tell("tune", 1, concurrency=20))
    center.clock.call_later(95, lambda: center.tell("tune", 2, concurrency=3))
    await crawled(center, concurrency=5)
    begin = center.sent[0]
    assert [center.out(10.0, begin + second) for second in (5, 34, 36, 90, 125)] == [
        5,
        5,
        20,
        20,
        3,
    ]
    assert [(one.command, one.accepted, one.reason) for one in center.commands] == [
        (1, True, "concurrency 20, speed 0"),
        (2, True, "concurrency 3, speed 0"),
    ]


async def test_the_speed_changes_at_once() -> None:
    center = Watched(0.1)
    center.clock.call_later(50, lambda: center.tell("tune", 1, speed=10))
    center.clock.call_later(60, lambda: center.tell("tune", 2, speed=0))
    result = await crawled(center, speed=0.02, concurrency=5)
    begin = center.sent[0]
    gaps = [round(later - sooner, 3) for sooner, later in pairwise(center.sent)]
    assert gaps[0] == pytest.approx(50, abs=0.2)
    assert sum(sent - begin < 60 for sent in center.sent) == pytest.approx(100, abs=4)
    assert result.outcome.seconds < 66


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"depth": 3}, "only concurrency and speed can be changed meanwhile, not depth"),
        ({}, "only concurrency and speed can be changed meanwhile, and neither is given"),
        ({"concurrency": 0}, "concurrency must be at least 1, not 0"),
        ({"speed": "fast"}, "Expected `float`, got `str` - at `$.speed`"),
    ],
    ids=["unknown", "none", "zero", "text"],
)
async def test_what_cannot_be_is_refused_and_changes_nothing(
    settings: dict[str, Any], reason: str
) -> None:
    center = Watched(10.0)
    center.clock.call_later(5, lambda: center.tell("tune", 7, **settings))
    await crawled(center, concurrency=30)
    (answer,) = center.commands
    assert not answer.accepted
    assert reason in answer.reason
    assert center.out(10.0, center.sent[0] + 30) == 30


async def test_a_paused_run_is_tuned_and_stays_paused() -> None:
    center = Watched(1.0)
    center.clock.call_later(5, lambda: center.tell("pause", 1))
    center.clock.call_later(8, lambda: center.tell("tune", 2, concurrency=50))
    center.clock.call_later(100, lambda: center.tell("resume", 3))
    await crawled(center, concurrency=2)
    begin = center.sent[0]
    assert not [sent for sent in center.sent if 7 < sent - begin < 99]
    assert center.out(1.0, begin + 100.5) == 50
    assert [one.accepted for one in center.commands] == [True, True, True]


def test_a_tune_in_the_slow_start_goes_on_with_it() -> None:
    pace = CrawlPace(changed(concurrency=10, slow_start_seconds=100))
    assert pace.window(0.0) == 1
    assert pace.window(50.0) == 5
    pace.tune({"concurrency": 100})
    assert pace.window(50.0) == 50
    pace.tune({"concurrency": 2})
    assert pace.window(50.0) == 1
    assert pace.window(100.0) == 2
    with pytest.raises(BadInput):
        pace.tune({"concurrency": -1})
    assert pace.concurrency == 2
