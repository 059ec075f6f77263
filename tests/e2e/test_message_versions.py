"""Every daemon reads messages of its version and the one before, and none of another."""

from __future__ import annotations

import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from tests.e2e.daemon_processes import Daemons
from tests.yardkit.golden_messages import file_of
from yardkit import protocol, topology
from yardkit.broker import Broker, Outgoing, connect

# What each shared queue carries; ``runners`` is not among them: whatever comes wakes a runner.
QUEUES = {
    topology.CENTER_REGISTER.name: "register",
    topology.CENTER_CONTROL.name: "allocate",
    topology.CENTER_REQUESTS.name: "download_batch",
    topology.STATISTICS.name: "run_counters",
    topology.LOGS.name: "log_batch",
    topology.LIFECYCLE_ANSWERS.name: "lifecycle_answer",
    topology.SEEDS.name: "seeds_add",
    topology.ITEMS.name: "item_batch",
}
READ, REFUSED = [protocol.VERSION - 1, protocol.VERSION], [protocol.VERSION + 1, 99]
PATIENCE_SECONDS = 90.0


@pytest.fixture
def daemons(tmp_path: Path) -> Iterator[Daemons]:
    made = Daemons(tmp_path)
    made.migrate()
    yield made
    made.end()


def until(holds: Callable[[], bool], daemons: Daemons) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not holds():
        assert time.monotonic() < deadline, {name: daemons.log(name) for name in daemons.processes}
        time.sleep(0.2)


def dead(folder: Path) -> list[tuple[str, str]]:
    """Queue and reason of each dead letter."""
    with closing(sqlite3.connect(folder / "data" / "crawlyard.sqlite3", timeout=20)) as database:
        return database.execute("SELECT queue, reason FROM runtime_deadletter").fetchall()


def all_read(broker: Broker) -> bool:
    depths = [broker.depth(queue) for queue in QUEUES]
    return not any(depth.ready or depth.unacked > 0 for depth in depths)


@pytest.mark.timeout(240)
def test_each_consumer_reads_two_versions_and_refuses_others_with_a_reason(
    daemons: Daemons, tmp_path: Path
) -> None:
    broker = connect(f"sqlite:///{tmp_path / 'data' / 'broker.sqlite3'}", name="test", timeout=10)
    try:
        broker.declare(*topology.SHARED)
        for queue, tag in QUEUES.items():
            fields = msgspec.msgpack.decode(file_of(tag, protocol.VERSION).read_bytes())
            bodies = [msgspec.msgpack.encode(fields | {"v": v}) for v in [*READ, *REFUSED]]
            broker.publish([Outgoing(body, queue) for body in bodies]).result(10)
        for noun in ("center", "statistics", "log_ingester", "dataset_writer", "seeds", "runner"):
            daemons.start(noun, f"run_{noun}")
        until(lambda: all_read(broker), daemons)
        wanted = {(queue, version) for queue in QUEUES for version in REFUSED}

        def refused() -> Counter[tuple[str, int]]:
            return Counter(
                (queue, version)
                for queue, reason in dead(tmp_path)
                for version in [*READ, *REFUSED]
                if f"message version {version};" in reason
            )

        until(lambda: len(refused()) >= len(wanted), daemons)
        # Once each, and none of the versions that are read.
        assert refused() == Counter(dict.fromkeys(wanted, 1))
    finally:
        broker.close()
