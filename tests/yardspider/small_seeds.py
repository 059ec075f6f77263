"""A small seed service over a real broker, in this process, that a test can take away."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from yardkit import topology
from yardkit.broker import BrokerClosed, Delivery, connect
from yardkit.broker.replies import reply_message
from yardkit.protocol import (
    AddSeeds,
    AnyMessage,
    ExtendLease,
    FinishSeeds,
    GiveBackLease,
    LeaseExtended,
    LeaseGivenBack,
    LeaseSeeds,
    SeedsAdded,
    SeedsLeased,
    SeedsRefused,
    decode,
    encode,
)
from yardkit.seeds import CallRefused
from yardspider.seeds.memory import MemoryFrontier

FRONTIER = 3
TOKEN = "seeds-token"


class SmallSeeds:
    """Answers for one frontier. ``silent``: it hears calls and neither does nor answers them."""

    def __init__(self, broker: Any, frontier: MemoryFrontier) -> None:
        self.broker = broker
        self.frontier = frontier
        self.calls: list[AnyMessage] = []
        self.silent = False
        self.lock = threading.RLock()
        self._parked: list[tuple[float, Delivery, LeaseSeeds]] = []

    def handle(self, delivery: Delivery) -> None:
        call: Any = decode(delivery.body)
        with self.lock:
            if self.silent:
                return
            self.calls.append(call)
            assert (call.frontier, call.token) == (FRONTIER, TOKEN)
            if isinstance(call, LeaseSeeds):
                self._parked.append((time.monotonic() + call.wait_seconds, delivery, call))
            else:
                self.reply(delivery, asyncio.run(self.answer(call)))
            self.serve_parked()

    async def answer(self, call: Any) -> AnyMessage:
        frontier = self.frontier
        try:
            if isinstance(call, AddSeeds):
                return SeedsAdded(answers=await frontier.add(call.seeds))
            if isinstance(call, FinishSeeds):
                return await frontier.finish(call.finishes, call.found)
            if isinstance(call, ExtendLease):
                deadline = await frontier.extend(call.generation, seconds=call.seconds)
                return LeaseExtended(deadline=deadline)
            assert isinstance(call, GiveBackLease)
            return LeaseGivenBack(count=await frontier.give_back(call.generation))
        except CallRefused as refused:
            return SeedsRefused(code=refused.code, text=str(refused))

    def serve_parked(self) -> None:
        """Answer leases that find something, or have waited enough."""
        with self.lock:
            for one in list(self._parked):
                until, delivery, call = one
                leased = asyncio.run(
                    self.frontier.lease(call.limit, seconds=call.seconds, wait_seconds=0)
                )
                if leased.seeds or time.monotonic() >= until:
                    self._parked.remove(one)
                    self.reply(delivery, leased)

    def reply(self, delivery: Delivery, answer: AnyMessage | SeedsLeased) -> None:
        self.broker.publish([reply_message(delivery, encode(answer))])


@contextmanager
def small_seeds(url: str, frontier: MemoryFrontier) -> Iterator[SmallSeeds]:
    """Run one until the block ends, on a broker of its own at ``url``."""
    broker = connect(url, name="small-seeds")
    broker.declare(topology.SEEDS)
    broker.purge(topology.SEEDS.name)
    asyncio.run(frontier.open())
    service = SmallSeeds(broker, frontier)
    subscription = broker.subscribe(topology.SEEDS.name)

    def serve() -> None:
        try:
            while True:
                for delivery in subscription.take(timeout=0.1):
                    service.handle(delivery)
                    subscription.ack([delivery])
                service.serve_parked()
        except BrokerClosed:
            return

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield service
    finally:
        broker.close()
        thread.join()
