"""The contract of ``yardkit.broker.base``, continued: queues, exchanges, the end."""

from __future__ import annotations

import itertools
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
from yardkit.broker import (
    Broker,
    BrokerClosed,
    BrokerError,
    Outgoing,
    QueueDepth,
    QueueSpec,
    Unroutable,
)

# --- queues -------------------------------------------------------------------------------------


def test_depth(broker: Broker, queue: str) -> None:
    put(broker, queue, b"1", b"2", b"3")
    assert (ready(broker, queue), broker.depth(queue).consumers) == (3, 0)
    subscription = broker.subscribe(queue, prefetch=2)
    take(subscription, 2)
    depth = broker.depth(queue)
    assert depth in (QueueDepth(1, 2, 1), QueueDepth(1, -1, 1))


def test_what_does_not_exist(broker: Broker, brokers: Brokers, queue: str) -> None:
    missing = brokers.name()
    with pytest.raises(Unroutable, match=missing):
        broker.depth(missing)
    with pytest.raises(Unroutable, match=missing):
        broker.purge(missing)
    with pytest.raises(Unroutable, match=missing):
        broker.subscribe(missing)
    with pytest.raises(BrokerError, match="there is no exchange"):
        broker.bind(queue, missing)
    exchange = brokers.name()
    broker.declare_exchange(exchange, "topic")
    with pytest.raises(Unroutable, match=missing):
        broker.bind(missing, exchange)
    broker.delete(missing)
    assert ready(broker, queue) == 0  # and the broker still works


def test_purge_counts(broker: Broker, queue: str) -> None:
    put(broker, queue, *[b"x"] * 30)
    subscription = broker.subscribe(queue, prefetch=5)
    held = take(subscription, 5)
    assert broker.purge(queue) == 25
    subscription.requeue(held[:1])
    assert len(take(subscription, 1)) == 1
    assert broker.purge(queue) == 0


def test_deleted_is_gone_with_its_messages(broker: Broker, queue: str) -> None:
    put(broker, queue, b"x")
    broker.delete(queue)
    with pytest.raises(Unroutable):
        put(broker, queue, b"y")
    broker.declare(QueueSpec(queue))
    assert ready(broker, queue) == 0


@pytest.mark.fault
def test_a_subscription_survives_the_deletion_of_its_queue(
    broker: Broker, brokers: Brokers, queue: str
) -> None:
    subscription = broker.subscribe(queue)
    other = brokers.connect()
    other.delete(queue)

    def is_back() -> bool:
        return other.publish([Outgoing(b"x", queue)]).exception(PATIENCE_SECONDS) is None

    wait_until(is_back, "the owner declares its queue again")
    assert bodies(take(subscription, 1)) == [b"x"]


@pytest.mark.slow("2 s")
def test_unused_queues_expire(broker: Broker, brokers: Brokers) -> None:
    unused, used = brokers.name(), brokers.name()
    broker.declare(QueueSpec(unused, expires_seconds=0.5), QueueSpec(used, expires_seconds=0.5))
    subscription = broker.subscribe(used)
    put(broker, used, b"x")

    def is_gone() -> bool:
        return broker.publish([Outgoing(b"", unused)]).exception(PATIENCE_SECONDS) is not None

    wait_until(is_gone, "nobody consumes it")
    assert bodies(take(subscription, 1)) == [b"x"]
    subscription.close()
    wait_until(
        lambda: broker.publish([Outgoing(b"", used)]).exception(PATIENCE_SECONDS) is not None,
        "its consumer has left",
    )


def test_declaring_the_same_again_is_harmless(broker: Broker, brokers: Brokers) -> None:
    spec = QueueSpec(
        brokers.name(),
        max_priority=4,
        dead_letter=True,
        expires_seconds=3600,
        message_ttl_seconds=1.5,
    )
    broker.declare(spec)
    put(broker, spec.name, b"x")
    broker.declare(spec)
    brokers.connect().declare(spec)
    assert ready(broker, spec.name) == 1


@pytest.mark.parametrize(
    "changes", [{"max_priority": 3}, {"message_ttl_seconds": 5}, {"dead_letter": True}]
)
def test_other_settings_for_a_queue_are_refused_by_name(
    broker: Broker, queue: str, changes: dict[str, object]
) -> None:
    with pytest.raises(BrokerError, match=f"'{queue}' exists with other settings") as caught:
        broker.declare(QueueSpec(queue, **changes))  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)
    put(broker, queue, b"still works")


def test_another_kind_of_exchange_is_refused_by_name(broker: Broker, brokers: Brokers) -> None:
    exchange = brokers.name()
    broker.declare_exchange(exchange, "topic")
    broker.declare_exchange(exchange, "topic")
    with pytest.raises(BrokerError, match=f"'{exchange}' exists with other settings"):
        broker.declare_exchange(exchange, "fanout")


def test_impossible_queues_and_exchanges(broker: Broker, queue: str) -> None:
    for spec in (
        QueueSpec(""),
        QueueSpec("q" * 256),
        QueueSpec("q", max_priority=256),
        QueueSpec("q", expires_seconds=0),
        QueueSpec("q", message_ttl_seconds=-1),
    ):
        with pytest.raises(ValueError, match="queue"):
            broker.declare(spec)
    with pytest.raises(ValueError, match="fanout or topic"):
        broker.declare_exchange("e", "direct")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="prefetch"):
        broker.subscribe(queue, prefetch=0)


# --- exchanges ----------------------------------------------------------------------------------


def test_fanout_reaches_every_bound_queue(broker: Broker, brokers: Brokers) -> None:
    exchange, names = brokers.name(), [brokers.name() for _ in range(3)]
    broker.declare_exchange(exchange, "fanout")
    broker.declare(*map(QueueSpec, names))
    for name in names[:2]:
        broker.bind(name, exchange)
        broker.bind(name, exchange, "whatever")
    broker.publish([Outgoing(b"x", "any", exchange=exchange)]).result(PATIENCE_SECONDS)
    for name in names[:2]:
        (delivery,) = take(broker.subscribe(name), 1)
        assert (delivery.exchange, delivery.key, delivery.queue) == (exchange, "any", name)
    assert [ready(broker, name) for name in names] == [0, 0, 0]


@pytest.mark.parametrize(
    ("pattern", "fits", "fits_not"),
    [
        ("job.7.news", ["job.7.news"], ["job.7", "job.7.news.x", "job.8.news", ""]),
        ("job.*.news", ["job.7.news", "job..news"], ["job.news", "job.7.8.news"]),
        ("job.#", ["job", "job.7", "job.7.news"], ["jobs", "a.job"]),
        ("#", ["", "a", "a.b.c"], []),
        ("#.news", ["news", "a.news", "a.b.news"], ["news.a", "anews"]),
        ("a.#.b.#", ["a.b", "a.x.b", "a.b.b", "a.x.b.y.b"], ["a", "b", "x.a.b"]),
        ("*.#", ["a", "a.b"], []),
    ],
)
def test_topic_patterns(
    broker: Broker, brokers: Brokers, pattern: str, fits: list[str], fits_not: list[str]
) -> None:
    exchange, name = brokers.name(), brokers.name()
    broker.declare_exchange(exchange, "topic")
    broker.declare(QueueSpec(name))
    broker.bind(name, exchange, pattern)
    broker.publish(
        [Outgoing(key.encode(), key, exchange=exchange) for key in fits]
        + [Outgoing(b"wrong", key, exchange=exchange, mandatory=False) for key in fits_not]
    ).result(PATIENCE_SECONDS)
    assert bodies(take(broker.subscribe(name), len(fits))) == [key.encode() for key in fits]
    assert ready(broker, name) == 0


def test_a_queue_bound_twice_gets_one_copy(broker: Broker, brokers: Brokers) -> None:
    exchange, name = brokers.name(), brokers.name()
    broker.declare_exchange(exchange, "topic")
    broker.declare(QueueSpec(name))
    broker.bind(name, exchange, "a.*")
    broker.bind(name, exchange, "#")
    broker.publish([Outgoing(b"x", "a.b", exchange=exchange)]).result(PATIENCE_SECONDS)
    assert ready(broker, name) == 1


def test_nobody_bound_is_unroutable(broker: Broker, brokers: Brokers) -> None:
    exchange = brokers.name()
    broker.declare_exchange(exchange, "fanout")
    with pytest.raises(Unroutable, match=r"some\.key"):
        broker.publish([Outgoing(b"", "some.key", exchange=exchange)]).result(PATIENCE_SECONDS)


# --- threads and the end ------------------------------------------------------------------------


def test_many_threads_may_use_one_broker(broker: Broker, queue: str) -> None:
    publishers, takers, each = 6, 3, 200
    subscription = broker.subscribe(queue, prefetch=100)
    seen: list[bytes] = []
    done = threading.Event()
    numbers = itertools.count()

    def publish_all() -> None:
        for _ in range(each // 10):
            put(broker, queue, *[str(next(numbers)).encode() for _ in range(10)])

    def take_all() -> None:
        while not done.is_set():
            got = subscription.take(20, 0.05)
            seen.extend(bodies(got))
            subscription.ack(got)
            broker.depth(queue)

    threads = [threading.Thread(target=publish_all) for _ in range(publishers)]
    threads += [threading.Thread(target=take_all) for _ in range(takers)]
    for thread in threads:
        thread.start()
    wait_until(lambda: len(seen) >= publishers * each, "everything arrives")
    done.set()
    for thread in threads:
        thread.join(PATIENCE_SECONDS)
    assert sorted(map(int, seen)) == list(range(publishers * each))


def test_close_flushes_publishes_and_acknowledgements(brokers: Brokers) -> None:
    name = brokers.name()
    first = brokers.connect()
    first.declare(QueueSpec(name))
    confirms = [first.publish([Outgoing(b"x" * 1000, name)] * 20) for _ in range(100)]
    first.close(timeout=PATIENCE_SECONDS)
    assert [confirm.exception(0) for confirm in confirms] == [None] * 100
    second = brokers.connect()
    subscription = second.subscribe(name, prefetch=1500)
    subscription.ack(take(subscription, 1500))
    second.close(timeout=PATIENCE_SECONDS)
    assert ready(brokers.connect(), name) == 500


def test_a_closed_broker_says_so(broker: Broker, queue: str) -> None:
    subscription = broker.subscribe(queue)
    waiting: list[BaseException] = []

    def wait_for_ever() -> None:
        try:
            subscription.take(1, PATIENCE_SECONDS)
        except BrokerClosed as error:
            waiting.append(error)

    thread = threading.Thread(target=wait_for_ever)
    thread.start()
    broker.close()
    broker.close()
    thread.join(PATIENCE_SECONDS)
    assert len(waiting) == 1
    assert not broker.connected
    assert isinstance(broker.publish([Outgoing(b"", queue)]).exception(0), BrokerClosed)
    for call in (
        lambda: broker.declare(QueueSpec(queue)),
        lambda: broker.depth(queue),
        lambda: broker.subscribe(queue),
        lambda: broker.request(Outgoing(b"", queue), 1.0),
        lambda: subscription.take(),
    ):
        with pytest.raises(BrokerClosed):
            call()
    subscription.close()
