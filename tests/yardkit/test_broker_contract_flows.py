"""The contract of ``yardkit.broker.base``, continued: dead letters, replies, several processes."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

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
    Delivery,
    Outgoing,
    QueueSpec,
    Unroutable,
    drain,
)
from yardkit.broker.base import DEAD_QUEUE, HEADER_DIED_AT, HEADER_QUEUE, HEADER_REASON
from yardkit.broker.echoes import ask_for_echo


def take_dead(broker: Broker, queue: str, number: int) -> list[Delivery]:
    """The dead letters of one queue; those of others are left where they were."""
    subscription = broker.subscribe(DEAD_QUEUE, prefetch=1000)
    found: list[Delivery] = []

    def all_found() -> bool:
        for delivery in subscription.take(100, 0.1):
            if delivery.headers.get(HEADER_QUEUE) == queue:
                subscription.ack([delivery])
                found.append(delivery)
        return len(found) >= number

    wait_until(all_found, "the dead letters arrive")
    subscription.close()
    assert len(found) == number
    return found


# --- echoes -------------------------------------------------------------------------------------


def test_an_echo_is_answered_by_a_consumer_that_takes(broker: Broker, queue: str) -> None:
    subscription = broker.subscribe(queue, prefetch=10)
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(ask_for_echo, broker, queue, timeout=PATIENCE_SECONDS)
        while not asked.done():
            assert subscription.take(10, 0.05) == []
        asked.result()
        # Between other messages it takes no one's place.
        put(broker, queue, b"a")
        again = pool.submit(ask_for_echo, broker, queue, timeout=PATIENCE_SECONDS)
        wait_until(lambda: ready(broker, queue) == 0, "both are delivered")
        time.sleep(0.2)
        put(broker, queue, b"b", b"c")
        found = take(subscription, 3)
        again.result()
    assert bodies(found) == [b"a", b"b", b"c"]
    subscription.ack(found)
    subscription.close()
    assert ready(broker, queue) == 0


def test_an_echo_without_a_consumer_fails_in_time_and_leaves_nothing(
    broker: Broker, queue: str
) -> None:
    with pytest.raises(TimeoutError):
        ask_for_echo(broker, queue, timeout=0.5)
    subscription = broker.subscribe(queue)
    # A consumer that takes nothing does not answer either.
    with pytest.raises(TimeoutError):
        ask_for_echo(broker, queue, timeout=0.5)
    assert subscription.take(10, 0.5) == []
    subscription.close()
    with pytest.raises(BrokerError):
        ask_for_echo(broker, f"{queue}.missing", timeout=5)


# --- dead letters -------------------------------------------------------------------------------


def test_a_rejected_message_is_kept_with_the_reason(broker: Broker, queue: str) -> None:
    put(broker, queue, b"bad", b"good", message_id="m-1", priority=2, headers={"n": 1, "f": 0.5})
    subscription = broker.subscribe(queue)
    bad, good = take(subscription, 2)
    subscription.dead_letter(bad, "no such field: naïve")
    subscription.ack([good])
    (letter,) = take_dead(broker, queue, 1)
    assert (letter.body, letter.queue, letter.message_id) == (b"bad", DEAD_QUEUE, "m-1")
    assert letter.headers[HEADER_REASON] == "no such field: naïve"
    assert letter.headers[HEADER_QUEUE] == queue
    assert abs(float(letter.headers[HEADER_DIED_AT]) - time.time()) < 60
    assert (letter.headers["n"], letter.headers["f"]) == (1, 0.5)
    assert not letter.redelivered
    subscription.close()
    assert ready(broker, queue) == 0


@pytest.mark.slow("1 s")
def test_an_expired_message_is_kept_where_the_queue_asks_for_it(
    broker: Broker, brokers: Brokers
) -> None:
    keeps, forgets = brokers.name(), brokers.name()
    broker.declare(QueueSpec(keeps, dead_letter=True), QueueSpec(forgets, message_ttl_seconds=0.05))
    put(broker, forgets, b"forgotten")
    put(broker, keeps, b"kept", ttl_seconds=0.05, headers={"n": 1})
    (letter,) = take_dead(broker, keeps, 1)
    assert (letter.body, letter.headers["n"]) == (b"kept", 1)
    assert letter.headers[HEADER_REASON] == "expired"
    assert letter.headers[HEADER_QUEUE] == keeps
    assert abs(float(letter.headers[HEADER_DIED_AT]) - time.time()) < 60
    wait_until(lambda: ready(broker, forgets) == 0, "the other one expires")


def test_a_dead_letter_does_not_expire(broker: Broker, brokers: Brokers) -> None:
    name = brokers.name()
    broker.declare(QueueSpec(name, message_ttl_seconds=0.3))
    subscription = broker.subscribe(name)
    put(broker, name, b"x", ttl_seconds=0.3)
    subscription.dead_letter(take(subscription, 1)[0], "unfit")
    put(broker, name, b"marker")
    subscription.close()
    wait_until(lambda: ready(broker, name) == 0, "what came later has expired")
    take_dead(broker, name, 1)


def test_dead_letters_are_flushed_by_close(brokers: Brokers) -> None:
    name = brokers.name()
    first = brokers.connect()
    first.declare(QueueSpec(name))
    put(first, name, *[b"x"] * 50)
    subscription = first.subscribe(name)
    for delivery in take(subscription, 50):
        subscription.dead_letter(delivery, "unfit")
    first.close(timeout=PATIENCE_SECONDS)
    second = brokers.connect()
    assert ready(second, name) == 0
    take_dead(second, name, 50)


def test_the_dead_letter_queue_cannot_be_deleted(broker: Broker) -> None:
    with pytest.raises(BrokerError, match="purge"):
        broker.delete(DEAD_QUEUE)


# --- the end of a consumer ----------------------------------------------------------------------


def test_a_cancelled_consumer_settles_what_it_has_and_nothing_comes_again(
    broker: Broker, brokers: Brokers, queue: str
) -> None:
    publisher = brokers.connect()
    ending = threading.Event()

    def publish() -> None:
        while not ending.is_set():
            # Large ones come in several frames, which are read in another way.
            put(publisher, queue, *[b"x"] * 20, b"x" * 200_000)

    publishing = threading.Thread(target=publish)
    publishing.start()
    settled = 0
    for _ in range(5):
        subscription = broker.subscribe(queue, prefetch=50)
        taken = take(subscription, 1)
        subscription.ack(taken)
        settled += len(taken)
        for deliveries in drain(subscription, limit=7):
            subscription.ack(deliveries)
            settled += len(deliveries)
        began = time.monotonic()
        assert subscription.take(timeout=PATIENCE_SECONDS) == []
        assert time.monotonic() - began < PATIENCE_SECONDS / 2
        subscription.close()
        with pytest.raises(BrokerClosed):
            subscription.take()
    ending.set()
    publishing.join()
    left = ready(broker, queue)
    deliveries = take(broker.subscribe(queue, prefetch=max(left, 1)), left)
    assert [each for each in deliveries if each.redelivered] == []
    assert settled >= 5


def test_cancelling_twice_and_after_the_end_does_nothing(broker: Broker, queue: str) -> None:
    subscription = broker.subscribe(queue)
    put(broker, queue, b"x")
    (delivery,) = take(subscription, 1)
    subscription.cancel()
    subscription.cancel()
    subscription.ack([delivery])
    subscription.close()
    subscription.cancel()
    wait_until(lambda: ready(broker, queue) == 0, "it is settled")
    broker.close()
    subscription.cancel()


# --- request and reply --------------------------------------------------------------------------


def test_request_and_reply_between_processes(broker: Broker, brokers: Brokers, queue: str) -> None:
    brokers.worker("echo", brokers.url, queue)
    reply = broker.request(Outgoing(b"abc", queue), PATIENCE_SECONDS)
    assert reply.body == b"cba"
    with ThreadPoolExecutor(8) as pool:
        texts = [f"request {number}".encode() for number in range(100)]
        asked = [
            pool.submit(broker.request, Outgoing(text, queue), PATIENCE_SECONDS) for text in texts
        ]
        replies = [future.result(PATIENCE_SECONDS).body for future in asked]
    assert replies == [text[::-1] for text in texts]


def test_request_times_out_and_its_message_expires(broker: Broker, queue: str) -> None:
    with pytest.raises(TimeoutError, match=queue):
        broker.request(Outgoing(b"anybody?", queue), 0.2)
    wait_until(lambda: ready(broker, queue) == 0, "the question expires with the asker's patience")


def test_request_to_nobody_fails_at_once(broker: Broker, queue: str) -> None:
    with pytest.raises(Unroutable):
        broker.request(Outgoing(b"", queue + ".none"), PATIENCE_SECONDS)


def test_closing_ends_a_waiting_request(broker: Broker, queue: str) -> None:
    subscription = broker.subscribe(queue)
    failures: list[BaseException] = []

    def ask() -> None:
        try:
            broker.request(Outgoing(b"", queue), PATIENCE_SECONDS)
        except BrokerClosed as error:
            failures.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    take(subscription, 1)
    broker.close()
    thread.join(PATIENCE_SECONDS)
    assert len(failures) == 1


def test_closing_takes_the_reply_queue_away(broker: Broker, brokers: Brokers, queue: str) -> None:
    asker = brokers.connect()
    subscription = broker.subscribe(queue)
    with pytest.raises(TimeoutError):
        asker.request(Outgoing(b"", queue, ttl_seconds=PATIENCE_SECONDS), 0.1)
    (delivery,) = take(subscription, 1)
    assert broker.depth(delivery.reply_to).consumers == 1
    asker.close()

    def is_gone() -> bool:
        try:
            broker.depth(delivery.reply_to)
        except Unroutable:
            return True
        return False

    wait_until(is_gone, "the queue is deleted")


def test_replying_to_someone_who_left_is_harmless(
    broker: Broker, brokers: Brokers, queue: str
) -> None:
    asker = brokers.connect()
    subscription = broker.subscribe(queue)
    with pytest.raises(TimeoutError):
        asker.request(Outgoing(b"", queue, ttl_seconds=PATIENCE_SECONDS), 0.2)
    (delivery,) = take(subscription, 1)
    broker.reply(delivery, b"late").result(PATIENCE_SECONDS)
    asker.close()
    broker.reply(delivery, b"too late").result(PATIENCE_SECONDS)
    put(broker, queue, b"no question")
    with pytest.raises(ValueError, match="no reply"):
        broker.reply(take(subscription, 1)[0], b"")


# --- several processes --------------------------------------------------------------------------


@pytest.mark.fault
def test_a_killed_consumer_loses_nothing(broker: Broker, brokers: Brokers, queue: str) -> None:
    texts = [str(number).encode() for number in range(50)]
    put(broker, queue, *texts)
    worker = brokers.worker("hold", brokers.url, queue, 30)
    wait_until(lambda: ready(broker, queue) == 20, "the other process holds 30")
    worker.kill()
    wait_until(lambda: ready(broker, queue) == 50, "its death is noticed")
    again = take(broker.subscribe(queue, prefetch=100), 50)
    assert bodies(again) == texts
    assert [delivery.redelivered for delivery in again] == [True] * 30 + [False] * 20


@pytest.mark.fault
def test_a_waiting_consumer_gets_what_a_killed_one_held(
    broker: Broker, brokers: Brokers, queue: str
) -> None:
    worker = brokers.worker("hold", brokers.url, queue, 100)
    put(broker, queue, b"x")
    assert worker.line() == "1"
    subscription = broker.subscribe(queue)
    worker.kill()
    (delivery,) = take(subscription, 1)
    assert (delivery.body, delivery.redelivered) == (b"x", True)


@pytest.mark.fault
def test_a_killed_publisher_leaves_what_it_had_confirmed(
    broker: Broker, brokers: Brokers, queue: str
) -> None:
    worker = brokers.worker("publish", brokers.url, queue, 200_000, 20)
    wait_until(lambda: ready(broker, queue) > 200, "it has begun")
    worker.kill()
    number = ready(broker, queue)
    got = bodies(take(broker.subscribe(queue, prefetch=1000), min(number, 1000)))
    assert got == [str(number).encode() for number in range(len(got))]


def test_three_processes_exchange_everything(broker: Broker, brokers: Brokers, queue: str) -> None:
    each = 2000
    subscription = broker.subscribe(queue, prefetch=500)
    workers = [brokers.worker("publish", brokers.url, queue, each, 10) for _ in range(2)]
    seen: list[int] = []
    while len(seen) < 2 * each:
        got = subscription.take(500, PATIENCE_SECONDS)
        assert got
        seen += [int(delivery.body) for delivery in got]
        subscription.ack(got)
    assert [worker.line() for worker in workers] == ["published"] * 2
    assert sorted(seen) == sorted([*range(each), *range(each)])
    wait_until(lambda: ready(broker, queue) == 0, "nothing is left")
