"""Servers that stop and restart while a router works, and frozen routers."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from tests.e2e.demo_process import free_port
from tests.e2e.rabbit_node import SERVER, RabbitNode
from tests.plugins.measurements import Measured
from tests.routing.faults.harness import (
    FULL,
    IN_HAND,
    ITEMS,
    UNROUTED,
    RouterHarness,
    Traffic,
    is_frozen,
)
from yardkit.broker import QueueSpec, connect

pytestmark = [pytest.mark.fault, pytest.mark.services, pytest.mark.timeout(400)]

AWAY_SECONDS = 30.0 if FULL else 8.0
REDIS = shutil.which("redis-server") or ""


class RedisServer:
    """Redis server of the test, which persists every confirmed write."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the server; return once it answers."""
        self._process = subprocess.Popen(
            [
                *(REDIS, "--port", str(self.port), "--bind", "127.0.0.1", "--save", ""),
                *("--appendonly", "yes", "--appendfsync", "always", "--dir", str(self.folder)),
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        deadline = time.monotonic() + 60
        with redis.Redis(port=self.port) as client:
            while True:
                with contextlib.suppress(redis.RedisError):
                    if client.ping():
                        return
                assert time.monotonic() < deadline
                time.sleep(0.05)

    def kill(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()


@pytest.fixture
def redis_server(tmp_path: Path) -> Iterator[RedisServer]:
    assert REDIS, "redis-server is not installed"
    server = RedisServer(tmp_path)
    server.start()
    yield server
    server.kill()


def routed(items: int) -> int:
    """Return how many of these items match a rule."""
    return items - -(-items // UNROUTED)


def test_while_redis_is_gone_items_are_parked_and_then_keep_their_order(
    harness: RouterHarness, redis_server: RedisServer, measured: Measured
) -> None:
    traffic = harness.project(redis_url=redis_server.url)
    name = traffic.start(ROUTING_WORKERS="1")
    traffic.publish(range(500))
    traffic.until_settled(500)
    redis_server.kill()
    traffic.publish(range(500, ITEMS))
    waiting = routed(ITEMS) - routed(500)
    harness.until(lambda: traffic.books()["parked"] == waiting, "all others are parked")
    said = harness.until(lambda: harness.ask("problems", slug=traffic.slug), "the report says so")
    assert any("cannot be reached" in each for each in said), said
    assert traffic.books()["holds"]
    # The outage must last longer than the pauses between probes.
    time.sleep(AWAY_SECONDS)
    assert traffic.books()["parked"] == waiting
    redis_server.start()
    back_s = traffic.until_back(time.monotonic(), ITEMS)
    traffic.until_settled(ITEMS)
    traffic.check(ITEMS, measured=measured, back_s=back_s)
    harness.until(lambda: not harness.ask("problems", slug=traffic.slug), "the report says so")
    for kind in (0, 1):
        came = [one["n"] for one in traffic.messages() if one["n"] % 2 == kind]
        first = list(dict.fromkeys(came))
        assert first == sorted(first)
    traffic.stop(name)


def test_cut_from_its_database_in_the_middle_it_goes_on(
    harness: RouterHarness, measured: Measured
) -> None:
    traffic = harness.project()
    name = traffic.start()
    cuts = 0
    step = ITEMS // 5
    for at in range(0, ITEMS, step):
        traffic.publish(range(at, at + step))
        harness.until(lambda at=at: traffic.books()["received"] > at, "more is received")
        cuts += harness.ask("cut")
    cut_at = time.monotonic()
    assert cuts >= 5
    # An item whose answer was lost waits for its lease.
    harness.ask("end_leases", slug=traffic.slug)
    back_s = traffic.until_back(cut_at, ITEMS)
    harness.until(lambda: _due_again(traffic), "every item settled")
    traffic.until_settled(ITEMS)
    traffic.check(ITEMS, most_twice=5 * IN_HAND, measured=measured, back_s=back_s)
    traffic.stop(name)


def _due_again(traffic: Traffic) -> bool:
    traffic.harness.ask("end_leases", slug=traffic.slug)
    return traffic.settled(ITEMS)


def test_a_frozen_router_that_wakes_does_nothing_twice(
    harness: RouterHarness, measured: Measured
) -> None:
    traffic = harness.project()
    # It freezes after sending a batch, before committing the moves.
    frozen = traffic.start("frozen", FAILPOINTS="router.sent=stop:12@1", ROUTING_WORKERS="1")
    traffic.publish(range(ITEMS))
    harness.until(lambda: traffic.count() > 0, "the first batch is sent")
    begun = time.monotonic()
    other = traffic.start("other")
    # Another router claims the items of the frozen one when their leases expire.
    harness.until(lambda: harness.ask("end_leases", slug=traffic.slug) >= 0, "the lease ends")
    back_s = traffic.until_back(begun, ITEMS)
    harness.until(lambda: _due_again(traffic), "every item settled")
    traffic.until_settled(ITEMS)
    repeats = traffic.check(ITEMS)
    # After it resumes, its moves are lost, because its items were processed by another one.
    process = harness.daemons.processes[frozen]
    harness.until(lambda: not is_frozen(process.pid), "it wakes")
    traffic.until_settled(ITEMS)
    assert traffic.check(ITEMS, measured=measured, back_s=back_s) == repeats
    traffic.stop(frozen)
    traffic.stop(other)
    traffic.until_settled(ITEMS)
    assert harness.broker.depth(traffic.queue).ready == 0


@pytest.mark.skipif(not FULL, reason="a RabbitMQ node of its own takes long: make test-faults")
@pytest.mark.skipif(not SERVER, reason="rabbitmq-server is not installed")
def test_rabbitmq_stopped_and_started_costs_nothing(
    harness: RouterHarness, tmp_path: Path, measured: Measured
) -> None:
    node = RabbitNode(tmp_path)
    node.start()
    try:
        traffic = harness.project(broker_url=node.url)
        broker = connect(node.url, name="test", timeout=60)
        broker.declare(QueueSpec(traffic.queue))
        name = traffic.start()
        traffic.publish(range(ITEMS), broker)
        harness.until(lambda: traffic.count() > 0, "it routes")
        broker.close()
        node.stop()
        node.start()
        back_s = traffic.until_back(time.monotonic(), ITEMS)
        traffic.until_settled(ITEMS)
        traffic.check(ITEMS, measured=measured, back_s=back_s)
        traffic.stop(name)
    finally:
        node.stop()
