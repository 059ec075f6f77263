"""The contract of ``yardkit.broker.base``, which both adapters pass: publishing and consuming."""

from __future__ import annotations

import threading

import pytest

from tests.yardkit.broker_fixtures import (
    PATIENCE_SECONDS,
    Brokers,
    bodies,
    put,
    ready,
    take,
    wait_until,
)
from yardkit.broker import Broker, BrokerClosed, Outgoing, QueueSpec, Subscription, Unroutable

# --- publishing ---------------------------------------------------------------------------------


def test_is_a_broker(broker: Broker, queue: str) -> None:
    assert isinstance(broker, Broker)
    assert isinstance(broker.subscribe(queue), Subscription)
    assert broker.connected


def test_everything_about_a_message_arrives(broker: Broker, queue: str) -> None:
    headers = {"text": "schön", "number": -3, "big": 2**40, "share": 0.5, "flag": True}
    message = Outgoing(
        bytes(range(256)),
        queue,
        priority=3,
        message_id="m-1",
        reply_to="somewhere",
        correlation_id="c-1",
        headers=headers,
    )
    broker.publish([message]).result(PATIENCE_SECONDS)
    (delivery,) = take(broker.subscribe(queue), 1)
    assert delivery.body == message.body
    assert (delivery.queue, delivery.exchange, delivery.key) == (queue, "", queue)
    assert (delivery.priority, delivery.redelivered) == (3, False)
    assert (delivery.message_id, delivery.reply_to) == ("m-1", "somewhere")
    assert (delivery.correlation_id, delivery.headers) == ("c-1", headers)


def test_order_is_kept_across_calls(broker: Broker, queue: str) -> None:
    texts = [str(number).encode() for number in range(700)]
    confirms = [
        broker.publish([Outgoing(text, queue) for text in texts[start : start + 7]])
        for start in range(0, 700, 7)
    ]
    for confirm in confirms:
        confirm.result(PATIENCE_SECONDS)
    assert bodies(take(broker.subscribe(queue, prefetch=1000), 700)) == texts


def test_nothing_to_publish_is_confirmed(broker: Broker) -> None:
    assert broker.publish([]).result(PATIENCE_SECONDS) is None


def test_large_and_empty_bodies(broker: Broker, queue: str) -> None:
    large = b"0123456789abcdef" * (5 * 65536)
    put(broker, queue, large, b"", large[1:])
    assert bodies(take(broker.subscribe(queue), 3)) == [large, b"", large[1:]]


def test_mandatory_without_a_queue_is_unroutable(broker: Broker, queue: str) -> None:
    confirm = broker.publish(
        [
            Outgoing(b"1", queue),
            Outgoing(b"2", queue + ".none"),
            Outgoing(b"3", queue),
            Outgoing(b"4", queue + ".neither"),
            Outgoing(b"5", queue + ".optional", mandatory=False),
        ]
    )
    with pytest.raises(Unroutable) as caught:
        confirm.result(PATIENCE_SECONDS)
    assert caught.value.keys == [queue + ".none", queue + ".neither"]
    assert bodies(take(broker.subscribe(queue), 2)) == [b"1", b"3"]


def test_other_batches_do_not_suffer_from_an_unroutable_one(broker: Broker, queue: str) -> None:
    confirms = [
        broker.publish([Outgoing(b"", queue if number % 3 else queue + ".none")] * 5)
        for number in range(60)
    ]
    for number, confirm in enumerate(confirms):
        error = confirm.exception(PATIENCE_SECONDS)
        assert (error is None) == bool(number % 3)
        assert error is None or isinstance(error, Unroutable)


def test_not_mandatory_without_a_queue_is_dropped(broker: Broker, queue: str) -> None:
    put(broker, queue + ".none", b"", mandatory=False)


def test_unknown_exchange_is_unroutable(broker: Broker, brokers: Brokers, queue: str) -> None:
    exchange = brokers.name()
    before = broker.publish([Outgoing(b"before", queue)])
    wrong = broker.publish([Outgoing(b"", "key", exchange=exchange), Outgoing(b"with", queue)])
    after = broker.publish([Outgoing(b"after", queue)])
    with pytest.raises(Unroutable, match="key"):
        wrong.result(PATIENCE_SECONDS)
    before.result(PATIENCE_SECONDS)
    after.result(PATIENCE_SECONDS)
    assert sorted(bodies(take(broker.subscribe(queue), 3))) == [b"after", b"before", b"with"]


@pytest.mark.parametrize(
    "message",
    [
        Outgoing("text", "key"),  # type: ignore[arg-type]
        Outgoing(b"", "k" * 256),
        Outgoing(b"", "长" * 86),
        Outgoing(b"", "key", priority=256),
        Outgoing(b"", "key", ttl_seconds=-1),
        Outgoing(b"", "key", ttl_seconds=float("inf")),
        Outgoing(b"", "key", ttl_seconds=float("nan")),
        Outgoing(b"", "key", headers={"list": []}),  # type: ignore[dict-item]
        Outgoing(b"", "key", headers={"big": 2**63}),
    ],
)
def test_impossible_messages_are_refused_at_once(broker: Broker, message: Outgoing) -> None:
    with pytest.raises((ValueError, TypeError)):
        broker.publish([message])
    assert broker.connected


# --- time to live -------------------------------------------------------------------------------


@pytest.mark.covers("S0.22")
def test_an_expired_message_is_never_delivered(broker: Broker, queue: str) -> None:
    put(broker, queue, b"short", ttl_seconds=0.05)
    put(broker, queue, b"long", ttl_seconds=600)
    put(broker, queue, b"for ever")
    wait_until(lambda: ready(broker, queue) == 2, "the short one expires")
    assert bodies(take(broker.subscribe(queue), 2)) == [b"long", b"for ever"]


@pytest.mark.covers("S0.24")
def test_the_lower_time_to_live_wins(broker: Broker, brokers: Brokers) -> None:
    short, long = brokers.name(), brokers.name()
    broker.declare(
        QueueSpec(short, message_ttl_seconds=0.05), QueueSpec(long, message_ttl_seconds=600)
    )
    put(broker, short, b"", ttl_seconds=600)
    put(broker, short, b"")
    put(broker, long, b"", ttl_seconds=0.05)
    put(broker, long, b"stays")
    wait_until(lambda: ready(broker, short) == 0, "the queue's own limit holds")
    wait_until(lambda: ready(broker, long) == 1, "the message's own limit holds")
    assert bodies(take(broker.subscribe(long), 1)) == [b"stays"]


def test_a_message_handed_out_does_not_expire(broker: Broker, queue: str) -> None:
    subscription = broker.subscribe(queue)
    put(broker, queue, b"held", ttl_seconds=1.0)
    (delivery,) = take(subscription, 1)
    put(broker, queue, b"waits", ttl_seconds=0.05)
    subscription.ack([delivery])
    wait_until(lambda: ready(broker, queue) == 0, "all is settled")


# --- consuming ----------------------------------------------------------------------------------


def test_high_priority_goes_first(broker: Broker, brokers: Brokers) -> None:
    name = brokers.name()
    broker.declare(QueueSpec(name, max_priority=5))
    for priority in (0, 5, 1, 9, 5, 0):
        put(broker, name, str(priority).encode(), priority=priority)
    got = take(broker.subscribe(name), 6)
    # 9 counts as the queue's highest, 5; equal ones keep their order.
    assert bodies(got) == [b"5", b"9", b"5", b"1", b"0", b"0"]
    assert got[1].priority == 9


def test_priority_means_nothing_without_a_maximum(broker: Broker, queue: str) -> None:
    for priority in (0, 5, 1):
        put(broker, queue, str(priority).encode(), priority=priority)
    assert bodies(take(broker.subscribe(queue), 3)) == [b"0", b"5", b"1"]


def test_prefetch_limits_what_is_unacknowledged(broker: Broker, queue: str) -> None:
    put(broker, queue, *[str(number).encode() for number in range(10)])
    subscription = broker.subscribe(queue, prefetch=3)
    first = take(subscription, 3)
    assert subscription.take(10, 0.2) == []
    assert ready(broker, queue) == 7
    subscription.ack(first[:2])
    assert bodies(take(subscription, 2)) == [b"3", b"4"]
    assert subscription.take(10, 0.2) == []


def test_acknowledged_is_gone(broker: Broker, brokers: Brokers, queue: str) -> None:
    put(broker, queue, *[b"x"] * 200)
    subscription = broker.subscribe(queue, prefetch=50)
    for _ in range(20):
        subscription.ack(take(subscription, 10))
    subscription.close()
    assert brokers.connect().depth(queue).ready == 0


def test_acknowledging_out_of_order(broker: Broker, queue: str) -> None:
    put(broker, queue, *[str(number).encode() for number in range(100)])
    subscription = broker.subscribe(queue, prefetch=100)
    got = take(subscription, 100)
    for delivery in got[::-3]:
        subscription.ack([delivery])
    subscription.ack(got[50:60])
    left = set(bodies(got)) - set(bodies(got[::-3])) - set(bodies(got[50:60]))
    subscription.close()
    assert set(bodies(take(broker.subscribe(queue), len(left)))) == left


def test_requeued_comes_again_and_says_so(broker: Broker, queue: str) -> None:
    put(broker, queue, b"one", b"two", b"three")
    subscription = broker.subscribe(queue, prefetch=2)
    one, two = take(subscription, 2)
    subscription.requeue([one])
    (again,) = take(subscription, 1)
    assert (again.body, again.redelivered) == (b"one", True)
    subscription.ack([again, two])
    (three,) = take(subscription, 1)
    assert (three.body, three.redelivered) == (b"three", False)


def test_finishing_twice_changes_nothing(broker: Broker, queue: str) -> None:
    put(broker, queue, b"one", b"two")
    subscription = broker.subscribe(queue)
    one, two = take(subscription, 2)
    subscription.ack([one, one])
    subscription.ack([one])
    subscription.requeue([one])
    subscription.dead_letter(one, "too late")
    subscription.requeue([two])
    assert bodies(take(subscription, 1)) == [b"two"]
    assert broker.connected


def test_closing_a_subscription_gives_back_what_is_unacknowledged(
    broker: Broker, queue: str
) -> None:
    put(broker, queue, *[str(number).encode() for number in range(6)])
    first = broker.subscribe(queue, prefetch=4)
    got = take(first, 3)
    first.ack(got[:1])
    first.close()
    first.close()
    with pytest.raises(BrokerClosed):
        first.take()
    again = take(broker.subscribe(queue), 5)
    assert bodies(again) == [b"1", b"2", b"3", b"4", b"5"]
    assert [delivery.redelivered for delivery in again[:2]] == [True, True]
    assert not again[4].redelivered


def test_two_consumers_share_a_queue(broker: Broker, brokers: Brokers, queue: str) -> None:
    consumers = [broker.subscribe(queue, prefetch=10), brokers.connect().subscribe(queue)]
    counts = [0, 0]

    def both_have_some() -> bool:
        put(broker, queue, *[b"x"] * 10)
        for index, consumer in enumerate(consumers):
            got = consumer.take(100, 0.05)
            counts[index] += len(got)
            consumer.ack(got)
        return all(counts)

    wait_until(both_have_some, "both get something")


def test_on_ready_announces_deliveries(broker: Broker, queue: str) -> None:
    announced = threading.Event()
    subscription = broker.subscribe(queue, on_ready=announced.set)
    put(broker, queue, b"x")
    assert announced.wait(PATIENCE_SECONDS)
    assert bodies(subscription.take()) == [b"x"]


def test_on_ready_that_raises_stops_nothing(
    broker: Broker, queue: str, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> None:
        raise RuntimeError("a caller's mistake")

    subscription = broker.subscribe(queue, on_ready=fail)
    put(broker, queue, b"one")
    assert bodies(take(subscription, 1)) == [b"one"]
    put(broker, queue, b"two")
    assert bodies(take(subscription, 1)) == [b"two"]
    assert "on_ready" in caplog.text
