"""What only a Redis list has: lists of one's own, leases, and replies that get lost."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from apps.routing.engine.inbounds import redis_scripts as scripts
from apps.routing.engine.inbounds.base import BadInit, Context
from apps.routing.engine.inbounds.redis_queue import RedisListInbound
from tests.routing.engine.inbounds.sources import Maker, RedisSource, take, wait_for
from tests.yardkit.broker_proxy import Proxy

pytestmark = pytest.mark.services


@pytest.fixture
def source(redis_url: str) -> Iterator[RedisSource]:
    parts = urlsplit(redis_url)
    with Proxy(parts.hostname or "127.0.0.1", parts.port or 6379) as proxy:
        made = RedisSource(redis_url, proxy)
        yield made
        made.close()


@pytest.fixture
def maker(source: RedisSource, tmp_path: Path) -> Iterator[Maker]:
    made = Maker(source, tmp_path)
    yield made
    made.close()


def own_list(source: RedisSource) -> str:
    [key] = source.client.scan_iter(f"{source.key}:taken:*", count=1000)
    return key.decode()  # type: ignore[no-any-return]


def lose_lease(source: RedisSource) -> None:
    """As if the consumer had been frozen for long, and another one had looked."""
    key = f"{source.key}:consumers"
    with source.client.pipeline(transaction=True) as pipe:
        for name in source.client.zrange(key, 0, -1):
            pipe.zadd(key, {name: 0})
        prefix = f"{source.key}:taken:"
        pipe.eval(scripts.RECLAIM, 3, source.key, key, f"{prefix}x", prefix, 10**12, 1000)
        pipe.execute()


@pytest.mark.covers("S2.32")
def test_producers_push_left_and_real_time_items_right(maker: Maker, source: RedisSource) -> None:
    source.client.lpush(source.key, "1", "2")
    source.client.rpush(source.key, "real time")
    assert [each.raw for each in take(maker.make(), 3)] == [b"real time", b"1", b"2"]


def test_what_is_taken_is_in_a_list_of_its_own(maker: Maker, source: RedisSource) -> None:
    source.put([b"1", b"2"])
    inbound = maker.make()
    taken = take(inbound, 2)
    assert source.client.lrange(own_list(source), 0, -1) == [b"2", b"1"]
    inbound.ack([taken[0].handle])
    assert source.client.lrange(own_list(source), 0, -1) == [b"2"]
    inbound.close()
    assert source.client.lrange(source.key, 0, -1) == [b"2"]
    assert source.client.keys(f"{source.key}:*") == []


def test_a_consumer_that_was_frozen_finds_its_items_gone(maker: Maker, source: RedisSource) -> None:
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


def test_equal_items_are_counted(maker: Maker, source: RedisSource) -> None:
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


def test_an_item_whose_reply_was_lost_is_found_again(maker: Maker, source: RedisSource) -> None:
    source.put([b"1", b"2"])
    inbound = maker.make()
    take(inbound, 1, most=1)
    source.proxy.shut()
    # Taken in the moment the connection broke: the server says so, and nobody has heard.
    source.client.lmove(source.key, own_list(source), "RIGHT", "LEFT")
    wait_for(lambda: inbound.take(1, 0.1) == [] and inbound.problem != "", "the loss")
    assert inbound.problem.startswith("Redis: ")
    source.proxy.open()
    [taken] = take(inbound, 1)
    assert (taken.raw, taken.redelivered) == (b"2", True)
    assert inbound.problem == ""


def test_an_ack_without_a_server_is_made_good(maker: Maker, source: RedisSource) -> None:
    source.put([b"same", b"same", b"other"])
    inbound = maker.make()
    taken = take(inbound, 3)
    source.proxy.shut()
    inbound.ack([taken[0].handle, taken[2].handle])
    assert inbound.problem != ""
    source.proxy.open()
    wait_for(lambda: inbound.take(1, 0.1) == [] and inbound.problem == "", "the server")
    # One of the equal ones is still out.
    assert source.client.lrange(own_list(source), 0, -1) == [b"same"]
    assert inbound.late == 0


def test_a_key_of_another_kind_is_a_problem_and_no_crash(maker: Maker, source: RedisSource) -> None:
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
