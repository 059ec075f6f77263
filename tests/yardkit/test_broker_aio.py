"""The broker port from asyncio."""

from __future__ import annotations

import asyncio
import time

import pytest

from tests.yardkit.broker_fixtures import PATIENCE_SECONDS, ready
from yardkit.broker import Broker, BrokerClosed, Outgoing, Unroutable
from yardkit.broker.aio import AsyncSubscription, publish


async def test_publish_and_take(broker: Broker, queue: str) -> None:
    async with AsyncSubscription(broker, queue) as subscription:
        assert subscription.queue == queue
        await publish(broker, [Outgoing(b"one", queue), Outgoing(b"two", queue)])
        got = []
        while len(got) < 2:
            got += await subscription.take(10, PATIENCE_SECONDS)
        assert [delivery.body for delivery in got] == [b"one", b"two"]
        subscription.ack(got[:1])
        subscription.requeue(got[1:])
        (again,) = await subscription.take(10, PATIENCE_SECONDS)
        assert again.redelivered
        subscription.dead_letter(again, "unfit")
    assert broker.depth(queue).ready == 0


async def test_failed_publishes_raise(broker: Broker, queue: str) -> None:
    with pytest.raises(Unroutable):
        await publish(broker, [Outgoing(b"", queue + ".none")])


async def test_take_waits_without_holding_up_the_loop(broker: Broker, queue: str) -> None:
    async with await AsyncSubscription.open(broker, queue) as subscription:
        taking = asyncio.create_task(subscription.take())
        await asyncio.sleep(0.05)
        assert not taking.done()
        await publish(broker, [Outgoing(b"x", queue)])
        (delivery,) = await asyncio.wait_for(taking, PATIENCE_SECONDS)
        assert delivery.body == b"x"


async def test_the_time_runs_out(broker: Broker, queue: str) -> None:
    async with AsyncSubscription(broker, queue) as subscription:
        began = time.monotonic()
        assert await subscription.take(10, 0.1) == []
        assert await subscription.take(10, 0) == []
        assert 0.09 < time.monotonic() - began < 10


@pytest.mark.slow("1 s")
async def test_a_cancelled_take_loses_nothing(broker: Broker, queue: str) -> None:
    total = 300
    seen: list[bytes] = []
    async with AsyncSubscription(broker, queue, prefetch=50) as subscription:

        async def publish_all() -> None:
            for number in range(total):
                await publish(broker, [Outgoing(str(number).encode(), queue)])

        publishing = asyncio.create_task(publish_all())
        deadline = time.monotonic() + PATIENCE_SECONDS
        step = 0
        while len(seen) < total and time.monotonic() < deadline:
            taking = asyncio.create_task(subscription.take(3))
            for _ in range(step % 5):
                await asyncio.sleep(0)
            step += 1
            taking.cancel()
            try:
                got = await taking
            except asyncio.CancelledError:
                await asyncio.sleep(0.0005)
                continue
            seen += [delivery.body for delivery in got]
            subscription.ack(got)
        await publishing
    assert seen == [str(number).encode() for number in range(total)]


async def test_several_tasks_take_from_one(broker: Broker, queue: str) -> None:
    seen: list[bytes] = []
    async with AsyncSubscription(broker, queue) as subscription:

        async def take_some() -> None:
            while len(seen) < 200:
                got = await subscription.take(7, 0.2)
                seen.extend(delivery.body for delivery in got)
                subscription.ack(got)

        await publish(broker, [Outgoing(str(number).encode(), queue) for number in range(200)])
        await asyncio.gather(*(take_some() for _ in range(4)))
    assert len(set(seen)) == 200


async def test_closing_ends_a_waiting_take(broker: Broker, queue: str) -> None:
    subscription = await AsyncSubscription.open(broker, queue)
    taking = asyncio.create_task(subscription.take())
    await asyncio.sleep(0)
    await subscription.close()
    with pytest.raises(BrokerClosed):
        await asyncio.wait_for(taking, PATIENCE_SECONDS)
    with pytest.raises(BrokerClosed):
        await subscription.take()


async def test_opening_that_is_given_up_leaves_no_consumer(broker: Broker, queue: str) -> None:
    opening = asyncio.create_task(AsyncSubscription.open(broker, queue))
    await asyncio.sleep(0)
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    await publish(broker, [Outgoing(b"x", queue)])
    deadline = time.monotonic() + PATIENCE_SECONDS
    while broker.depth(queue).consumers or not ready(broker, queue):
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)


async def test_opening_on_a_missing_queue(broker: Broker, queue: str) -> None:
    with pytest.raises(Unroutable):
        await AsyncSubscription.open(broker, queue + ".none")
