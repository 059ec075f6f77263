"""What a runner ships of its runs' output: every line once, whatever is written and broken."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import cast

import pytest

from apps.jobs.runners import log_shipper
from apps.jobs.runners.log_shipper import CUT_MARK, STEP_LINES, WINDOW, LogShipper
from apps.jobs.runners.log_sources import BATCH_BYTES, BATCH_LINES, LINE_BYTES, FileLog, LogLineRead
from tests.plugins.measurements import Measured
from yardkit import topology
from yardkit.broker import Broker, BrokerUnavailable, Outgoing, connect
from yardkit.protocol import LogBatch, LogRecord, decode

BOOT = "b1"


@pytest.fixture
def queue(broker: Broker) -> Broker:
    broker.declare(topology.LOGS)
    return broker


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log.txt"


class Arrived:
    """Takes from the queue what the shipper sends."""

    def __init__(self, broker: Broker) -> None:
        self._subscription = broker.subscribe(topology.LOGS.name, prefetch=1000)
        self.batches: list[LogBatch] = []
        self.bodies: list[bytes] = []

    def take(self) -> None:
        deliveries = self._subscription.take(1000, timeout=0.05)
        for delivery in deliveries:
            message = decode(delivery.body)
            assert isinstance(message, LogBatch)
            self.batches.append(message)
            self.bodies.append(delivery.body)
        self._subscription.ack(deliveries)

    @property
    def records(self) -> list[LogRecord]:
        return [record for batch in self.batches for record in batch.lines]

    @property
    def texts(self) -> list[str]:
        return [record.text for record in self.records]

    def by_seq(self) -> list[str]:
        """The texts as a store keeps them: each number once."""
        kept = {record.seq: record.text for record in reversed(self.records)}
        assert sorted(kept) == list(range(1, len(kept) + 1))
        return [kept[seq] for seq in sorted(kept)]


@pytest.fixture
def arrived(queue: Broker) -> Arrived:
    return Arrived(queue)


def until(shipper: LogShipper, arrived: Arrived, happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not happened():
        assert time.monotonic() < deadline, f"{len(arrived.records)} lines have arrived"
        shipper.step()
        arrived.take()


def ship_all(shipper: LogShipper, arrived: Arrived, *, run: int = 7) -> None:
    shipper.finish(run=run)
    until(shipper, arrived, lambda: not shipper.follows(run=run))
    arrived.take()


class Given:
    """A source that gives what it is told to."""

    def __init__(self, *pieces: Sequence[str]) -> None:
        self.pieces = [list(piece) for piece in pieces]
        self.closed = False

    def read(self, *, last: bool = False) -> list[LogLineRead]:
        piece = self.pieces.pop(0) if self.pieces else []
        return [LogLineRead(1.5, "stderr", text) for text in piece]

    @property
    def ended(self) -> bool:
        return not self.pieces

    def close(self) -> None:
        self.closed = True


class Broken(Given):
    def read(self, *, last: bool = False) -> list[LogLineRead]:
        raise RuntimeError("gone")


# --- shipping -------------------------------------------------------------------------------------


def test_lines_travel_with_their_numbers(queue: Broker, arrived: Arrived, log: Path) -> None:
    shipper = LogShipper(queue)
    shipper.follow(run=7, boot=BOOT, source=FileLog(log))
    log.write_bytes(b"one\ntwo\nthree")
    before = time.time()
    until(shipper, arrived, lambda: len(arrived.records) == 2)
    ship_all(shipper, arrived)
    assert [(record.seq, record.text) for record in arrived.records] == [
        (1, "one"),
        (2, "two"),
        (3, "three"),
    ]
    assert {(batch.stream, batch.boot, batch.dropped) for batch in arrived.batches} == {
        ("run:7", BOOT, 0)
    }
    assert all(before - 5 < record.at < time.time() + 5 for record in arrived.records)
    assert {(record.source, record.level) for record in arrived.records} == {("stdout", "")}


def test_a_run_without_output_is_forgotten_when_it_ends(queue: Broker, arrived: Arrived) -> None:
    source = Given()
    shipper = LogShipper(queue)
    shipper.follow(run=7, boot=BOOT, source=source)
    shipper.step()
    assert not shipper.idle
    ship_all(shipper, arrived)
    assert source.closed
    assert arrived.batches == []


def test_an_end_that_is_late_is_waited_for(queue: Broker, arrived: Arrived) -> None:
    shipper = LogShipper(queue)
    shipper.follow(run=7, boot=BOOT, source=Given(["one"], [], [], ["two"]))
    ship_all(shipper, arrived)
    assert arrived.by_seq() == ["one", "two"]


def test_long_lines_are_cut_and_say_so(queue: Broker, arrived: Arrived, log: Path) -> None:
    log.write_bytes(b"a" * LINE_BYTES + b"\n" + "中".encode() * LINE_BYTES + b"\nshort\n")
    shipper = LogShipper(queue)
    shipper.follow(run=7, boot=BOOT, source=FileLog(log))
    ship_all(shipper, arrived)
    fits, cut, short = arrived.by_seq()
    assert fits == "a" * LINE_BYTES
    assert cut == "中" * (LINE_BYTES // 3) + CUT_MARK
    assert short == "short"


def test_no_message_is_too_large(queue: Broker, arrived: Arrived) -> None:
    lines = ["x" * (LINE_BYTES - 1)] * 40 + ["y"] * 1200
    shipper = LogShipper(queue)
    shipper.follow(run=7, boot=BOOT, source=Given(lines))
    ship_all(shipper, arrived)
    assert arrived.by_seq() == lines
    assert max(len(batch.lines) for batch in arrived.batches) == BATCH_LINES
    assert max(len(body) for body in arrived.bodies) < BATCH_BYTES + 64 * BATCH_LINES


def test_what_no_message_can_hold_is_replaced(queue: Broker, arrived: Arrived) -> None:
    shipper = LogShipper(queue)
    shipper.follow(run=7, boot=BOOT, source=Given(["half \ud800 pair", "\x00"]))
    ship_all(shipper, arrived)
    assert arrived.by_seq() == ["half ? pair", "\x00"]


def test_a_broken_source_harms_no_other(queue: Broker, arrived: Arrived) -> None:
    shipper = LogShipper(queue)
    shipper.follow(run=7, boot=BOOT, source=Broken())
    shipper.follow(run=8, boot=BOOT, source=Given(["well"]))
    ship_all(shipper, arrived, run=8)
    assert arrived.texts == ["well"]


def test_a_second_follow_changes_nothing(queue: Broker, arrived: Arrived) -> None:
    shipper, second = LogShipper(queue), Given(["twice"])
    shipper.follow(run=7, boot=BOOT, source=Given(["once"]))
    shipper.follow(run=7, boot=BOOT, source=second)
    ship_all(shipper, arrived)
    assert arrived.texts == ["once"]
    assert second.closed


def test_a_restarted_run_is_another_execution(queue: Broker, arrived: Arrived) -> None:
    shipper = LogShipper(queue)
    shipper.follow(run=7, boot="b1", source=Given(["first"]))
    shipper.finish(run=7)
    shipper.follow(run=7, boot="b2", source=Given(["second"]))
    until(shipper, arrived, lambda: len(arrived.records) == 2)
    assert {batch.boot: [line.text for line in batch.lines] for batch in arrived.batches} == {
        "b1": ["first"],
        "b2": ["second"],
    }
    ship_all(shipper, arrived)


# --- limits ---------------------------------------------------------------------------------------


@pytest.mark.slow("2 s")
def test_a_step_is_bounded_and_serves_every_run(queue: Broker, arrived: Arrived) -> None:
    shipper = LogShipper(queue)
    loud = [Given(*([["x" * 10] * BATCH_LINES] * 100)) for _ in range(5)]
    for run, source in enumerate(loud, 1):
        shipper.follow(run=run, boot=BOOT, source=source)
    shipper.follow(run=6, boot=BOOT, source=Given(["quiet"]))
    shipper.step()
    read = sum(100 - len(source.pieces) for source in loud) * BATCH_LINES
    assert 0 < read <= STEP_LINES
    assert all(100 - len(source.pieces) <= WINDOW for source in loud)
    until(shipper, arrived, lambda: "quiet" in arrived.texts)
    for run in range(1, 7):
        shipper.finish(run=run)
    until(shipper, arrived, lambda: shipper.idle)
    arrived.take()
    assert len(arrived.records) == 5 * 100 * BATCH_LINES + 1


def test_beyond_its_limit_a_run_is_counted(
    queue: Broker, arrived: Arrived, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_shipper, "MAX_LINES", 700)
    shipper = LogShipper(queue)
    shipper.follow(run=7, boot=BOOT, source=Given(*([["x"] * 400] * 4)))
    ship_all(shipper, arrived)
    assert len(arrived.by_seq()) == 700
    assert arrived.batches[-1].dropped == 900
    assert [batch.dropped for batch in arrived.batches] == sorted(
        batch.dropped for batch in arrived.batches
    )


# --- faults ---------------------------------------------------------------------------------------


class Flaky:
    """The real broker behind a link that confirms nothing while it is ``away``."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.connected = True
        self.away = True

    def publish(self, messages: Sequence[Outgoing]) -> Future[None]:
        # It arrives all the same: that a confirm is missing says nothing about the message.
        sent = self._broker.publish(messages)
        if not self.away:
            return sent
        sent.result(30)
        lost: Future[None] = Future()
        lost.set_exception(BrokerUnavailable("the connection was lost"))
        return lost


def test_without_confirms_no_more_is_read_and_nothing_is_lost(
    queue: Broker, arrived: Arrived, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_shipper, "RETRY_SECONDS", 0.0)
    lines = [f"line {number}" for number in range(BATCH_LINES * (WINDOW + 5))]
    log.write_text("\n".join(lines) + "\n")
    flaky, source = Flaky(queue), FileLog(log)
    shipper = LogShipper(cast(Broker, flaky))
    shipper.follow(run=7, boot=BOOT, source=source)
    for _ in range(WINDOW + 3):
        shipper.step()
        arrived.take()
    assert max(record.seq for record in arrived.records) == BATCH_LINES * WINDOW
    # Each time they were offered again.
    assert len(arrived.records) > BATCH_LINES * WINDOW
    flaky.away = False
    ship_all(shipper, arrived)
    assert arrived.by_seq() == lines


@pytest.mark.fault
def test_a_queue_that_was_deleted_comes_back(broker: Broker, measured: Measured) -> None:
    shipper = LogShipper(broker)
    shipper.follow(run=7, boot=BOOT, source=Given(["kept"]))
    shipper.finish(run=7)
    deadline = time.monotonic() + 60
    while not shipper.idle and time.monotonic() < deadline:
        shipper.step()
    arrived = Arrived(broker)
    arrived.take()
    texts = arrived.texts
    measured(of=1, lost=len({"kept"} - {*texts}), twice=len(texts) - len({*texts}))
    assert texts == ["kept"]


def test_nothing_is_read_without_a_connection(sqlite_broker_url: str) -> None:
    broker = connect(sqlite_broker_url, name="closed")
    broker.close()
    source = Given(["waits"])
    shipper = LogShipper(broker)
    shipper.follow(run=7, boot=BOOT, source=source)
    assert shipper.step() is False
    assert source.pieces == [["waits"]]
    shipper.close(0.0)
    assert source.closed


def test_a_new_shipper_reads_again_and_the_numbers_are_the_same(
    queue: Broker, arrived: Arrived, log: Path
) -> None:
    with log.open("ab", buffering=0) as file:
        file.write(b"one\ntwo\nthr")
        first = LogShipper(queue)
        first.follow(run=7, boot=BOOT, source=FileLog(log))
        until(first, arrived, lambda: len(arrived.records) == 2)
        file.write(b"ee\nfour")
    second = LogShipper(queue)
    second.follow(run=7, boot=BOOT, source=FileLog(log))
    ship_all(second, arrived)
    assert arrived.by_seq() == ["one", "two", "three", "four"]
    assert len(arrived.records) == 6
    first.close(0.0)


def test_notes_tell_what_is_not_shipped_to_its_end(
    queue: Broker, arrived: Arrived, tmp_path: Path, log: Path
) -> None:
    notes = tmp_path / "notes"
    log.write_bytes(b"one\n")
    killed = LogShipper(queue, notes)
    assert killed.unfinished() == []
    killed.follow(run=7, boot=BOOT, source=FileLog(log))
    killed.follow(run=8, boot="b2", source=Given(["done"]))
    ship_all(killed, arrived, run=8)
    (notes / "no note").touch()
    following = LogShipper(queue, notes)
    assert following.unfinished() == [(7, BOOT)]
    following.follow(run=7, boot=BOOT, source=FileLog(log))
    assert following.unfinished() == []
    ship_all(following, arrived)
    assert LogShipper(queue, notes).unfinished() == []
    killed.close(0.0)


def test_the_end_of_a_shipper_ships_what_has_ended(
    queue: Broker, arrived: Arrived, tmp_path: Path
) -> None:
    shipper = LogShipper(queue, tmp_path / "notes")
    ended, running = Given(*([["x"] * 300] * 20)), Given()
    shipper.follow(run=7, boot=BOOT, source=ended)
    shipper.follow(run=8, boot=BOOT, source=running)
    shipper.finish(run=7)
    shipper.close(30.0)
    arrived.take()
    assert len(arrived.by_seq()) == 6000
    assert ended.closed
    assert running.closed
    assert LogShipper(queue, tmp_path / "notes").unfinished() == [(8, BOOT)]
