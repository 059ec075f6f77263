"""A container's log whose oldest lines the engine rotates away, and a runner that starts anew."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from apps.jobs.runners import log_shipper
from apps.jobs.runners.docker_log import LOST, untaken
from apps.jobs.runners.log_shipper import LogShipper
from apps.jobs.runners.log_sources import LogLineRead
from yardkit import topology
from yardkit.broker import Broker, connect
from yardkit.protocol import LogBatch, decode


def line(second: int, text: str = "") -> LogLineRead:
    stamp = f"2026-03-01T12:00:{second:02}.000000000Z"
    return LogLineRead(float(second), "stdout", text or f"at {second}", stamp)


@pytest.mark.parametrize(
    ("mark", "expected"),
    [
        (("", 0), ["a", "b", "c", "d", "e"]),
        ((line(1).mark, 1), ["b", "c", "d", "e"]),
        ((line(2).mark, 1), ["c", "d", "e"]),
        ((line(2).mark, 2), ["d", "e"]),
        ((line(4).mark, 1), []),
        ((line(0).mark, 3), [LOST, "a", "b", "c", "d", "e"]),
    ],
)
def test_what_was_taken_is_passed_over_by_its_time(
    mark: tuple[str, int], expected: list[str]
) -> None:
    kept = [line(1, "a"), line(2, "b"), line(2, "c"), line(3, "d"), line(4, "e")]
    assert [one.text for one in untaken(iter(kept), mark)] == expected


def test_nothing_left_is_no_loss_that_can_be_told() -> None:
    assert list(untaken(iter([]), (line(2).mark, 1))) == []


class Rotating:
    """As ``DockerLog``, on what an engine still has; each line has a time of its own."""

    ended = True

    def __init__(self, kept: Sequence[LogLineRead]) -> None:
        self._kept = kept
        self._mark = ("", 0)
        self._lines: list[LogLineRead] | None = None

    def resume(self, mark: str) -> None:
        stamp, _slash, same = mark.partition("/")
        self._mark = (stamp, int(same))

    def read(self, *, last: bool = False) -> Sequence[LogLineRead]:
        if self._lines is None:
            self._lines = [
                LogLineRead(one.at, one.source, one.text, one.mark and f"{one.mark}/1")
                for one in untaken(iter(self._kept), self._mark)
            ]
        taken, self._lines = self._lines[:2], self._lines[2:]
        return taken

    def close(self) -> None:
        """Nothing is open."""


@pytest.fixture
def broker(sqlite_broker_url: str) -> Iterator[Broker]:
    broker = connect(sqlite_broker_url, name="test")
    broker.declare(*topology.SHARED)
    yield broker
    broker.close()


def ship(broker: Broker, notes: Path, source: Rotating, *, ended: bool) -> None:
    """By a runner of its own, which is gone afterwards."""
    shipper = LogShipper(broker, notes)
    shipper.follow(run=7, boot="b1", source=source)
    if ended:
        shipper.finish(run=7)
    deadline = time.monotonic() + 60
    idle = 0
    while idle < 5 and not shipper.idle:
        assert time.monotonic() < deadline
        idle = 0 if shipper.step() else idle + 1
        time.sleep(0.02)


def shipped(broker: Broker) -> dict[int, str]:
    """Text by seq, as a store keeps it: the first one stays."""
    found: dict[int, str] = {}
    subscription = broker.subscribe(topology.LOGS.name, prefetch=1000)
    while deliveries := subscription.take(1000, timeout=0.2):
        for delivery in deliveries:
            message = decode(delivery.body)
            assert isinstance(message, LogBatch)
            for record in message.lines:
                found.setdefault(record.seq, record.text)
        subscription.ack(deliveries)
    subscription.close()
    return found


@pytest.fixture(autouse=True)
def noted_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_shipper, "NOTE_SECONDS", 0.0)


def test_a_runner_that_starts_anew_counts_on_though_the_beginning_is_gone(
    broker: Broker, tmp_path: Path
) -> None:
    whole = [line(second) for second in range(1, 21)]
    ship(broker, tmp_path / "notes", Rotating(whole[:10]), ended=False)
    ship(broker, tmp_path / "notes", Rotating(whole[5:]), ended=True)
    assert shipped(broker) == {second: f"at {second}" for second in range(1, 21)}
    assert list((tmp_path / "notes").iterdir()) == []


def test_what_was_rotated_away_unread_is_said(broker: Broker, tmp_path: Path) -> None:
    whole = [line(second) for second in range(1, 21)]
    ship(broker, tmp_path / "notes", Rotating(whole[:10]), ended=False)
    ship(broker, tmp_path / "notes", Rotating(whole[14:]), ended=True)
    texts = [text for _seq, text in sorted(shipped(broker).items())]
    assert texts == [f"at {n}" for n in range(1, 11)] + [LOST] + [f"at {n}" for n in range(15, 21)]


def test_a_note_that_cannot_be_read_means_from_the_beginning(
    broker: Broker, tmp_path: Path
) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "7.b1").write_bytes(b"\x00 not json")
    ship(broker, tmp_path / "notes", Rotating([line(1), line(2)]), ended=True)
    assert shipped(broker) == {1: "at 1", 2: "at 2"}
