"""Items of a run on the platform: batches, confirms, back-pressure; in virtual time."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from typing import Any, Literal

import msgspec
import pytest

from tests.yardspider.crawls import FAST, changed, check_counters
from tests.yardspider.item_brokers import ItemCenter, ItemRun, item_run
from yardkit.items.batches import MAX_BATCH_BYTES, read_batch
from yardkit.protocol import BATCH_BYTES, MAX_ITEM_BYTES, SeedState
from yardspider import Request, Response, SeedSpider, Spider
from yardspider.item_lines import TOO_DEEP, TOO_LARGE
from yardspider.seeds.memory import MemoryFrontier

PAGES = 300


class Shop(Spider):
    """``PAGES`` pages, each with one item."""

    settings = FAST
    start_urls = [f"http://h/{number}" for number in range(PAGES)]

    def parse(self, response: Response) -> Iterator[Any]:
        yield {"url": response.url}


class Goods(msgspec.Struct):
    """Class of the items of a spider."""

    name: str
    price: float
    sizes: list[str] = []
    color: Literal["red", "blue"] = "red"


def page(_: Any) -> str:
    return "x"


@pytest.mark.covers("DS.1")
def test_a_request_succeeds_once_its_items_are_confirmed() -> None:
    center = ItemCenter(page, seconds=5)
    outcome = item_run(Shop, center)
    assert (outcome.state, outcome.counters.success, outcome.counters.items) == (
        "exited",
        PAGES,
        PAGES,
    )
    assert sorted(item["url"] for item in center.items()) == sorted(Shop.start_urls)
    waiting = [report for report in center.reports if report.items and not report.success]
    assert waiting, "no report says that items are on their way"
    assert all(report.in_flight >= report.items for report in waiting)
    for report in center.reports:
        check_counters(report)


@pytest.mark.covers("DS.1")
def test_items_travel_in_batches_of_a_second() -> None:
    center = ItemCenter(page)
    item_run(Shop, center, changed(speed=100))
    # Three seconds of pages.
    assert 3 <= len(center.batches) <= 6
    urls = [item.url for item in read_batch(center.batches[0])]
    assert urls == [item.data["url"] for item in read_batch(center.batches[0])]


@pytest.mark.covers("DS.1")
def test_batches_are_bounded_by_items_and_bytes() -> None:
    class Many(Spider):
        settings = FAST
        start_urls = ["http://h/"]

        def parse(self, response: Response) -> Iterator[Any]:
            for number in range(2500):
                yield {"n": number}
            for number in range(5):
                yield {"n": number, "text": "x" * (BATCH_BYTES // 2)}
            yield {"text": "x" * (MAX_ITEM_BYTES - 100)}

    center = ItemCenter(page)
    outcome = item_run(Many, center)
    assert outcome.counters.items == len(center.items()) == 2506
    assert [batch.count for batch in center.batches[:2]] == [1000, 1000]
    assert all(batch.raw_bytes <= BATCH_BYTES for batch in center.batches[:-1])
    assert center.batches[-1].count == 1
    assert center.batches[-1].raw_bytes <= MAX_BATCH_BYTES


@pytest.mark.covers("DS.1")
async def test_confirms_in_another_order_hold_up_later_requests() -> None:
    class Two(Spider):
        settings = changed(concurrency=1)
        start_urls = ["http://h/1", "http://h/2"]

        def parse(self, response: Response) -> Iterator[Any]:
            for number in range(1000):
                yield {"n": number}

    center = ItemCenter(page, seconds=None)
    run = ItemRun(Two(), center)
    running = asyncio.create_task(run.engine.run())
    while len(center.open) < 2:
        await asyncio.sleep(0.001)
    first, second = center.open
    center.confirm(second)
    await asyncio.sleep(0.01)
    assert (run.accounting.success, run.sink.waiting) == (0, 2)
    center.confirm(first)
    assert (run.accounting.success, run.sink.waiting) == (2, 0)
    assert (await running).state == "exited"


@pytest.mark.covers("DS.1")
def test_items_of_start_belong_to_the_run() -> None:
    class Start(Spider):
        settings = FAST

        def start(self) -> Iterator[Any]:
            yield {"from": "start"}
            yield Request("http://h/")

    center = ItemCenter(page, seconds=3)
    outcome = item_run(Start, center)
    assert center.items() == [{"from": "start"}]
    assert (outcome.counters.success, outcome.counters.items) == (1, 1)
    assert not center.open


# --- back-pressure ----------------------------------------------------------------------------


@pytest.mark.covers("DS.1")
@pytest.mark.parametrize("form", ["generator", "coroutine"])
async def test_without_confirms_nothing_new_is_sent_and_callbacks_wait(form: str) -> None:
    class Endless(Spider):
        settings = changed(concurrency=5, unconfirmed_items=2000)

        async def start(self) -> AsyncIterator[Any]:
            for number in range(5000):
                yield Request(f"http://h/{number}")

        def parse(self, response: Response) -> Any:
            return self.generator() if form == "generator" else self.coroutine()

        def generator(self) -> Iterator[Any]:
            for number in range(1500):
                yield {"n": number}

        async def coroutine(self) -> AsyncIterator[Any]:
            for item in self.generator():
                yield item

    center = ItemCenter(page, seconds=None)
    run = ItemRun(Endless(), center)
    running = asyncio.create_task(run.engine.run())
    for _ in range(200):
        await asyncio.sleep(0.002)
    # Every page that was out when it became crowded adds one item at most.
    assert 2000 < run.accounting.items <= 2010
    assert len(center.requests) <= 10
    sent = len(center.requests)
    center.seconds = 0.1
    while center.open:
        center.confirm(center.open[0])
    while len(center.requests) <= sent:
        await asyncio.sleep(0.002)
    assert run.accounting.success > 0
    run.engine.stop("test")
    outcome = await running
    assert outcome.state == "stopped"


@pytest.mark.covers("DS.1")
async def test_start_is_not_advanced_while_items_are_unconfirmed() -> None:
    class Items(Spider):
        settings = changed(unconfirmed_items=1000)
        made = 0

        def start(self) -> Iterator[Any]:
            for number in range(5000):
                Items.made += 1
                yield {"n": number}
            yield Request("http://h/")

    center = ItemCenter(page, seconds=None)
    run = ItemRun(Items(), center)
    running = asyncio.create_task(run.engine.run())
    for _ in range(50):
        await asyncio.sleep(0.002)
    assert Items.made == 1001
    center.seconds = 0.1
    while center.open:
        center.confirm(center.open[0])
    assert (await running).counters.items == 5000
    assert len(center.items()) == 5000


@pytest.mark.slow("2 s")
@pytest.mark.covers("DS.1")
def test_bytes_are_limited_as_well() -> None:
    class Wide(Spider):
        settings = changed(concurrency=3, unconfirmed_bytes=100_000)
        start_urls = [f"http://h/{number}" for number in range(100)]

        def parse(self, response: Response) -> Iterator[Any]:
            yield {"noise": str(math.pi) + "".join(map(str, range(20_000)))}

    center = ItemCenter(page, seconds=1)
    outcome = item_run(Wide, center)
    assert outcome.counters.success == 100
    # Beyond the limit, one item of each page that was out.
    assert center.most_open_bytes <= 100_000 + 3 * 110_000
    assert outcome.seconds > 10


# --- items that cannot be stored --------------------------------------------------------------


@pytest.mark.covers("DS.9")
def test_items_that_are_not_of_the_declared_class_are_dropped() -> None:
    class Typed(Spider):
        settings = FAST
        start_urls = ["http://h/"]
        item_type = Goods

        def parse(self, response: Response) -> Iterator[Any]:
            yield {"name": "a", "price": 1}
            yield {"name": "b", "price": "cheap"}
            yield {"name": "c", "price": "dear"}
            yield {"name": "d", "price": 2.5, "sizes": ["s", 7]}
            yield {"price": 3}
            yield {"name": "e", "price": 4, "color": "pink"}
            yield {"name": "f", "price": 5, "color": "red", "more": True}

    center = ItemCenter(page)
    counters = item_run(Typed, center).counters
    assert [item["name"] for item in center.items()] == ["a", "f"]
    assert (counters.success, counters.items) == (1, 7)
    assert counters.dropped == {
        "price: Expected `float`, got `str`": 2,
        "sizes[1]: Expected `str`, got `int`": 1,
        "Object missing required field `name`": 1,
        "color: Invalid enum value": 1,
    }


@pytest.mark.covers("DS.2")
def test_items_that_cannot_be_stored_are_dropped_with_a_reason(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Odd(Spider):
        settings = FAST
        start_urls = ["http://h/"]

        def parse(self, response: Response) -> Iterator[Any]:
            yield {"n": 1}
            yield {"text": "x" * MAX_ITEM_BYTES}
            deep: Any = []
            for _ in range(99):
                deep = [deep]
            yield {"deep": deep}
            yield {"deep": deep, "cycle": None}
            item: dict[str, Any] = {}
            item["itself"] = item
            yield item
            yield {"n": 2}

    center = ItemCenter(page)
    outcome = item_run(Odd, center)
    counters = outcome.counters
    assert center.items() == [{"n": 1}, {"n": 2}]
    assert (counters.success, counters.items) == (1, 6)
    assert counters.dropped == {TOO_LARGE: 1, TOO_DEEP: 3}
    dropped = [text for text in caplog.messages if text.startswith("items dropped")]
    assert dropped == [
        f"items dropped: {TOO_LARGE} (page http://h/)",
        f"items dropped: {TOO_DEEP} (page http://h/)",
    ]


@pytest.mark.covers("DS.2")
def test_what_is_not_json_fails_the_request_and_names_the_field() -> None:
    class Odd(Spider):
        settings = FAST
        start_urls = ["http://h/1", "http://h/2"]

        def parse(self, response: Response) -> Iterator[Any]:
            yield {"when": datetime(2026, 7, 1, tzinfo=UTC), "half": "\ud800"}
            if response.url.endswith("2"):
                yield {"price": {"parts": [1, Request("http://h/")]}}

    center = ItemCenter(page)
    outcome = item_run(Odd, center)
    assert (outcome.counters.success, outcome.counters.failed) == (1, 1)
    assert "['price']['parts'][1]: " in outcome.failures[0].reason
    assert center.items() == [{"when": "2026-07-01T00:00:00Z", "half": "?"}] * 2


# --- the end ----------------------------------------------------------------------------------


@pytest.mark.covers("DS.1", "DS.2")
async def test_a_stopped_run_says_what_was_not_confirmed() -> None:
    center = ItemCenter(page, seconds=None)
    run = ItemRun(Shop(), center)
    running = asyncio.create_task(run.engine.run())
    while run.accounting.items < PAGES:
        await asyncio.sleep(0.001)
    run.engine.stop("SIGTERM")
    outcome = await running
    assert (outcome.state, outcome.accounting.success) == ("stopped", 0)
    assert outcome.accounting.left == PAGES
    assert outcome.reason.startswith(f"SIGTERM; {PAGES} items were not confirmed by the broker")
    # All the same they were sent.
    assert len(center.items()) == PAGES


@pytest.mark.covers("DS.1")
async def test_a_stopped_run_waits_for_its_items() -> None:
    center = ItemCenter(page, seconds=1)
    run = ItemRun(Shop(), center, changed(speed=10))
    running = asyncio.create_task(run.engine.run())
    while run.accounting.items < 20:
        await asyncio.sleep(0.001)
    run.engine.stop("SIGTERM")
    outcome = await running
    assert (outcome.state, outcome.reason) == ("stopped", "SIGTERM")
    assert outcome.accounting.success == outcome.counters.items == len(center.items())


@pytest.mark.covers("DS.1")
async def test_a_paused_run_publishes_what_it_has() -> None:
    center = ItemCenter(page, seconds=1)
    run = ItemRun(Shop(), center, changed(speed=10))
    running = asyncio.create_task(run.engine.run())
    while run.accounting.items < 20:
        await asyncio.sleep(0.001)
    center.tell("pause")
    paused_at = center.clock.now()
    while center.clock.now() < paused_at + 5:
        await asyncio.sleep(0.001)
    assert run.accounting.success == run.accounting.items == len(center.items()) < PAGES
    center.tell("resume")
    assert (await running).counters.success == PAGES


@pytest.mark.covers("DS.1")
@pytest.mark.parametrize("where", ["requests", "parse"])
def test_a_seed_is_finished_after_its_items_are_confirmed(where: str) -> None:
    class Seeds(SeedSpider):
        settings = changed(empty_seconds=1)

        def requests(self, seed: Any) -> Iterator[Any]:
            if where == "requests":
                yield {"seed": seed.data}
            else:
                yield Request(seed.data)

        def parse(self, response: Response) -> Iterator[Any]:
            yield {"seed": response.url}

    frontier = MemoryFrontier(["http://h/1"])
    center = ItemCenter(page, seconds=20)
    states: list[SeedState] = []
    confirm = center.confirm

    def look(on_confirmed: Any) -> None:
        states.extend(seed.state for seed in frontier.seeds)
        confirm(on_confirmed)

    center.confirm = look  # type: ignore[method-assign]
    outcome = item_run(Seeds, center, frontier=frontier)
    assert outcome.seeds.succeeded == 1
    assert center.items() == [{"seed": "http://h/1"}]
    assert SeedState.SUCCEEDED not in states
    assert frontier.seeds[0].state is SeedState.SUCCEEDED
