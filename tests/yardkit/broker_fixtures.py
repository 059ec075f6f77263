"""Brokers for the tests: every test of the contract runs on both adapters."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from yardkit.broker import Broker, BrokerError, Delivery, Outgoing, QueueSpec, Subscription, connect

PATIENCE_SECONDS = 30.0
WORKER = Path(__file__).with_name("broker_worker.py")

_pause = threading.Event()


def wait_until(condition: Callable[[], object], what: str) -> None:
    """Wait for a condition for up to 30 s."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain: {what}"
        _pause.wait(0.02)


def take(subscription: Subscription, number: int) -> list[Delivery]:
    """Take exactly this many deliveries."""
    taken: list[Delivery] = []
    deadline = time.monotonic() + PATIENCE_SECONDS
    while len(taken) < number and time.monotonic() < deadline:
        taken += subscription.take(number - len(taken), 0.5)
    assert len(taken) == number, f"{len(taken)} of {number} deliveries came"
    return taken


def put(broker: Broker, queue: str, *texts: bytes, **options: object) -> None:
    """Publish and wait for the confirm."""
    messages = [Outgoing(text, queue, **options) for text in texts]  # type: ignore[arg-type]
    broker.publish(messages).result(PATIENCE_SECONDS)


def ready(broker: Broker, queue: str) -> int:
    return broker.depth(queue).ready


def bodies(deliveries: list[Delivery]) -> list[bytes]:
    return [delivery.body for delivery in deliveries]


class Worker:
    """A second process; see ``broker_worker.py``."""

    def __init__(self, *arguments: object) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(WORKER), *map(str, arguments)], stdout=subprocess.PIPE, text=True
        )
        assert self.line() == "ready"

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def kill(self) -> None:
        """SIGKILL: no handler, no goodbye."""
        self.process.kill()
        self.process.wait(PATIENCE_SECONDS)

    def close(self) -> None:
        self.kill()
        assert self.process.stdout is not None
        self.process.stdout.close()


class Brokers:
    """Makes brokers, workers and queue names for one test and clears away after it."""

    def __init__(self, url: str, prefix: str) -> None:
        self.url = url
        self.prefix = prefix
        self._names = 0
        self._stack = contextlib.ExitStack()
        self._queues: list[str] = []

    def connect(self, url: str = "", timeout: float = PATIENCE_SECONDS) -> Broker:
        broker = connect(url or self.url, name=self.prefix, timeout=timeout)
        self._stack.callback(broker.close)
        return broker

    def name(self) -> str:
        """A new name for a queue or an exchange."""
        self._names += 1
        name = f"{self.prefix}.{self._names}"
        self._queues.append(name)
        return name

    def worker(self, *arguments: object) -> Worker:
        worker = Worker(*arguments)
        self._stack.callback(worker.close)
        return worker

    def close(self) -> None:
        with contextlib.suppress(BrokerError):
            cleaner = self.connect()
            for queue in self._queues:
                cleaner.delete(queue)
        self._stack.close()


@pytest.fixture(params=["sqlite", pytest.param("rabbitmq", marks=pytest.mark.services)])
def brokers(request: pytest.FixtureRequest, unique_prefix: str) -> Iterator[Brokers]:
    """On an own file, or in an own vhost of the RabbitMQ that runs here."""
    fixture = "sqlite_broker_url" if request.param == "sqlite" else "rabbit_vhost"
    made = Brokers(request.getfixturevalue(fixture), unique_prefix)
    yield made
    made.close()


@pytest.fixture
def unique_prefix(tmp_path: Path) -> str:
    """Unique even where tests have to share a vhost."""
    return f"test-{time.time_ns():x}-{tmp_path.name[-20:]}"


@pytest.fixture
def broker(brokers: Brokers) -> Broker:
    return brokers.connect()


@pytest.fixture
def queue(broker: Broker, brokers: Brokers) -> str:
    """A queue without any special settings."""
    name = brokers.name()
    broker.declare(QueueSpec(name))
    return name
