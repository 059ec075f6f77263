"""From the broker to a browser's socket, through outages."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from asgiref.testing import ApplicationCommunicator

from apps.access.states import Role
from apps.dashboard import relay as relay_module
from apps.dashboard.relay import EventRelay, newest
from apps.runtime.services import events
from apps.runtime.services import relay as outbox
from crawlyard.lifespan import Lifespan
from tests.access.factories import make_user
from tests.dashboard.sockets import Socket, cookie_of
from tests.jobs.factories import make_run
from yardkit import topology
from yardkit.broker import Broker, BrokerUnavailable, Delivery, Outgoing, Unroutable, connect
from yardkit.protocol import Event, RunQueued, encode

WAIT_SECONDS = 20.0


def until(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)


def counters(run: int, done: int) -> Event:
    return Event(kind="run.counters", project=1, payload={"run": run, "success": done})


def publish(broker: Broker, *messages: Any) -> None:
    bodies = [each if isinstance(each, bytes) else encode(each) for each in messages]
    broker.publish(
        [Outgoing(body=b, key="", exchange=topology.EVENTS, mandatory=False) for b in bodies]
    ).result(WAIT_SECONDS)


class Received:
    """Collects what a relay delivers."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.problem: Exception | None = None

    def __call__(self, events: Sequence[Event]) -> None:
        if self.problem is not None:
            problem, self.problem = self.problem, None
            raise problem
        self.events += events

    def done(self) -> list[int]:
        return [event.payload["success"] for event in self.events]


@pytest.fixture
def broker(sqlite_broker_url: str) -> Iterator[Broker]:
    broker = connect(sqlite_broker_url, name="test")
    broker.declare_exchange(topology.EVENTS, "fanout")
    yield broker
    broker.close()


@pytest.fixture
def lifespan_ends() -> Iterator[None]:
    """A web process ends once; this one runs other tests afterwards."""
    yield
    events._worker.restart()
    outbox._worker.restart()


@pytest.fixture
def received() -> Received:
    return Received()


@pytest.fixture
def relay(sqlite_broker_url: str, received: Received) -> Iterator[EventRelay]:
    relay = EventRelay(url=sqlite_broker_url, deliver=received)
    yield relay
    relay.stop(WAIT_SECONDS)


def test_each_process_has_a_queue_of_its_own(sqlite_broker_url: str) -> None:
    names = {EventRelay(url=sqlite_broker_url, deliver=Received()).queue.name for _ in range(5)}
    assert len(names) == 5


def test_events_come_through_and_the_queue_goes_with_the_process(
    broker: Broker, relay: EventRelay, received: Received
) -> None:
    relay.start()
    until(lambda: relay.listening)
    publish(broker, counters(1, 1))
    until(lambda: received.done() == [1])
    relay.stop(WAIT_SECONDS)
    with pytest.raises(Unroutable, match=r"web\.events"):
        broker.depth(relay.queue.name)


def test_what_is_no_event_is_dropped_and_the_rest_arrives(
    broker: Broker, relay: EventRelay, received: Received, caplog: pytest.LogCaptureFixture
) -> None:
    relay.start()
    until(lambda: relay.listening)
    other = Event(kind="something.else", payload={"run": 1})
    publish(broker, b"\xff\x00", encode(RunQueued(run=1)), other, counters(1, 7))
    until(lambda: received.done() == [7])
    assert len(received.events) == 1
    assert "message dropped: queue=" in caplog.text


def test_only_the_newest_of_each_run_goes_on() -> None:
    def delivery(event: Event) -> Delivery:
        return Delivery(encode(event), "q", "", "", False, 0, "", "", "", {}, None)

    changed = Event(kind="run.changed", project=1, payload={"run": 1, "state": "exited"})
    arrived = [counters(1, 1), counters(2, 5), changed, counters(1, 2), counters(1, 3)]
    kept = newest([delivery(event) for event in arrived])
    assert kept == [counters(2, 5), changed, counters(1, 3)]


def test_a_web_process_that_is_too_busy_loses_updates_and_goes_on(
    broker: Broker, relay: EventRelay, received: Received, caplog: pytest.LogCaptureFixture
) -> None:
    received.problem = TimeoutError()
    relay.start()
    until(lambda: relay.listening)
    publish(broker, counters(1, 1))
    until(lambda: "too busy" in caplog.text)
    publish(broker, counters(1, 2))
    until(lambda: received.done() == [2])


def test_an_outage_is_one_line_and_it_reconnects_by_itself(
    broker: Broker,
    sqlite_broker_url: str,
    received: Received,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(relay_module, "RETRY_SECONDS", 0.01)
    caplog.set_level(logging.INFO, logger=relay_module.__name__)
    away = threading.Event()
    attempts: list[str] = []

    def connect_to(url: str, **options: Any) -> Broker:
        attempts.append(url)
        if not away.is_set():
            raise BrokerUnavailable("nobody answers")
        return connect(url, **options)

    relay = EventRelay(url=sqlite_broker_url, deliver=received, connect_to=connect_to)
    relay.start()
    try:
        until(lambda: len(attempts) >= 5)
        assert not relay.listening
        away.set()
        until(lambda: relay.listening)
        publish(broker, counters(1, 1))
        until(lambda: received.done() == [1])
    finally:
        relay.stop(WAIT_SECONDS)
    lines = [record.getMessage() for record in caplog.records]
    assert lines == [
        "live updates stopped, the broker is unreachable: nobody answers",
        "live updates resumed",
    ]


def test_what_nobody_foresaw_does_not_end_the_thread(
    broker: Broker,
    sqlite_broker_url: str,
    received: Received,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(relay_module, "RETRY_SECONDS", 0.01)
    received.problem = RuntimeError("surprise")
    relay = EventRelay(url=sqlite_broker_url, deliver=received)
    relay.start()
    try:
        until(lambda: relay.listening)
        publish(broker, counters(1, 1))
        until(lambda: "thread event-relay failed" in caplog.text)
        until(lambda: relay.listening)
        publish(broker, counters(1, 2))
        # The one that failed was not acknowledged, so it comes once more.
        until(lambda: received.done()[-1:] == [2])
    finally:
        relay.stop(WAIT_SECONDS)


def test_stopping_needs_no_broker(sqlite_broker_url: str) -> None:
    def connect_to(url: str, **options: Any) -> Broker:
        raise BrokerUnavailable("nobody answers")

    relay = EventRelay(url=sqlite_broker_url, deliver=Received(), connect_to=connect_to)
    relay.start()
    started = time.monotonic()
    relay.stop(WAIT_SECONDS)
    assert time.monotonic() - started < relay_module.RETRY_SECONDS + 1


@pytest.mark.services
def test_events_come_through_rabbitmq(rabbit_vhost: str, received: Received) -> None:
    broker = connect(rabbit_vhost, name="test")
    relay = EventRelay(url=rabbit_vhost, deliver=received)
    relay.start()
    try:
        until(lambda: relay.listening)
        publish(broker, counters(1, 1), counters(1, 2))
        until(lambda: received.done()[-1:] == [2])
    finally:
        relay.stop(WAIT_SECONDS)
        broker.close()


@pytest.mark.slow("1 s")
@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("lifespan_ends")
async def test_from_the_broker_to_the_browser(
    broker: Broker, sqlite_broker_url: str, settings: Any
) -> None:
    settings.BROKER_URL = sqlite_broker_url
    server = ApplicationCommunicator(Lifespan(), {"type": "lifespan"})
    await server.send_input({"type": "lifespan.startup"})
    assert await server.receive_output(WAIT_SECONDS) == {"type": "lifespan.startup.complete"}
    run = await sync_to_async(make_run)()
    user = await sync_to_async(make_user)(roles={run.job.project: Role.VIEWER})
    socket = Socket(f"/ws/runs/{run.pk}", await sync_to_async(cookie_of)(user))
    assert await socket.connect()
    event = counters(run.pk, 0)
    deadline = time.monotonic() + WAIT_SECONDS
    # The relay connects in the background: what is said before that is lost, and may be.
    while await socket.is_silent(0.2):
        assert time.monotonic() < deadline
        await asyncio.to_thread(publish, broker, event)
    heard = await socket.events()
    assert heard[0]["payload"] == {"run": run.pk, "success": 0}
    await socket.disconnect()
    await server.send_input({"type": "lifespan.shutdown"})
    assert await server.receive_output(WAIT_SECONDS) == {"type": "lifespan.shutdown.complete"}
    await server.wait(WAIT_SECONDS)


@pytest.mark.slow("1 s")
@pytest.mark.usefixtures("lifespan_ends")
async def test_the_web_starts_and_stops_without_a_broker(settings: Any) -> None:
    settings.BROKER_URL = "amqp://guest:guest@127.0.0.1:1/"
    server = ApplicationCommunicator(Lifespan(), {"type": "lifespan"})
    await server.send_input({"type": "lifespan.startup"})
    assert await server.receive_output(WAIT_SECONDS) == {"type": "lifespan.startup.complete"}
    await server.send_input({"type": "lifespan.shutdown"})
    assert await server.receive_output(WAIT_SECONDS) == {"type": "lifespan.shutdown.complete"}
    await server.wait(WAIT_SECONDS)
