"""Redis outbounds: order of consumption, and errors of the server."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from apps.routing.engine import rules
from apps.routing.engine.outbounds import registry
from apps.routing.engine.outbounds.base import DELIVERED, Outbound, SendStatus, Settings
from apps.routing.engine.outbounds.redis_client import connect
from apps.routing.engine.outbounds.redis_queue import MOST_PRIORITY, RedisListOutbound
from tests.routing.engine.outbounds.targets import (
    PATIENCE_SECONDS,
    RedisListTarget,
    RedisPriorityTarget,
    sent,
)

pytestmark = pytest.mark.services


@pytest.fixture
def plain(redis_url: str) -> Iterator[RedisListTarget]:
    with contextlib.closing(RedisListTarget(redis_url)) as target:
        yield target


@pytest.fixture
def sorted_set(redis_url: str) -> Iterator[RedisPriorityTarget]:
    with contextlib.closing(RedisPriorityTarget(redis_url)) as target:
        yield target


@pytest.mark.covers("S2.32", "S2.29")
def test_real_time_items_of_a_list_are_taken_first(plain: RedisListTarget) -> None:
    outbound = plain.make()
    outbound.send([sent(1), sent(2, rt=True), sent(3), sent(4, rt=True)])
    outbound.send([sent(5), sent(6, rt=True)])
    assert [item["number"] for item in plain.take_all(6)] == [6, 2, 4, 1, 3, 5]


@pytest.mark.covers("S2.32")
def test_a_sorted_set_gives_the_highest_priority_first_and_the_oldest_of_it(
    sorted_set: RedisPriorityTarget,
) -> None:
    outbound = sorted_set.make()
    chance = random.Random(7)
    batch = [
        sent(number, priority=chance.choice([-5, 0, 1, 1000, 1001, 2000, 2**40, 2**40 + 1]))
        for number in range(5000)
    ]
    for start in range(0, len(batch), 700):
        part = batch[start : start + 700]
        assert outbound.send(part) == [DELIVERED] * len(part)
    assert outbound.depth() == 5000
    taken = [sorted_set.take() for _ in range(50)]
    members = sorted_set.client.zpopmin(sorted_set.key, 5000)
    numbers = [item["number"] for item in taken if item is not None]
    numbers += [int(member.partition(b'"number":')[2].partition(b",")[0]) for member, _ in members]
    wanted = sorted(range(5000), key=lambda number: (-batch[number].priority, number))
    assert numbers == wanted


@pytest.mark.covers("S2.32")
def test_priorities_are_exact_as_far_as_a_score_can_hold_them(
    sorted_set: RedisPriorityTarget,
) -> None:
    outbound = sorted_set.make()
    most = MOST_PRIORITY
    priorities = [most - 2, most, most - 1, -most, 1 - most, 0, most + 1, -most - 1, 2**62]
    outcomes = outbound.send([sent(one, priority=one) for one in priorities])
    assert [one.code for one in outcomes] == [""] * 6 + ["bad_priority"] * 3
    assert [one.verdict for one in outcomes[6:]] == [SendStatus.REFUSED] * 3
    taken = [item["number"] for item in sorted_set.take_all(6)]
    assert taken == [most, most - 1, most - 2, 0, 1 - most, -most]
    assert sorted_set.take() is None


@pytest.mark.parametrize("lost", ["deleted", "nonsense"])
def test_the_order_survives_the_key_of_its_numbers(
    sorted_set: RedisPriorityTarget, lost: str
) -> None:
    outbound = sorted_set.make()
    key = f"{{{sorted_set.key}}}:sequence"
    outbound.send([sent(1), sent(2)])
    number = int(sorted_set.client.get(key))
    if lost == "deleted":
        sorted_set.client.delete(key)
    else:
        sorted_set.client.set(key, "nonsense")
    outbound.send([sent(3), sent(4)])
    assert [item["number"] for item in sorted_set.take_all(4)] == [1, 2, 3, 4]
    assert int(sorted_set.client.get(key)) > number
    assert sorted_set.client.ttl(key) > 0


def test_the_order_survives_a_clock_that_is_set_back(sorted_set: RedisPriorityTarget) -> None:
    seconds, _ = sorted_set.client.time()
    ahead = (seconds + 3600) * 1_000_000
    # What an hour of items before the change of the clock has left.
    sorted_set.client.set(f"{{{sorted_set.key}}}:sequence", ahead)
    outbound = sorted_set.make()
    outbound.send([sent(1), sent(2)])
    outbound.send([sent(3)])
    members = sorted_set.client.zrange(sorted_set.key, 0, -1)
    starts = [member.partition(b":")[0] for member in members]
    assert starts == [b"%016d" % (ahead + number) for number in (1, 2, 3)]
    assert [item["number"] for item in sorted_set.take_all(3)] == [1, 2, 3]


def test_a_key_of_another_kind_holds_items_up(plain: RedisListTarget) -> None:
    plain.client.set(plain.key, "taken")
    outbound = plain.make()
    outcome = outbound.send([sent(1)])[0]
    assert (outcome.verdict, outcome.code) == (SendStatus.AWAY, "answer")
    assert "WRONGTYPE" in outcome.reason
    assert outbound.depth() is None
    plain.client.delete(plain.key)
    assert outbound.send([sent(1)]) == [DELIVERED]


def test_a_wiped_server_loses_no_script(sorted_set: RedisPriorityTarget) -> None:
    outbound = sorted_set.make()
    outbound.send([sent(1)])
    sorted_set.client.delete(sorted_set.key, f"{{{sorted_set.key}}}:sequence")
    sorted_set.client.script_flush()
    assert outbound.send([sent(2)]) == [DELIVERED]
    assert [item["number"] for item in sorted_set.take_all(1)] == [2]


def test_the_answer_to_one_part_is_kept_when_the_next_is_lost(plain: RedisListTarget) -> None:
    outbound = plain.make()
    plain.proxy.ban("the last straw")
    batch = [sent(number) for number in range(600)] + [sent(600, text="the last straw"), sent(601)]
    outcomes = outbound.send(batch)
    assert outcomes[:500] == [DELIVERED] * 500
    assert {one.verdict for one in outcomes[500:]} == {SendStatus.AWAY}
    assert plain.client.llen(plain.key) == 500
    plain.proxy.ban("")
    assert outbound.send(batch[500:]) == [DELIVERED] * 102
    assert [item["number"] for item in plain.take_all(602)] == list(range(602))


# --- an own server --------------------------------------------------------------------------------


class Server:
    """Redis server of one test."""

    def __init__(self, folder: Path, *options: str) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.folder = folder
        self.options = options
        self.start()

    def start(self) -> None:
        self.process = subprocess.Popen(
            [
                "redis-server",
                "--port",
                str(self.port),
                "--bind",
                "127.0.0.1",
                "--save",
                "",
                "--dir",
                str(self.folder),
                *self.options,
            ],
            stdout=subprocess.DEVNULL,
        )

    def stop(self) -> None:
        self.process.kill()
        self.process.wait(10)


def deliver(outbound: Outbound, number: int) -> None:
    """Send a message until it is delivered."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while outbound.send([sent(number)])[0] != DELIVERED:
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    if shutil.which("redis-server") is None:
        pytest.skip("no redis-server on PATH")
    return tmp_path


@pytest.mark.fault
@pytest.mark.parametrize("name", ["RedisListOutbound", "RedisPriorityOutbound"])
def test_a_server_that_is_killed_and_started_empty(folder: Path, name: str) -> None:
    server = Server(folder)
    url = f"redis://127.0.0.1:{server.port}/0"
    rule = rules.Outbound("own", f"redis_queue.{name}", init={"url": url, "key": "queue"})
    outbound = registry.build(rule, Settings(timeout_seconds=2.0))
    with contextlib.closing(outbound), contextlib.ExitStack() as stack:
        stack.callback(server.stop)
        deliver(outbound, 1)
        server.stop()
        assert outbound.send([sent(2)])[0].code == "unreachable"
        assert outbound.depth() is None
        server.start()
        deliver(outbound, 3)
        assert outbound.depth() == 1


@pytest.mark.fault
def test_a_full_server_holds_items_up(folder: Path) -> None:
    server = Server(folder, "--maxmemory", "1", "--maxmemory-policy", "noeviction")
    url = f"redis://127.0.0.1:{server.port}/0"
    rule = rules.Outbound(
        "own", "redis_queue.RedisPriorityOutbound", init={"url": url, "key": "queue"}
    )
    outbound = registry.build(rule, Settings(timeout_seconds=2.0))
    with contextlib.closing(outbound), contextlib.ExitStack() as stack:
        stack.callback(server.stop)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while (outcome := outbound.send([sent(1)])[0]).code != "answer":
            assert outcome.verdict is SendStatus.AWAY
            assert time.monotonic() < deadline
        assert "maxmemory" in outcome.reason
        with connect(url, 2.0) as client:
            client.config_set("maxmemory", 0)
        deliver(outbound, 2)


def test_no_option_of_the_url_overrules_the_time_out() -> None:
    options = "socket_timeout=3600&retry_on_timeout=yes&decode_responses=yes"
    with connect(f"redis://127.0.0.1:1/0?{options}", 4.0, "my router") as client:
        given = client.connection_pool.connection_kwargs
        assert given["socket_timeout"] == given["socket_connect_timeout"] == 2.0
        assert not given["retry_on_timeout"]
        assert not given["decode_responses"]
        assert given["retry"].get_retries() == 0
        assert given["client_name"] == "my-router"


def test_a_password_is_never_in_a_reason() -> None:
    url = "redis://user:hunter2@127.0.0.1:1/0"
    rule = rules.Outbound("own", "redis_queue.RedisListOutbound", init={"url": url, "key": "q"})
    with contextlib.closing(registry.build(rule, Settings(timeout_seconds=1.0))) as outbound:
        reason = outbound.send([sent(1)])[0].reason
    assert "127.0.0.1:1" in reason
    assert "hunter2" not in reason


def test_a_login_that_is_refused_holds_items_up(redis_url: str) -> None:
    url = redis_url.replace("redis://", "redis://nobody:hunter2@")
    rule = rules.Outbound("own", "redis_queue.RedisListOutbound", init={"url": url, "key": "q"})
    with contextlib.closing(registry.build(rule, Settings(timeout_seconds=5.0))) as outbound:
        outcome = outbound.send([sent(1)])[0]
    assert (outcome.verdict, outcome.code) == (SendStatus.AWAY, "login")


# --- several lists of one server ------------------------------------------------------------------


def several(target: RedisListTarget, keys: list[str]) -> list[RedisListOutbound]:
    """Return outbounds for these lists."""
    made = []
    for key in keys:
        rule = rules.Outbound(key, target.cls, init={**target.init(), "key": key})
        outbound = registry.build(rule, Settings())
        assert isinstance(outbound, RedisListOutbound)
        made.append(outbound)
    return made


def numbers_in(target: RedisListTarget, key: str) -> list[int]:
    """Return the numbers of the messages in a list, in the order of consumption."""
    return [json.loads(body)["number"] for body in reversed(target.client.lrange(key, 0, -1))]


def test_lists_of_one_server_are_sent_to_in_one_go(plain: RedisListTarget) -> None:
    keys = [f"{plain.key}:{number}" for number in range(3)]
    outbounds = several(plain, keys)
    assert len({outbound.server for outbound in outbounds}) == 1
    batches = [[sent(1), sent(2, rt=True), sent(3), sent(4, rt=True)], [sent(5)], []]
    outcomes = outbounds[0].send_with(list(zip(outbounds, batches, strict=True)))
    assert outcomes == [[DELIVERED] * 4, [DELIVERED], []]
    assert [numbers_in(plain, key) for key in keys] == [[2, 4, 1, 3], [5], []]
    # More than one command can carry.
    many = [[sent(number) for number in range(count)] for count in (300, 300, 700)]
    outcomes = outbounds[0].send_with(list(zip(outbounds, many, strict=True)))
    assert [len(mine) for mine in outcomes] == [300, 300, 700]
    assert {one.verdict for mine in outcomes for one in mine} == {SendStatus.DELIVERED}
    assert numbers_in(plain, keys[2]) == list(range(700))


def test_what_is_the_fault_of_one_list_is_the_fault_of_no_other(plain: RedisListTarget) -> None:
    keys = [f"{plain.key}:{number}" for number in range(3)]
    outbounds = several(plain, keys)
    plain.client.set(keys[0], "taken")
    bad = sent(2, value=float("nan"))
    batches = [[sent(0)], [sent(1), bad], [sent(3)]]
    outcomes = outbounds[0].send_with(list(zip(outbounds, batches, strict=True)))
    assert [[one.verdict.value for one in mine] for mine in outcomes] == [
        ["away"],
        ["delivered", "refused"],
        ["delivered"],
    ]
    assert "WRONGTYPE" in outcomes[0][0].reason
    assert [numbers_in(plain, key) for key in keys[1:]] == [[1], [3]]
    outbounds[1].close()
    outcomes = outbounds[0].send_with(list(zip(outbounds[1:], [[sent(4)], [sent(5)]], strict=True)))
    assert [[one.verdict.value for one in mine] for mine in outcomes] == [["away"], ["delivered"]]


def test_a_user_who_may_run_no_scripts_sends_to_each_list(plain: RedisListTarget) -> None:
    user = f"crawlyard-{os.getpid()}"
    plain.client.acl_setuser(
        user, enabled=True, passwords=["+p"], keys=["*"], categories=["+@all", "-@scripting"]
    )
    try:
        address = urlsplit(str(plain.init()["url"]))
        url = address._replace(netloc=f"{user}:p@{address.hostname}:{address.port}").geturl()
        outbounds = []
        for number in range(2):
            init = {"url": url, "key": f"{plain.key}:{number}"}
            outbounds.append(
                registry.build(rules.Outbound("one", plain.cls, init=init), Settings())
            )
        first = outbounds[0]
        assert isinstance(first, RedisListOutbound)
        batches = [[sent(1)], [sent(2)]]
        outcomes = first.send_with(list(zip(outbounds, batches, strict=True)))
        assert outcomes == [[DELIVERED], [DELIVERED]]
        assert [numbers_in(plain, f"{plain.key}:{number}") for number in range(2)] == [[1], [2]]
    finally:
        plain.client.acl_deluser(user)
