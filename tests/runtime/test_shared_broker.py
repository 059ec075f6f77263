"""The process's one connection, and the events that use it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import transaction
from django.test import override_settings

from apps.runtime.services import close_shared_broker, emit, shared_broker
from apps.runtime.services import events as events_module
from tests.runtime.processes import wait_for
from yardkit import topology
from yardkit.broker import BadBrokerURL, Broker, BrokerUnavailable, Subscription, connect
from yardkit.protocol import Event, decode

DEAD_PORT = "amqp://ops:s3cret@127.0.0.1:1/"


@pytest.fixture(autouse=True)
def own_broker(sqlite_broker_url: str) -> Iterator[None]:
    with override_settings(BROKER_URL=sqlite_broker_url):
        yield
        close_shared_broker()


@pytest.fixture
def listener(broker: Broker) -> Subscription:
    queue = topology.web_events("test")
    broker.declare_exchange(topology.EVENTS, "fanout")
    broker.declare(queue)
    broker.bind(queue.name, topology.EVENTS)
    return broker.subscribe(queue.name)


def heard(listener: Subscription, number: int) -> list[Event]:
    found: list[Event] = []

    def enough() -> bool:
        for delivery in listener.take(100, timeout=0.2):
            message = decode(delivery.body)
            assert isinstance(message, Event)
            found.append(message)
            listener.ack([delivery])
        return len(found) >= number

    wait_for(enough, f"{number} events")
    return found


def test_all_threads_share_one_connection_with_the_queues_declared() -> None:
    with ThreadPoolExecutor(8) as pool:
        brokers = list(pool.map(lambda _: shared_broker(), range(16)))
    assert len({id(broker) for broker in brokers}) == 1
    for spec in topology.SHARED:
        assert brokers[0].depth(spec.name).ready == 0


def test_after_closing_the_next_use_connects_again() -> None:
    first = shared_broker()
    close_shared_broker()
    close_shared_broker()
    assert shared_broker() is not first


def test_an_outage_costs_the_first_caller_the_wait_and_the_next_ones_nothing() -> None:
    with override_settings(BROKER_URL=DEAD_PORT):
        with pytest.raises(BrokerUnavailable) as caught:
            shared_broker(timeout=0.5)
        assert "s3cret" not in str(caught.value)
        before = time.monotonic()
        for _ in range(50):
            with pytest.raises(BrokerUnavailable):
                shared_broker(timeout=0.5)
        # 50 attempts of their own would take 25 s.
        assert time.monotonic() - before < 10
    assert shared_broker().connected, "another address is tried at once"


def test_a_bad_address_is_its_own_error() -> None:
    with override_settings(BROKER_URL="carrier-pigeon://loft"), pytest.raises(BadBrokerURL):
        shared_broker()


def test_events_reach_whoever_listens(listener: Subscription) -> None:
    emit("run.changed", project=3, payload={"run": 7})
    (event,) = heard(listener, 1)
    assert (event.kind, event.project, event.payload) == ("run.changed", 3, {"run": 7})


@pytest.mark.django_db(transaction=True)
def test_events_wait_for_the_commit_and_vanish_with_a_rollback(listener: Subscription) -> None:
    with transaction.atomic():
        emit("never", payload={})
        transaction.set_rollback(True)
    with transaction.atomic():
        emit("committed")
        assert listener.take(10, timeout=0.2) == []
    assert [event.kind for event in heard(listener, 1)] == ["committed"]


def test_an_event_is_as_it_was_when_it_was_emitted(listener: Subscription) -> None:
    payload = {"left": 1}
    emit("counters", payload=payload)
    payload["left"] = 0
    assert heard(listener, 1)[0].payload == {"left": 1}


@pytest.mark.slow("3 s")
def test_without_a_broker_events_are_dropped_with_one_line_an_outage(
    caplog: pytest.LogCaptureFixture, listener: Subscription
) -> None:
    with override_settings(BROKER_URL=DEAD_PORT):
        before = time.monotonic()
        for _ in range(5000):
            emit("lost")
        assert time.monotonic() - before < 30, "nobody waits"
        wait_for(lambda: not events_module._waiting, "they are dropped")
        wait_for(lambda: "events are dropped" in caplog.text, "it is logged")
        emit("lost too")
        wait_for(lambda: not events_module._waiting, "it is dropped")
    wait_for(lambda: emit("found") or listener.take(1, timeout=0.2), "events flow again")
    assert caplog.text.count("events are dropped") == 1
    assert "s3cret" not in caplog.text


@pytest.mark.parametrize("payload", [{"x": object()}, {"x": 2**70}, {"x": "\ud800"}, 5])
def test_a_payload_that_cannot_travel_is_logged_and_raises_nothing(
    payload: dict[str, object], caplog: pytest.LogCaptureFixture
) -> None:
    emit("odd", payload=payload)
    assert "event odd cannot be sent" in caplog.text


def test_the_adapter_is_what_the_address_says(sqlite_broker_url: str) -> None:
    broker = connect(sqlite_broker_url, name="test")
    assert type(shared_broker()) is type(broker)
    broker.close()
