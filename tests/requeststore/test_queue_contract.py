"""The contract of ``queues.base``, which every adapter passes (seed S4.19, S4.22)."""

from __future__ import annotations

import contextlib
import threading
from collections import Counter

import pytest

from apps.requeststore.engine.errors import RequestStoreUnavailable
from apps.requeststore.engine.limits import MAX_ID, MAX_TS
from apps.requeststore.queues.base import RequestQueue, TakenEntry
from apps.requeststore.services.sweep import drop_expired
from apps.requeststore.stores.base import QueueEntry
from tests.requeststore.queue_fixtures import (
    PATIENCE_SECONDS,
    Queues,
    entries,
    of,
    queues,
    take,
    wait_until,
)

__all__ = ["queues"]

JUNK: dict[str, tuple[bytes, str]] = {
    "no JSON": (b"rpop me", "JSON is malformed"),
    "nothing": (b"", "truncated"),
    "bad UTF-8": (b'{"id":"1","biz":"news\xff","ts":1}', "utf-8"),
    "a list": (b'["1","news",1]', "Expected `object`"),
    "null": (b"null", "Expected `object`"),
    "no ts": (b'{"id":"1","biz":"news"}', "missing required field `ts`"),
    "NaN": (b'{"id":NaN,"biz":"news","ts":1}', "malformed"),
    "infinite": (b'{"id":"1","biz":"news","ts":1e400}', "out of range"),
    "a fraction": (b'{"id":"1","biz":"news","ts":1.5}', "float"),
    "true": (b'{"id":true,"biz":"news","ts":1}', "bool"),
    "2^63": (b'{"id":9223372036854775808,"biz":"news","ts":1}', "id is not in 0 to"),
    "2^63 as a text": (b'{"id":"9223372036854775808","biz":"news","ts":1}', "id is not in 0 to"),
    "many digits": (b'{"id":' + b"9" * 300 + b',"biz":"news","ts":1}', "id is not in 0 to"),
    "negative": (b'{"id":-1,"biz":"news","ts":1}', "id is not in 0 to"),
    "a late ts": (b'{"id":"1","biz":"news","ts":253402300800000}', "ts is not in 0 to"),
    "other digits": ('{"id":"١","biz":"news","ts":1}'.encode(), "id is no whole number"),
    "an id that is no number": (b'{"id":"0x10","biz":"news","ts":1}', "id is no whole number"),
    "no name": (b'{"id":"1","biz":"news; drop","ts":1}', "biz is no name"),
    "a name with a line": (b'{"id":"1","biz":"news\\n","ts":1}', "biz is no name"),
    "deep": (b'{"x":' + b"[" * 2000 + b"]" * 2000 + b"}", "nested deeper than 100"),
    "large": (b'{"id":"1","biz":"news","ts":1,"x":"' + b"x" * 300_000 + b'"}', "at most 4096"),
}


@pytest.mark.covers("S4.19")
def test_first_in_first_out_and_whole(queues: Queues) -> None:
    queue = queues.open()
    sent = [QueueEntry(MAX_ID, "a", MAX_TS), QueueEntry(0, "b" * 32, 0), *entries(3)]
    queue.push(sent[:2])
    queue.push(sent[2:])
    assert queue.stats().waiting == 5
    taken = take(queue, 5)
    assert of(taken) == sent
    queue.settle(taken)
    assert queue.take(5, timeout=0.0) == []
    queue.close()
    assert queues.open().take(5, timeout=0.05) == []


@pytest.mark.slow("1 s")
def test_many_at_once_keep_their_order(queues: Queues) -> None:
    queue = queues.open()
    sent = entries(2300)
    queue.push(sent)
    queue.push([])
    found: list[QueueEntry] = []
    while len(found) < len(sent):
        taken = take(queue, min(150, len(sent) - len(found)))
        found += of(taken)
        queue.settle(taken)
    assert found == sent


def test_the_highest_priority_comes_first(queues: Queues) -> None:
    queue = queues.open()
    for number, priority in enumerate([0, 9, 3, 0, 9, 3, 12, -1]):
        queue.push(entries(1, number), priority=priority)
    assert queue.stats().waiting == 8
    ids = [each.id - 2**60 for each in of(take(queue, 8))]
    assert ids == [1, 4, 6, 2, 5, 0, 3, 7]


@pytest.mark.parametrize("priority", [0, 5])
def test_one_that_waits_is_woken(queues: Queues, priority: int) -> None:
    consumer, producer = queues.open(), queues.open(own_broker=True)
    assert consumer.take(1, timeout=0.0) == []
    found: list[TakenEntry] = []
    waiting = threading.Thread(
        target=lambda: found.extend(consumer.take(5, timeout=PATIENCE_SECONDS))
    )
    waiting.start()
    producer.push(entries(1), priority=priority)
    waiting.join(PATIENCE_SECONDS)
    assert of(found) == entries(1)


@pytest.mark.covers("S4.22")
def test_what_a_consumer_leaves_is_taken_by_another(queues: Queues) -> None:
    first, second = queues.open(own_broker=True), queues.open()
    first.push(entries(5))
    taken = take(first, 4)
    first.settle(taken[:2])
    first.close()
    assert of(take(second, 3)) == entries(3, 3)
    with pytest.raises(RequestStoreUnavailable):
        first.take(1, timeout=0.0)


def test_given_back_it_is_the_next(queues: Queues) -> None:
    queue = queues.open()
    queue.push(entries(3))
    taken = take(queue, 3)
    queue.requeue(taken)
    again = take(queue, 3)
    assert of(again) == entries(3)
    queue.push(entries(1, 4), priority=9)
    urgent = take(queue, 1)
    queue.settle(again)
    queue.requeue(urgent)
    # RabbitMQ hears of it when it has time: what is pushed at once may overtake it.
    assert of(take(queue, 1)) == entries(1, 4)


def test_ended_twice_is_harmless(queues: Queues) -> None:
    queue = queues.open()
    queue.push(entries(2))
    taken = take(queue, 2)
    queue.settle(taken[:1])
    queue.settle(taken)
    queue.requeue(taken)
    queue.requeue([TakenEntry(entries(1)[0], object())])
    assert queue.take(2, timeout=0.1) == []
    assert queue.stats().waiting == 0


@pytest.mark.slow("2 s")
@pytest.mark.parametrize("what", JUNK)
@pytest.mark.covers("S4.19")
def test_junk_is_a_dead_letter_with_its_reason(queues: Queues, what: str) -> None:
    body, reason = JUNK[what]
    queue = queues.open()
    queue.push(entries(1, 1))
    queues.send(body)
    queue.push(entries(1, 2))
    taken = take(queue, 2)
    assert of(taken) == entries(2)
    queue.settle(taken)
    ((kept, why),) = queues.dead(1)
    assert reason in why
    assert body.startswith(kept)
    assert queue.stats().waiting == 0
    assert queue.stats().taken in (0, None)


@pytest.mark.covers("S4.8")
def test_what_other_producers_write_is_read(queues: Queues) -> None:
    queue = queues.open()
    queue.push([])
    queue.stats()
    queues.send(b'{"id": 12, "biz": "news", "ts": 1700000000000}')
    queues.send(b' { "ts":"5", "more":{"a":[1]}, "id":"9007199254740993","biz":"b_2"}\n')
    queues.send(b'{"id":9007199254740993,"biz":"news","ts":1,"id":"7"}')
    assert of(take(queue, 3)) == [
        QueueEntry(12, "news", 1700000000000),
        QueueEntry(9007199254740993, "b_2", 5),
        QueueEntry(7, "news", 1),
    ]


def test_clear_deletes_what_waits(queues: Queues) -> None:
    queue = queues.open()
    queue.push(entries(4))
    queue.push(entries(2, 5), priority=4)
    assert queue.clear() == 6
    assert queue.clear() == 0
    assert queue.take(1, timeout=0.0) == []


def test_stats_tell_what_is_taken(queues: Queues) -> None:
    consumer, watcher = queues.open(own_broker=True), queues.open()
    watcher.push(entries(3))
    taken = take(consumer, 3)
    found = watcher.stats()
    assert found.waiting == 0
    assert found.taken == (None if queues.kind == "rabbitmq" else 3)
    consumer.settle(taken)
    wait_until(lambda: watcher.stats().taken in (0, None), "all of them are settled")
    assert (watcher.stats().memory_bytes is not None) == (queues.kind == "redis")


def test_many_consumers_get_each_once(queues: Queues) -> None:
    sent = entries(600)
    opened = [queues.open(own_broker=True) for _ in range(3)]
    opened[0].push(sent[:300])
    found: Counter[int] = Counter()
    lock = threading.Lock()

    def consume(queue: RequestQueue) -> None:
        while sum(found.values()) < len(sent):
            taken = queue.take(7, timeout=0.2)
            if len(taken) > 3:
                queue.requeue(taken[3:])
                taken = taken[:3]
            queue.settle(taken)
            with lock:
                found.update(each.entry.id for each in taken)

    # Two threads share each consumer.
    threads = [threading.Thread(target=consume, args=(queue,)) for queue in opened * 2]
    for thread in threads:
        thread.start()
    opened[0].push(sent[300:])
    for thread in threads:
        thread.join(60)
    assert found == Counter(entry.id for entry in sent)
    assert opened[0].stats().waiting == 0


@pytest.mark.covers("S4.17", "S4.22")
def test_entries_of_expired_requests_leave_the_queue(queues: Queues) -> None:
    """Those of live requests and of other bizzes stay, and can be taken at once."""
    queue = queues.open()
    old, live, foreign = entries(30), entries(5, 100), QueueEntry(9, "sports", 1)
    queue.push(old[:20])
    queue.push([foreign])
    queue.push(old[20:])
    queue.push(live)
    with contextlib.closing(queues.open()) as own:
        cutoff = old[-1].ts
        assert drop_expired(own, "news", cutoff=cutoff, most=1000) == 30
        assert drop_expired(own, "news", cutoff=cutoff, most=1000) == 0
    wait_until(lambda: queue.stats().waiting == 6, "the expired ones are gone")
    assert sorted(of(take(queue, 6)), key=lambda one: one.ts) == [foreign, *live]
