"""A platform for items in virtual time: a center whose broker confirms when a test wants it to."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from yardkit import topology
from yardkit.broker import Outgoing
from yardkit.items.batches import read_batch
from yardkit.protocol import DownloaderSettings, FileChunk, ItemBatch, Policy, decode
from yardspider.accounting import CrawlAccounting
from yardspider.engine import CrawlEngine
from yardspider.environment import RunEnvironment
from yardspider.item_publisher import ItemPublisher
from yardspider.outcome import CrawlOutcome
from yardspider.seeds.memory import MemoryFrontier
from yardspider.settings import SpiderSettings
from yardspider.spider import Spider
from yardspider.testing import FakeCenter, Pages

RUN = RunEnvironment(
    run=7,
    token="r1.token",
    incarnation="b1",
    broker_url="",
    policy=Policy.RANDOM,
    agents=0,
    downloader=DownloaderSettings(),
    arguments={},
    settings={},
)


class ItemCenter(FakeCenter):
    """Takes messages of items; confirms each after ``seconds``, or by ``confirm`` if None."""

    def __init__(self, pages: Pages, seconds: float | None = 0.0) -> None:
        super().__init__(pages)
        self.seconds = seconds
        self.messages: list[ItemBatch | FileChunk] = []
        # Of ended requests, in the order of their end.
        self.rows: list[dict[str, Any]] = []
        self.open_bytes = 0
        self.most_open_bytes = 0
        self.open: list[Callable[[], None]] = []

    def publish(
        self, messages: Sequence[Outgoing], on_confirmed: Callable[[], None] | None = None
    ) -> None:
        assert on_confirmed is not None
        for outgoing in messages:
            assert (outgoing.key, outgoing.exchange) == (topology.ITEMS.name, "")
            assert outgoing.persistent
            assert outgoing.mandatory
            message = decode(outgoing.body)
            assert isinstance(message, ItemBatch | FileChunk)
            assert (message.boot, message.token) == ("b1", "r1.token")
            if message.producer == "requests:7" and isinstance(message, ItemBatch):
                assert message.first == len(self.rows) + 1
                self.rows += [item.data for item in read_batch(message)]
                continue
            assert message.producer == "run:7"
            self.messages.append(message)
        size = sum(len(outgoing.body) for outgoing in messages)
        self.open_bytes += size
        self.most_open_bytes = max(self.most_open_bytes, self.open_bytes)

        def confirmed() -> None:
            self.open_bytes -= size
            on_confirmed()

        self.open.append(confirmed)
        if self.seconds is not None:
            self.clock.call_later(self.seconds, lambda: self.confirm(confirmed))

    def confirm(self, on_confirmed: Callable[[], None]) -> None:
        self.open.remove(on_confirmed)
        on_confirmed()

    @property
    def batches(self) -> list[ItemBatch]:
        return [message for message in self.messages if isinstance(message, ItemBatch)]

    @property
    def chunks(self) -> list[FileChunk]:
        return [message for message in self.messages if isinstance(message, FileChunk)]

    def items(self) -> list[dict[str, Any]]:
        """The items of all batches, whose numbers must have no gap."""
        found: list[dict[str, Any]] = []
        for batch in self.batches:
            assert batch.first == len(found) + 1
            found += [item.data for item in read_batch(batch)]
        return found


class ItemRun:
    """One run over an ``ItemCenter``."""

    def __init__(
        self,
        spider: Spider,
        center: ItemCenter,
        settings: SpiderSettings | None = None,
        frontier: MemoryFrontier | None = None,
        keeps_requests: bool = False,
    ) -> None:
        settings = settings or spider.settings
        self.accounting = CrawlAccounting()
        run = replace(RUN, keeps_requests=keeps_requests)
        self.sink = ItemPublisher(run, settings, self.accounting.dropped)
        if frontier is not None:
            frontier.use_clock(center.clock.milliseconds)
        self.engine = CrawlEngine(
            spider,
            settings,
            center,
            self.sink,
            clock=center.clock,
            accounting=self.accounting,
            frontier=frontier,
        )


def item_run(
    spider: type[Spider],
    center: ItemCenter,
    settings: SpiderSettings | None = None,
    frontier: MemoryFrontier | None = None,
    *,
    keeps_requests: bool = False,
) -> CrawlOutcome:
    """Run to the end; nothing is left open."""

    async def run() -> CrawlOutcome:
        made = ItemRun(spider(), center, settings, frontier, keeps_requests)
        return await made.engine.run()

    return asyncio.run(run())
