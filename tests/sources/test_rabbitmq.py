"""Records in RabbitMQ: each message has its own expiry (seed S0.22 to S0.24)."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import closing

import pika
import pytest

from tests.sources.collector_setup import QUEUE, CollectorHarness
from tests.sources.octoparse_double import OctoparseDouble, record

pytestmark = pytest.mark.services


def until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.covers("S0.22", "S0.25", "S0.28")
def test_a_third_party_is_given_json_that_lives_for_seven_days(
    make_yard: Callable[..., CollectorHarness], double: OctoparseDouble, new_rabbit_vhost: str
) -> None:
    harness = make_yard(broker_url=new_rabbit_vhost)
    double.total = 2
    harness.harvest()
    with closing(pika.BlockingConnection(pika.URLParameters(new_rabbit_vhost))) as connection:
        channel = connection.channel()
        # RabbitMQ would reject another durability, or a TTL of the queue instead of each
        # message.
        channel.queue_declare("job_data", durable=True)
        found = [channel.basic_get("job_data", auto_ack=True) for _ in range(2)]
    for number, (_method, properties, body) in enumerate(found):
        assert json.loads(body) == record(number)
        assert properties.expiration == "604800000"
        assert (properties.content_type, properties.delivery_mode) == ("application/json", 2)


@pytest.mark.slow("1 s")
@pytest.mark.covers("S0.22", "S0.23", "S0.25")
def test_messages_expire_by_themselves(
    make_yard: Callable[..., CollectorHarness], double: OctoparseDouble, new_rabbit_vhost: str
) -> None:
    harness = make_yard(broker_url=new_rabbit_vhost, ttl_seconds=2)
    broker = harness.open_broker()
    double.total = 150
    assert harness.harvest(harness.collector(broker=broker)).published == 150
    assert broker.depth(QUEUE).ready == 150
    # Without a consumer and without a clean-up.
    until(lambda: broker.depth(QUEUE).ready == 0)


@pytest.mark.covers("S0.24")
def test_a_short_life_behind_a_long_one_still_counts(
    make_yard: Callable[..., CollectorHarness], double: OctoparseDouble, new_rabbit_vhost: str
) -> None:
    harness = make_yard(broker_url=new_rabbit_vhost, ttl_seconds=600)
    broker = harness.open_broker()
    collector = harness.collector(broker=broker)
    double.total = 1
    harness.harvest(collector)
    harness.configure(ttl_seconds=0.2)
    double.total = 3
    harness.harvest(collector)
    time.sleep(0.5)
    # RabbitMQ removes an expired message when it reaches the head of its queue.
    assert broker.depth(QUEUE).ready == 3
    # It is not delivered.
    assert harness.numbers() == [0]
