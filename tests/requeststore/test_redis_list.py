"""What only the queue in Redis has: leases, lost answers, other programs on the same list."""

from __future__ import annotations

import base64
import contextlib
import json
import multiprocessing
import os
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from apps.requeststore.engine.errors import BadSetting, RequestStoreUnavailable
from apps.requeststore.queues import redis_list
from apps.requeststore.queues.base import QueueStats
from apps.requeststore.queues.factory import open_queue, redis_key
from apps.requeststore.queues.redis_list import RedisListQueue
from tests.plugins.measurements import Measured
from tests.requeststore.queue_fixtures import PATIENCE_SECONDS, entries, of, take, wait_until
from tests.requeststore.redis_own import LossyLine, OwnRedis
from yardkit.redis_server import RedisServer, shared_server

pytestmark = pytest.mark.services


@pytest.fixture
def client(redis_url: str) -> Iterator[Any]:
    with contextlib.closing(redis.Redis.from_url(redis_url)) as made:
        yield made


@pytest.fixture
def key(client: Any, tmp_path: Path) -> Iterator[str]:
    name = f"test:{tmp_path.name}:{os.getpid()}"
    yield name
    for each in client.scan_iter(f"{name}*"):
        client.delete(each)


@pytest.fixture
def server(redis_url: str) -> RedisServer:
    """With leases so short that tests can wait for their end."""
    return RedisServer(redis_url, lease_seconds=0.3)


def make(server: RedisServer, key: str, **options: Any) -> RedisListQueue:
    return RedisListQueue(server, key, consumer="tester", **options)


def die(queue: RedisListQueue, server: RedisServer) -> None:
    """As if its process were gone: nobody renews the lease."""
    server.let_go(queue._list)


@pytest.mark.covers("S4.19")
def test_the_list_holds_the_three_fields_and_nothing_else(
    client: Any, server: RedisServer, key: str
) -> None:
    queue = make(server, key)
    queue.push(entries(2))
    bodies = client.lrange(key, 0, -1)
    assert [json.loads(body) for body in reversed(bodies)] == [
        {"id": str(each.id), "biz": "news", "ts": each.ts} for each in entries(2)
    ]
    assert list(json.loads(bodies[0])) == ["id", "biz", "ts"]
    assert len(bodies[0]) < 70
    # A consumer of other make takes the oldest, and we go on with the rest.
    assert client.brpop(key, 1)[1] == bodies[1]
    assert of(take(queue, 1)) == entries(1, 2)
    queue.close()


def test_given_back_it_comes_before_what_is_pushed_at_once(server: RedisServer, key: str) -> None:
    queue = make(server, key)
    for priority in (0, 9):
        queue.push(entries(2), priority=priority)
        queue.requeue(take(queue, 2))
        queue.push(entries(1, 3), priority=priority)
        assert of(take(queue, 3)) == entries(3)
    queue.close()


def test_other_consumers_can_keep_the_priorities(
    client: Any, server: RedisServer, key: str
) -> None:
    queue = make(server, key)
    queue.push(entries(1))
    queue.push(entries(1, 2), priority=4)
    keys = [f"{key}:{level}" for level in range(9, 0, -1)] + [key]
    assert [json.loads(client.brpop(keys, 1)[1])["ts"] % 10 for _ in range(2)] == [2, 1]
    queue.close()


@pytest.mark.covers("S4.22")
def test_what_a_dead_consumer_had_is_rescued_in_its_order(
    client: Any, server: RedisServer, key: str
) -> None:
    dead, alive = make(server, key), make(server, key)
    alive.push(entries(12))
    alive.push(entries(1, 13), priority=2)
    taken = take(dead, 12)
    dead.settle(taken[:2])
    assert alive.rescue() == 0
    die(dead, server)
    wait_until(lambda: alive.rescue() == 10, "its lease is over")
    again = take(alive, 11)
    assert of(again) == entries(11, 2)
    assert alive.rescue() == 0
    # He was only frozen: what he settles now is not his any more.
    dead.settle(taken[2:])
    alive.requeue(again)
    assert of(take(alive, 11)) == entries(11, 2)
    alive.close()
    assert client.exists(f"{key}:taken:{alive._list.consumer}") == 0


def test_one_that_is_busy_keeps_its_lease(server: RedisServer, key: str) -> None:
    busy, other = make(server, key), make(server, key)
    busy.push(entries(3))
    taken = take(busy, 3)
    ends = server.client.zscore(f"{key}:consumers", busy._list.consumer)
    wait_until(
        lambda: server.client.zscore(f"{key}:consumers", busy._list.consumer) > ends + 500,
        "the lease is renewed without any take",
    )
    assert other.rescue() == 0
    busy.settle(taken)
    assert other.stats().taken == 0
    busy.close()
    other.close()


def _take_and_wait(url: str, key: str, told: Any) -> None:
    queue = make(RedisServer(url, lease_seconds=0.5), key)
    told.send([each.entry.id for each in take(queue, 5)])
    signal.pause()


@pytest.mark.fault
@pytest.mark.covers("S4.22")
def test_a_consumer_that_is_killed_loses_nothing(
    redis_url: str, server: RedisServer, key: str
) -> None:
    queue = make(server, key)
    queue.push(entries(8))
    told, tell = multiprocessing.get_context("spawn").Pipe()
    process = multiprocessing.get_context("spawn").Process(
        target=_take_and_wait, args=(redis_url, key, tell)
    )
    process.start()
    try:
        assert told.poll(PATIENCE_SECONDS)
        assert told.recv() == [each.id for each in entries(5)]
        assert queue.stats().taken == 5
    finally:
        process.kill()
        process.join(10)
    wait_until(lambda: queue.rescue() == 5, "the lease of the killed one is over")
    assert of(take(queue, 8)) == entries(8)
    queue.close()


@pytest.mark.fault
def test_a_lost_answer_loses_no_entry(redis_url: str, key: str) -> None:
    with contextlib.closing(LossyLine(redis_url)) as line:
        server = RedisServer(line.url)
        queue = make(server, key)
        queue.push(entries(6))
        first = take(queue, 2)
        line.lose_next = True
        with pytest.raises(RequestStoreUnavailable):
            queue.take(2, timeout=0.0)
        # The two that came with the lost answer are handed out now, and the first ones are not.
        second = take(queue, 2)
        assert of(second) == entries(2, 3)
        line.lose_next = True
        queue.settle(first)
        line.lose_next = True
        queue.requeue(second)
        assert of(take(queue, 4)) == entries(4, 3)
        assert queue.stats().taken == 4
        queue.close()
        assert make(server, key).stats() == QueueStats(4, 0, queue.stats().memory_bytes)
        queue.close()
        server.detach(queue._list)


def test_a_dead_letter_that_has_to_wait_keeps_nobody_else_waiting(
    client: Any, server: RedisServer, key: str
) -> None:
    buried: list[bytes] = []
    away = True

    def dead_letter(key: str, body: bytes, reason: str) -> None:
        if away:
            raise RequestStoreUnavailable("no broker")
        buried.append(body)

    queue = make(server, key, dead_letter=dead_letter)
    client.lpush(key, b"junk")
    queue.push(entries(2))
    assert queue.take(1, timeout=0.0) == []
    taken = take(queue, 2)
    assert of(taken) == entries(2)
    assert queue.stats().taken == 3
    away = False
    queue.settle(taken)
    assert queue.take(1, timeout=0.0) == []
    assert buried == [b"junk"]
    assert queue.stats().taken == 0
    queue.close()


def test_without_a_broker_junk_goes_to_a_list(client: Any, redis_url: str, key: str) -> None:
    queue = open_queue(key, redis_url=redis_url, redis_prefix="test")
    where = redis_key("test", key)
    try:
        client.lpush(where, b"\xff")
        assert queue.take(1, timeout=0.0) == []
        letter = json.loads(client.lindex(f"{where}:dead", 0))
        assert base64.b64decode(letter["body"]) == b"\xff"
        assert letter["reason"]
        assert queue.stats().waiting == queue.stats().taken == 0
        client.lpush(f"{where}:dead", b"what is this")
        # Somebody who has a broker brings them there.
        buried: list[tuple[bytes, str]] = []
        other = make(
            RedisServer(redis_url),
            where,
            dead_letter=lambda _key, body, why: buried.append((body, why)),
        )
        other.rescue()
        other.close()
        assert buried[0] == (b"\xff", letter["reason"])
        assert buried[1] == (b"what is this", "no dead letter of ours, but among them")
        assert not client.exists(f"{where}:dead")
    finally:
        queue.close()
        client.delete(f"{where}:dead")


def test_no_consumer_has_more_than_can_be_put_back_at_once(
    server: RedisServer, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis_list, "MOST_TAKEN", 3)
    queue = make(server, key)
    queue.push(entries(4))
    taken = take(queue, 3)
    assert queue.take(1, timeout=0.1) == []
    queue.settle(taken[:1])
    assert of(take(queue, 1)) == entries(1, 4)
    queue.close()


@pytest.mark.fault
def test_a_server_that_hangs_is_killed_and_comes_back_empty(
    tmp_path: Path, measured: Measured
) -> None:
    if shutil.which("redis-server") is None:
        pytest.fail("redis-server is not installed")
    own = OwnRedis(tmp_path)
    try:
        queue = make(RedisServer(own.url, lease_seconds=1.5, socket_seconds=2.5), "queue")

        def works() -> bool:
            with contextlib.suppress(RequestStoreUnavailable):
                queue.push(entries(1))
                return True
            return False

        wait_until(works, "the server is up")
        taken = take(queue, 1)
        own.hang()
        with pytest.raises(RequestStoreUnavailable, match="Timeout"):
            queue.take(1, timeout=0.0)
        queue.settle(taken)
        own.go_on()
        began = time.monotonic()
        wait_until(works, "it goes on")
        measured(back_s=time.monotonic() - began)
        wait_until(lambda: queue.stats().taken == 0, "it is told what was settled meanwhile")
        assert of(take(queue, 1)) == entries(1)
        own.kill()
        for call in (
            lambda: queue.take(1, timeout=0.1),
            lambda: queue.push(entries(1)),
            queue.stats,
            queue.clear,
            queue.rescue,
        ):
            with pytest.raises(RequestStoreUnavailable, match="Redis at redis"):
                call()
        began = time.monotonic()
        own.start()
        wait_until(works, "it is up again")
        measured(back_s=time.monotonic() - began)
        taken = take(queue, 1)
        queue._client.flushall()
        queue.requeue(taken)
        assert queue.take(1, timeout=0.0) == []
        queue.push(entries(1, 2))
        assert of(take(queue, 1)) == entries(1, 2)
        own.kill()
        queue.close()
    finally:
        own.go_on()
        own.kill()


def test_texts_show_no_password(key: str) -> None:
    queue = open_queue("p1.news", redis_url="redis://user:s3cret@127.0.0.1:1/0?socket_timeout=99")
    with pytest.raises(RequestStoreUnavailable) as raised:
        queue.push(entries(1))
    assert "s3cret" not in str(raised.value)
    assert "redis://user:****@127.0.0.1:1/0" in str(raised.value)
    queue.close()
    with pytest.raises(BadSetting) as refused:
        open_queue("p1.news", redis_url="rediss3cret://:s3cret@host")
    assert ":s3cret" not in str(refused.value)


def test_a_key_of_another_type_is_told(client: Any, server: RedisServer, key: str) -> None:
    client.set(key, "x")
    queue = make(server, key)
    with pytest.raises(RequestStoreUnavailable, match="WRONGTYPE"):
        queue.push(entries(1))
    with pytest.raises(RequestStoreUnavailable, match="WRONGTYPE"):
        queue.take(1, timeout=0.0)
    queue.close()


def test_queues_of_one_address_share_connections(redis_url: str) -> None:
    first, second = shared_server(redis_url), shared_server(redis_url)
    assert first is second
    assert shared_server(f"{redis_url}?x=1") is not first


@pytest.mark.covers("S4.19")
def test_to_settle_one_of_many_takes_no_search(tmp_path: Path) -> None:
    # A server of its own, since others would be in its count.
    own = OwnRedis(tmp_path)
    try:
        queue = make(RedisServer(own.url), "queue")

        def is_up() -> bool:
            with contextlib.suppress(RequestStoreUnavailable):
                queue.push(entries(5000))
                return True
            return False

        wait_until(is_up, "the server is up")
        taken = [each for _ in range(5) for each in take(queue, 1000)]
        for start in range(0, 5000, 50):
            queue.settle(taken[start : start + 50])
        used = queue._client.info("commandstats")
        assert used["cmdstat_hdel"]["calls"] == 100
        assert "cmdstat_lrem" not in used
        assert queue.stats().taken == 0
        queue.close()
    finally:
        own.kill()
