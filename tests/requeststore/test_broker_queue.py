"""What only the queue in the broker has."""

from __future__ import annotations

import pytest

from apps.requeststore.engine.errors import RequestStoreUnavailable
from apps.requeststore.queues.broker_queue import BrokerRequestQueue
from apps.requeststore.queues.factory import broker_queue_name, open_queue
from tests.requeststore.queue_fixtures import PATIENCE_SECONDS, Queues, entries, of, queues, take
from yardkit.broker import QueueSpec, connect
from yardkit.broker.base import HEADER_QUEUE

__all__ = ["queues"]


RABBIT = pytest.param("rabbitmq", marks=pytest.mark.services)
on_brokers = pytest.mark.parametrize("queues", ["sqlite", RABBIT], indirect=True)
on_rabbit = pytest.mark.parametrize("queues", [RABBIT], indirect=True)


@on_brokers
def test_a_queue_that_somebody_deletes_is_made_again(queues: Queues) -> None:
    queue = queues.open()
    queue.push(entries(1))
    queues.connect().delete(broker_queue_name(queues.name))
    queue.push(entries(2))
    assert of(take(queue, 2)) == entries(2)


@on_brokers
def test_a_consumer_leaves_the_rest_to_others(queues: Queues) -> None:
    name = broker_queue_name(queues.name)
    first = BrokerRequestQueue(queues.connect(), name, prefetch=2)
    second = BrokerRequestQueue(queues.connect(), name, prefetch=2)
    first.push(entries(4))
    assert of(take(first, 2)) == entries(2)
    assert first.take(1, timeout=0.0) == []
    assert of(take(second, 2)) == entries(2, 3)
    first.close()
    second.close()


@on_brokers
def test_junk_names_the_queue_where_it_died(queues: Queues) -> None:
    queue = queues.open()
    queue.stats()
    queues.send(b"junk")
    assert queue.take(1, timeout=0.3) == []
    dead = queues._dead.take(1, PATIENCE_SECONDS)
    queues._dead.ack(dead)
    assert [each.headers[HEADER_QUEUE] for each in dead] == [broker_queue_name(queues.name)]


def test_a_closed_broker_is_told(sqlite_broker_url: str) -> None:
    broker = connect(sqlite_broker_url, name="test", timeout=PATIENCE_SECONDS)
    queue = open_queue("p1.news", broker=broker)
    queue.push(entries(1))
    taken = take(queue, 1)
    broker.close()
    for call in (
        lambda: queue.push(entries(1)),
        lambda: queue.take(1, timeout=0.0),
        queue.stats,
        queue.clear,
    ):
        with pytest.raises(RequestStoreUnavailable, match="closed"):
            call()
    queue.close()
    broker = connect(sqlite_broker_url, name="test", timeout=PATIENCE_SECONDS)
    again = open_queue("p1.news", broker=broker)
    assert of(take(again, 1)) == of(taken)
    again.close()
    broker.close()


@on_rabbit
def test_another_shape_of_the_queue_is_told(queues: Queues) -> None:
    queues.broker.declare(QueueSpec(broker_queue_name(queues.name)))
    with pytest.raises(RequestStoreUnavailable, match="max-priority"):
        queues.open().push(entries(1))


def test_it_needs_some_server() -> None:
    with pytest.raises(ValueError, match="needs a Redis or a broker"):
        open_queue("p1.news")
