"""From a run's output through the queue into the database, when the world around it fails."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from pathlib import Path

import pytest
from django.db import DatabaseError

from apps.joblogs.daemon import BATCH, LogDaemon
from apps.joblogs.services import ingestion
from apps.jobs.models import Run
from apps.jobs.runners.log_shipper import LogShipper
from apps.jobs.runners.log_sources import FileLog
from apps.runtime.models import DeadLetter
from apps.runtime.services import store_dead_letters, subscribe_dead_letters
from tests.joblogs.factories import batch, seqs, store_texts, stored
from tests.jobs.factories import make_run
from tests.outages import tables_away
from yardkit import failpoints, topology
from yardkit.broker import Broker, Outgoing
from yardkit.clock import SystemClock
from yardkit.protocol import AnyMessage, LogBatch, RunQueued, encode

pytestmark = pytest.mark.django_db(transaction=True)

POINTS = [
    "joblogs.before_write",
    "joblogs.after_write",
    "joblogs.before_commit",
    "joblogs.before_ack",
]


@pytest.fixture
def daemon(broker: Broker) -> Iterator[LogDaemon]:
    daemon = LogDaemon(broker=broker, clock=SystemClock())
    daemon.setup()
    yield daemon
    daemon.teardown()
    failpoints.configure({})


@pytest.fixture
def run() -> Run:
    return make_run()


def send(broker: Broker, *messages: AnyMessage | bytes) -> None:
    bodies = [one if isinstance(one, bytes) else encode(one) for one in messages]
    broker.publish([Outgoing(body=body, key=topology.LOGS.name) for body in bodies]).result(9)


def until(daemon: LogDaemon, happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not happened():
        assert time.monotonic() < deadline
        daemon.step()


def settled(broker: Broker) -> bool:
    depth = broker.depth(topology.LOGS.name)
    return depth.ready == 0 and depth.unacked == 0


@pytest.mark.covers("S1.18")
def test_what_a_run_writes_comes_through_the_queue_into_the_store(
    daemon: LogDaemon, broker: Broker, run: Run, tmp_path: Path
) -> None:
    """A file, the runner's shipper, the message queue, the ingester, the SQL store."""
    log = tmp_path / "log.txt"
    log.write_text("2026-03-01 INFO x\nplain\n" + "more\n" * 2000 + "unfinished")
    shipper = LogShipper(broker)
    shipper.follow(run=run.pk, boot="b1", source=FileLog(log))
    shipper.finish(run=run.pk)

    def happened() -> bool:
        shipper.step()
        return shipper.idle and settled(broker)

    until(daemon, happened)
    texts = stored(run.stream)
    assert len(texts) == 2003
    assert (texts[1], texts[2], texts[-1]) == ("plain", "more", "unfinished")


@pytest.mark.fault
def test_what_comes_while_the_database_is_away_is_stored_when_it_is_back(
    daemon: LogDaemon, broker: Broker, run: Run
) -> None:
    # More than it may hold unacknowledged at once.
    count = 3 * BATCH
    send(broker, *(batch(run.stream, [seq]) for seq in range(1, count + 1)))
    with tables_away("jobs_run"):
        for _ in range(6):
            with contextlib.suppress(DatabaseError):
                daemon.step()
    until(daemon, lambda: settled(broker))
    assert seqs(run.stream) == list(range(1, count + 1))


@pytest.mark.fault
@pytest.mark.parametrize("point", POINTS)
def test_a_defect_between_taking_and_acknowledging_loses_nothing(
    daemon: LogDaemon, broker: Broker, run: Run, point: str
) -> None:
    failpoints.configure({"FAILPOINTS": f"{point}=raise@1"})
    send(broker, batch(run.stream, range(1, 8)))
    until(daemon, lambda: settled(broker))
    assert seqs(run.stream) == list(range(1, 8))


def test_a_message_that_always_breaks_the_store_costs_only_itself(
    daemon: LogDaemon, broker: Broker, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def store(*, batches: Sequence[LogBatch], now: datetime) -> list[ingestion.RefusedBatch]:
        if any(line.seq == 3 for one in batches for line in one.lines):
            raise RuntimeError("a defect")
        return ingestion.store_lines(batches=batches, now=now)

    monkeypatch.setattr("apps.joblogs.daemon.store_lines", store)
    send(broker, *(batch(run.stream, [seq]) for seq in range(1, 6)))
    until(daemon, lambda: settled(broker))
    assert seqs(run.stream) == [1, 2, 4, 5]
    dead = subscribe_dead_letters(broker)
    until(daemon, lambda: store_dead_letters(dead, timeout=0.1) > 0)
    assert DeadLetter.objects.get().reason == "RuntimeError: a defect"


def test_rubbish_becomes_dead_letters_with_reasons_and_the_rest_is_stored(
    daemon: LogDaemon, broker: Broker, run: Run
) -> None:
    pickled = b"\x80\x04\x95\x1f\x00\x00\x00"
    unknown = batch("run:987654", [1])
    bad: list[AnyMessage | bytes] = [b"", b"\xff" * 100, pickled, RunQueued(run=run.pk), unknown]
    send(broker, *bad, batch(run.stream, [3]))
    until(daemon, lambda: settled(broker))
    dead = subscribe_dead_letters(broker)
    deadline = time.monotonic() + 60
    while DeadLetter.objects.count() < 5 and time.monotonic() < deadline:
        store_dead_letters(dead, timeout=0.1)
    reasons = sorted(DeadLetter.objects.values_list("reason", flat=True))
    words = ["RunQueued has no log lines", *["not a message"] * 3, "does not exist"]
    for reason, word in zip(reasons, words, strict=True):
        assert word in reason
    assert seqs(run.stream) == [3]


def test_old_lines_go_by_the_housekeeping(daemon: LogDaemon, run: Run) -> None:
    # On the day of the tests' own calendar, long ago.
    store_texts(run.stream, "old")
    daemon.step()
    assert stored(run.stream) == []


def test_a_setup_that_is_tried_again_leaves_no_consumer_behind(
    daemon: LogDaemon, broker: Broker
) -> None:
    daemon.setup()
    assert broker.depth(topology.LOGS.name).consumers == 1


def test_at_its_end_it_stores_what_has_come(daemon: LogDaemon, broker: Broker, run: Run) -> None:
    send(broker, *(batch(f"run:{run.pk}", [number]) for number in (1, 2)))
    daemon.teardown()
    assert seqs(f"run:{run.pk}") == [1, 2]
    assert settled(broker)


def test_an_end_before_the_beginning_is_quiet(broker: Broker) -> None:
    LogDaemon(broker=broker, clock=SystemClock()).teardown()
