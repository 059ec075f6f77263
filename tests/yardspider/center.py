"""A small center with its agents, over a real broker, that does what a test tells it."""

from __future__ import annotations

import threading
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from yardkit import topology
from yardkit.broker import Broker, BrokerClosed, Outgoing, connect
from yardkit.protocol import (
    Allocate,
    Allocated,
    AnyMessage,
    DownloadBatch,
    DownloaderReady,
    DownloadResult,
    DownloadResults,
    Release,
    RequestItem,
    RunCounters,
    decode,
    decode_request,
    encode,
)

HTML = [("Content-Type", "text/html")]


class SmallCenter:
    """Answers allocations and requests; remembers what it got.

    ``on_allocate`` and ``on_batch`` give the answers, and may be replaced.
    """

    def __init__(self, broker: Broker, pages: Callable[[str], str | None]) -> None:
        self.broker = broker
        self.pages = pages
        self.agents = ["a1", "a2"]
        self.compress = False
        self.allocates: list[Allocate] = []
        self.releases: list[Release] = []
        self.batches: list[DownloadBatch] = []
        self.reports: list[RunCounters] = []
        self.seen = threading.Condition()
        self.on_allocate: Callable[[Allocate], list[AnyMessage]] = self.allocate
        self.on_batch: Callable[[DownloadBatch], list[AnyMessage]] = self.download

    @property
    def items(self) -> list[RequestItem]:
        return [item for batch in self.batches for item in batch.items]

    def allocate(self, message: Allocate) -> list[AnyMessage]:
        ready = [DownloaderReady(run=message.run, agent=name, ok=True) for name in self.agents]
        # The first agent is faster than the center's own word: any order must do.
        return [ready[0], Allocated(run=message.run, agents=self.agents), *ready[1:]]

    def download(self, message: DownloadBatch) -> list[AnyMessage]:
        answers: list[AnyMessage] = []
        for number, agent in enumerate(self.agents):
            share = message.items[number :: len(self.agents)]
            results = [result for item in share if (result := self.result(item))]
            if results:
                answers.append(DownloadResults(run=message.run, agent=agent, items=results))
        return answers

    def result(self, item: RequestItem) -> DownloadResult | None:
        request = decode_request(item.request)
        text = self.pages(request.url)
        if text is None:
            return None
        body = zlib.compress(text.encode()) if self.compress else text.encode()
        return DownloadResult(
            item.id, item.attempt, request.url, 200, HTML, body, compressed=self.compress
        )

    def handle(self, message: AnyMessage) -> list[AnyMessage]:
        kept: dict[type, list[Any]] = {
            Allocate: self.allocates,
            DownloadBatch: self.batches,
            Release: self.releases,
            RunCounters: self.reports,
        }
        with self.seen:
            kept[type(message)].append(message)
            self.seen.notify_all()
        if isinstance(message, Allocate):
            return self.on_allocate(message)
        return self.on_batch(message) if isinstance(message, DownloadBatch) else []

    def wait_for(self, condition: Callable[[], object], seconds: float = 30) -> None:
        with self.seen:
            assert self.seen.wait_for(condition, seconds), "the center never saw it"


@contextmanager
def small_center(url: str, pages: Callable[[str], str | None]) -> Iterator[SmallCenter]:
    """Run one until the block ends, on a broker of its own at ``url``."""
    broker = connect(url, name="small-center")
    broker.declare(*topology.SHARED)
    center = SmallCenter(broker, pages)
    queues = (topology.CENTER_CONTROL, topology.CENTER_REQUESTS, topology.STATISTICS)
    # A broker that tests share may hold messages of others, also items that nobody has read.
    for queue in (*queues, topology.ITEMS):
        broker.purge(queue.name)
    subscriptions = [broker.subscribe(queue.name) for queue in queues]

    def serve(number: int) -> None:
        subscription = subscriptions[number]
        try:
            while True:
                for delivery in subscription.take(timeout=60):
                    answers = center.handle(decode(delivery.body))
                    reply_to = delivery.reply_to or getattr(decode(delivery.body), "reply_to", "")
                    broker.publish([Outgoing(encode(answer), key=reply_to) for answer in answers])
                    subscription.ack([delivery])
        except BrokerClosed:
            return

    threads = [threading.Thread(target=serve, args=(n,)) for n in range(len(subscriptions))]
    for thread in threads:
        thread.start()
    try:
        yield center
    finally:
        broker.close()
        for thread in threads:
            thread.join()
