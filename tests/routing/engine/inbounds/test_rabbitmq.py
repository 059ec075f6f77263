"""RabbitMQ inbound: missing queues and rejected connections."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path

import pika
import pytest

from apps.routing.engine.inbounds.base import BadInit, Context
from apps.routing.engine.inbounds.rabbitmq import RabbitInbound
from tests.routing.engine.inbounds.sources import take, wait_for

pytestmark = pytest.mark.services


@pytest.fixture
def channel(rabbit_vhost: str) -> Iterator[pika.adapters.blocking_connection.BlockingChannel]:
    connection = pika.BlockingConnection(pika.URLParameters(rabbit_vhost))
    yield connection.channel()
    connection.close()


@pytest.fixture
def queue(channel: pika.adapters.blocking_connection.BlockingChannel) -> Iterator[str]:
    name = f"items-{secrets.token_hex(4)}"
    yield name
    channel.queue_delete(name)


def make(folder: Path, **init: object) -> RabbitInbound:
    return RabbitInbound(Context("in", "me", folder, folder, 10), init)


def test_a_missing_queue_is_made(rabbit_vhost: str, queue: str, tmp_path: Path) -> None:
    inbound = make(tmp_path, url=rabbit_vhost, queue=queue)
    wait_for(lambda: inbound.depth() == 0, "the queue")
    inbound.close()


def test_or_waited_for(
    rabbit_vhost: str,
    queue: str,
    tmp_path: Path,
    channel: pika.adapters.blocking_connection.BlockingChannel,
) -> None:
    inbound = make(tmp_path, url=rabbit_vhost, queue=queue, declare=False)
    missing = f"RabbitMQ: there is no queue {queue!r}"
    wait_for(lambda: inbound.problem == missing, "the problem")
    assert inbound.take(1, 0.1) == []
    # Somebody else makes it, as only they know how.
    channel.queue_declare(queue, arguments={"x-max-length": 5})
    channel.basic_publish("", queue, b"1")
    [taken] = take(inbound, 1)
    assert (taken.raw, taken.where) == (b"1", f"{queue}#1")
    assert inbound.problem == ""
    inbound.close()


def test_what_came_before_is_marked(
    rabbit_vhost: str,
    queue: str,
    tmp_path: Path,
    channel: pika.adapters.blocking_connection.BlockingChannel,
) -> None:
    channel.queue_declare(queue)
    channel.basic_publish("", queue, b"1", pika.BasicProperties(message_id="m-7"))
    inbound = make(tmp_path, url=rabbit_vhost, queue=queue)
    [taken] = take(inbound, 1)
    assert (taken.where, taken.redelivered) == (f"{queue}#m-7", False)
    inbound.back([taken.handle])
    [taken] = take(inbound, 1)
    assert taken.redelivered
    inbound.close()


@pytest.mark.slow("2 s")
def test_a_server_that_is_not_there_is_a_problem_without_a_password(tmp_path: Path) -> None:
    inbound = make(tmp_path, url="amqp://a:topsecret@127.0.0.1:1/", queue="q")
    wait_for(lambda: "no RabbitMQ at 127.0.0.1:1" in inbound.problem, "the problem")
    assert "topsecret" not in inbound.problem
    assert inbound.take(1, 0.1) == []
    assert inbound.depth() is None
    inbound.ack([])
    inbound.back([])
    inbound.close()


def test_a_wrong_url_is_no_inbound(tmp_path: Path) -> None:
    with pytest.raises(BadInit) as failed:
        make(tmp_path, url="http://a:topsecret@h", queue="q")
    assert "topsecret" not in str(failed.value)
