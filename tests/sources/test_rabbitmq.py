"""Records in RabbitMQ: each message expires by itself (seed S0.22 to S0.24)."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tests.sources.octoparse_double import OctoparseDouble
from tests.sources.yard import QUEUE, Yard

pytestmark = pytest.mark.services


def until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.covers("S0.22", "S0.23", "S0.25")
def test_messages_expire_by_themselves(
    make_yard: Callable[..., Yard], double: OctoparseDouble, new_rabbit_vhost: str
) -> None:
    yard = make_yard(broker_url=new_rabbit_vhost, ttl_seconds=2)
    broker = yard.open_broker()
    double.total = 150
    assert yard.harvest(yard.collector(broker=broker)).published == 150
    assert broker.depth(QUEUE).ready == 150
    # Nobody consumes, nobody cleans up.
    until(lambda: broker.depth(QUEUE).ready == 0)


@pytest.mark.covers("S0.24")
def test_a_short_life_behind_a_long_one_still_counts(
    make_yard: Callable[..., Yard], double: OctoparseDouble, new_rabbit_vhost: str
) -> None:
    yard = make_yard(broker_url=new_rabbit_vhost, ttl_seconds=600)
    broker = yard.open_broker()
    collector = yard.collector(broker=broker)
    double.total = 1
    yard.harvest(collector)
    yard.configure(ttl_seconds=0.2)
    double.total = 3
    yard.harvest(collector)
    time.sleep(0.5)
    # RabbitMQ throws an expired message away when it reaches the head of its queue.
    assert broker.depth(QUEUE).ready == 3
    # Nobody is given it all the same.
    assert yard.numbers() == [0]
