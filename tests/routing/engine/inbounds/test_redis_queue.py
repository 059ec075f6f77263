"""Inbound of a Redis list: taken items, leases, and lost replies."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import redis

from apps.routing.engine.inbounds.base import BadInit, Context
from apps.routing.engine.inbounds.redis_queue import RedisListInbound
from tests.requeststore.redis_own import OwnRedis
from tests.routing.engine.inbounds.sources import Factory, RedisSource, take, wait_for
from tests.yardkit.broker_proxy import Proxy
from yardkit.redis_list import ReliableList
from yardkit.redis_server import RedisServer

pytestmark = pytest.mark.services


@pytest.fixture
def source(redis_url: str) -> Iterator[RedisSource]:
    parts = urlsplit(redis_url)
    with Proxy(parts.hostname or "127.0.0.1", parts.port or 6379) as proxy:
        made = RedisSource(redis_url, proxy)
        yield made
        made.close()


@pytest.fixture
def maker(source: RedisSource, tmp_path: Path) -> Iterator[Factory]:
    made = Factory(source, tmp_path)
    yield made
    made.close()


def taken_key(source: RedisSource) -> str:
    [key] = source.client.scan_iter(f"{source.key}:taken:*", count=1000)
    return key.decode()  # type: ignore[no-any-return]


def taken_by(source: RedisSource) -> list[bytes]:
    """Return the items that the only consumer holds, in the order taken."""
    own = source.client.hgetall(taken_key(source))
    return [own[number] for number in sorted(own, key=int)]  # type: ignore[index, arg-type]


def rescue(source: RedisSource) -> None:
    """Recover expired items as another consumer does."""
    server = RedisServer(source.url)
    other = ReliableList(server, source.key, consumer="other", most_taken=1)
    other.rescue()
    other.close()


def lose_lease(source: RedisSource) -> None:
    """Expire the lease and recover its items, as if the consumer had been frozen."""
    key = f"{source.key}:consumers"
    for name in source.client.zrange(key, 0, -1):  # type: ignore[union-attr]
        source.client.zadd(key, {name: 0})
    rescue(source)


@pytest.mark.covers("S2.32")
def test_producers_push_left_and_real_time_items_right(maker: Factory, source: RedisSource) -> None:
    source.client.lpush(source.key, "1", "2")
    source.client.rpush(source.key, "real time")
    assert [each.raw for each in take(maker.make(), 3)] == [b"real time", b"1", b"2"]


def test_taken_items_are_in_a_hash_of_the_consumer(maker: Factory, source: RedisSource) -> None:
    source.put([b"1", b"2"])
    inbound = maker.make()
    taken = take(inbound, 2)
    assert taken_by(source) == [b"01", b"02"]
    inbound.ack([taken[0].handle])
    assert taken_by(source) == [b"02"]
    inbound.close()
    assert source.client.lrange(source.key, 0, -1) == [b"2"]
    assert source.client.keys(f"{source.key}:*") == []


def test_a_consumer_that_was_frozen_finds_its_items_gone(
    maker: Factory, source: RedisSource
) -> None:
    source.put([b"1", b"2", b"3"])
    inbound = maker.make()
    taken = take(inbound, 2)
    lose_lease(source)
    # In their old order, and before what nobody had taken.
    assert source.client.lrange(source.key, 0, -1) == [b"3", b"2", b"1"]
    inbound.ack([each.handle for each in taken])
    assert inbound.late == 2
    again = take(inbound, 3)
    assert [each.raw for each in again] == [b"1", b"2", b"3"]
    inbound.ack([each.handle for each in again])
    assert inbound.late == 2
    assert source.left() == 0


def test_equal_items_are_counted(maker: Factory, source: RedisSource) -> None:
    source.put([b"same"] * 3)
    inbound = maker.make()
    taken = take(inbound, 3)
    inbound.ack([taken[1].handle])
    inbound.ack([taken[1].handle])
    assert source.left() == 2
    inbound.back([taken[0].handle])
    assert source.client.llen(source.key) == 1
    inbound.close()
    assert source.client.llen(source.key) == 2


def test_an_item_whose_reply_was_lost_is_found_again(maker: Factory, source: RedisSource) -> None:
    source.put([b"1", b"2"])
    inbound = maker.make()
    take(inbound, 1, most=1)
    source.proxy.shut()
    # Taken in the moment the connection broke: the server says so, and nobody has heard.
    source.client.hset(taken_key(source), "99", b"0" + source.client.rpop(source.key))  # type: ignore[operator]
    wait_for(lambda: inbound.take(1, 0.1) == [] and inbound.problem != "", "the loss")
    assert inbound.problem.startswith("Redis: ")
    source.proxy.open()
    [taken] = take(inbound, 1)
    assert (taken.raw, taken.redelivered) == (b"2", True)
    assert inbound.problem == ""


def test_an_ack_without_a_server_is_made_good(maker: Factory, source: RedisSource) -> None:
    source.put([b"same", b"same", b"other"])
    inbound = maker.make()
    taken = take(inbound, 3)
    source.proxy.shut()
    inbound.ack([taken[0].handle, taken[2].handle])
    assert inbound.problem != ""
    source.proxy.open()
    wait_for(lambda: inbound.take(1, 0.1) == [] and inbound.problem == "", "the server")
    # One of the equal ones is still out.
    assert taken_by(source) == [b"0same"]
    assert inbound.late == 0


def test_an_ack_on_its_way_is_not_redelivered(tmp_path: Path) -> None:
    server = OwnRedis(tmp_path)
    with Proxy("127.0.0.1", server.port) as proxy:
        source = RedisSource(server.url, proxy)
        maker = Factory(source, tmp_path)
        try:
            wait_for(lambda: answers(source), "the server")
            source.put([b"1", b"2"])
            inbound = maker.make()
            taken = take(inbound, 1, most=1)
            proxy.shut()
            wait_for(lambda: inbound.take(1, 0.1) == [] and inbound.problem != "", "the loss")
            proxy.open()
            # The server answers reads and holds writes back: the ack does not arrive for a while.
            source.client.execute_command("CLIENT", "PAUSE", "1500", "WRITE")  # type: ignore[no-untyped-call]
            ack = threading.Thread(target=inbound.ack, args=([taken[0].handle],))
            ack.start()
            assert [item.raw for item in take(inbound, 1)] == [b"2"]
            ack.join()
            assert inbound.take(1, 0.3) == []
            assert inbound.late == 0
        finally:
            maker.close()
            source.close()
            server.kill()


def answers(source: RedisSource) -> bool:
    with contextlib.suppress(redis.RedisError):
        return bool(source.client.ping())
    return False


def test_items_taken_by_an_earlier_version_come_again(maker: Factory, source: RedisSource) -> None:
    # It kept them in a list, the oldest on the right.
    source.client.lpush(f"{source.key}:taken:old:1", "1", "2")
    source.client.zadd(f"{source.key}:consumers", {"old:1": 0})
    source.put([b"3"])
    rescue(source)
    assert [each.raw for each in take(maker.make(), 3)] == [b"1", b"2", b"3"]


def test_a_key_of_another_kind_is_a_problem_and_no_crash(
    maker: Factory, source: RedisSource
) -> None:
    source.client.set(source.key, "no list")
    inbound = maker.make()
    assert inbound.take(1, 0.3) == []
    assert "WRONGTYPE" in inbound.problem
    assert inbound.depth() is None


def test_a_wrong_url_shows_no_password(tmp_path: Path) -> None:
    with pytest.raises(BadInit) as failed:
        RedisListInbound(
            Context("in", "me", tmp_path, tmp_path), {"url": "http://a:top@h", "key": "k"}
        )
    assert "top" not in str(failed.value)


def test_a_wrong_password_is_a_problem_without_it(source: RedisSource, tmp_path: Path) -> None:
    url = f"redis://nobody:topsecret@127.0.0.1:{source.proxy.port}/0"
    inbound = RedisListInbound(Context("in", "me", tmp_path, tmp_path), {"url": url, "key": "k"})
    assert inbound.take(1, 0.2) == []
    assert inbound.problem != ""
    assert "topsecret" not in inbound.problem
    inbound.close()
