"""Queues for the tests: every test of the contract runs on each adapter."""

from __future__ import annotations

import contextlib
import secrets
import threading
import time
from collections.abc import Callable, Iterator

import pytest
import redis

from apps.requeststore.queues.base import RequestQueue, TakenEntry
from apps.requeststore.queues.factory import broker_queue_name, open_queue, redis_key
from apps.requeststore.stores.base import QueueEntry
from yardkit.broker import Broker, Outgoing, connect
from yardkit.broker.base import DEAD_QUEUE, HEADER_REASON

PATIENCE_SECONDS = 30.0
_pause = threading.Event()


def wait_until(condition: Callable[[], object], what: str) -> None:
    """Wait for a condition for up to 30 s."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain: {what}"
        _pause.wait(0.01)


def entries(number: int, first: int = 1) -> list[QueueEntry]:
    """Entries with ids beyond what a float can hold."""
    numbers = range(first, first + number)
    return [QueueEntry(2**60 + each, "news", 1_700_000_000_000 + each) for each in numbers]


def take(queue: RequestQueue, number: int) -> list[TakenEntry]:
    """Take exactly this many."""
    taken: list[TakenEntry] = []
    deadline = time.monotonic() + PATIENCE_SECONDS
    while len(taken) < number and time.monotonic() < deadline:
        taken += queue.take(number - len(taken), timeout=0.5)
    assert len(taken) == number, f"{len(taken)} of {number} entries came"
    return taken


def of(taken: list[TakenEntry]) -> list[QueueEntry]:
    return [each.entry for each in taken]


class Queues:
    """Opens one queue many times, sends junk to it, and clears away after the test."""

    def __init__(self, kind: str, broker_url: str, redis_url: str = "") -> None:
        self.kind = kind
        self.redis_url = redis_url
        self.name = f"p7.test{secrets.token_hex(6)}"
        self._stack = contextlib.ExitStack()
        self.broker_url = broker_url
        self.broker = self.connect()
        self.broker.declare()
        self._dead = self.broker.subscribe(DEAD_QUEUE)

    def connect(self) -> Broker:
        broker = connect(self.broker_url, name="queue-test", timeout=PATIENCE_SECONDS)
        self._stack.callback(broker.close)
        return broker

    @property
    def key(self) -> str:
        return redis_key("test", self.name)

    def open(self, *, own_broker: bool = False) -> RequestQueue:
        queue = open_queue(
            self.name,
            redis_url=self.redis_url,
            redis_prefix="test",
            broker=self.connect() if own_broker else self.broker,
            consumer="tester",
        )
        self._stack.callback(queue.close)
        return queue

    def send(self, *bodies: bytes) -> None:
        """As a producer of other make does."""
        if self.redis_url:
            with contextlib.closing(redis.Redis.from_url(self.redis_url)) as client:
                client.lpush(self.key, *bodies)
            return
        name = broker_queue_name(self.name)
        self.broker.publish([Outgoing(body, name) for body in bodies]).result(PATIENCE_SECONDS)

    def dead(self, number: int) -> list[tuple[bytes, str]]:
        """So many dead letters: the body and the reason."""
        found: list[tuple[bytes, str]] = []
        deadline = time.monotonic() + PATIENCE_SECONDS
        while len(found) < number and time.monotonic() < deadline:
            deliveries = self._dead.take(100, 0.2)
            self._dead.ack(deliveries)
            found += [(each.body, str(each.headers[HEADER_REASON])) for each in deliveries]
        assert len(found) == number, f"{len(found)} of {number} dead letters came"
        return found

    def close(self) -> None:
        if self.redis_url:
            with contextlib.closing(redis.Redis.from_url(self.redis_url)) as client:
                for key in client.scan_iter(f"{self.key}*"):
                    client.delete(key)
        else:
            self.broker.delete(broker_queue_name(self.name))
        self._stack.close()


@pytest.fixture(
    params=[
        "sqlite",
        pytest.param("redis", marks=pytest.mark.services),
        pytest.param("rabbitmq", marks=pytest.mark.services),
    ]
)
def queues(request: pytest.FixtureRequest) -> Iterator[Queues]:
    """The same queue on each adapter; Redis has a broker of SQLite for its dead letters."""
    broker = "rabbit_vhost" if request.param == "rabbitmq" else "sqlite_broker_url"
    redis_url = request.getfixturevalue("redis_url") if request.param == "redis" else ""
    made = Queues(request.param, request.getfixturevalue(broker), redis_url)
    try:
        yield made
    finally:
        made.close()
