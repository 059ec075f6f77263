"""What a center counts of itself, and tells."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

from apps.agents.center.pending_counters import (
    ALLOCATIONS_EXPIRED,
    HEARTBEATS_MISSED,
    PendingCounters,
)
from yardkit import topology
from yardkit.broker import Broker, connect
from yardkit.clock import ManualClock
from yardkit.protocol import Samples, decode

PATIENCE_SECONDS = 10.0


def told(url: str) -> dict[str, float]:
    """What has arrived of each series: every message counts once."""
    messages: dict[int, Samples] = {}
    with contextlib.closing(connect(url, name="reader")) as reader:
        subscription = reader.subscribe(topology.STATISTICS.name)
        while taken := subscription.take(10, PATIENCE_SECONDS if not messages else 0.3):
            for delivery in taken:
                message = decode(delivery.body)
                assert isinstance(message, Samples)
                messages[message.seq] = message
                subscription.ack([delivery])
    totals: dict[str, float] = {}
    for message in messages.values():
        for note in message.samples:
            totals[note.series] = totals.get(note.series, 0) + note.value
    return totals


def test_the_last_report_does_not_wait_for_one_under_way(
    broker: Broker, sqlite_broker_url: str, tmp_path: Path
) -> None:
    broker.declare(topology.STATISTICS)
    tallies = PendingCounters(broker=broker, name="one", incarnation="b", clock=ManualClock())
    tallies.add(HEARTBEATS_MISSED, 2)
    with contextlib.closing(
        sqlite3.connect(tmp_path / "broker.sqlite3", isolation_level=None)
    ) as other:
        # Nothing is confirmed while somebody else writes.
        other.execute("BEGIN IMMEDIATE")
        tallies.report(ending=True)
        tallies.add(ALLOCATIONS_EXPIRED)
        tallies.report(ending=True)
        other.execute("COMMIT")
    broker.close(PATIENCE_SECONDS)
    assert told(sqlite_broker_url) == {HEARTBEATS_MISSED: 2, ALLOCATIONS_EXPIRED: 1}
