"""Shipping of run output to the queue of logs; the runner calls ``step()`` regularly.

A line is identified by its number in its source, from 1, so that shipping it again is harmless:
the store keeps each line of (stream, boot) once. While the broker is away nothing is read: the
source itself is the buffer, and nothing is lost. Only an execution that writes more than
``MAX_LINES`` or ``MAX_BYTES`` loses lines, which are counted.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

from apps.jobs.runners.log_sources import (
    BATCH_BYTES,
    BATCH_LINES,
    LINE_BYTES,
    LogSource,
    Resumable,
)
from yardkit import topology
from yardkit.broker import Broker, BrokerError, Outgoing, Unroutable
from yardkit.outage import Outage
from yardkit.protocol import LogBatch, LogRecord, encode

logger = logging.getLogger(__name__)

CUT_MARK: Final = " ... [cut: the line is longer than 16 KiB]"
# Limit of one step over all runs, so that one endless log does not delay the others.
STEP_LINES: Final = 10_000
STEP_BYTES: Final = 1024 * 1024
# Unconfirmed batches of one run after which reading pauses.
WINDOW: Final = 8
# Limit of one execution; lines beyond are only counted.
MAX_LINES: Final = 1_000_000
MAX_BYTES: Final = 256 * 1024 * 1024
RETRY_SECONDS: Final = 0.5
# Interval of reporting the number of dropped lines.
TELL_SECONDS: Final = 1.0
# Interval of storing a position.
NOTE_SECONDS: Final = 1.0
_CLOSE_PAUSE_SECONDS: Final = 0.01


class _ShippingPosition(msgspec.Struct, frozen=True, kw_only=True):
    """Stored position up to which a source has been shipped."""

    seq: int = 0
    size: int = 0
    dropped: int = 0
    mark: str = ""


@dataclass(slots=True)
class _PendingBatch:
    body: bytes
    # Position before this batch.
    behind: _ShippingPosition
    confirmed: Future[None] | None = None


@dataclass(slots=True)
class _FollowedLog:
    run: int
    boot: str
    source: LogSource
    seq: int = 0
    size: int = 0
    dropped: int = 0
    mark: str = ""
    told_dropped: int = 0
    tell_at: float = 0.0
    # The position stored last, and when it may be stored again.
    noted: _ShippingPosition = field(default_factory=_ShippingPosition)
    note_at: float = 0.0
    # ``ending``: nothing more will be written. ``read``: everything has been read.
    ending: bool = False
    read: bool = False
    waiting: deque[_PendingBatch] = field(default_factory=deque)

    @property
    def readable(self) -> bool:
        return not self.read and len(self.waiting) < WINDOW

    @property
    def place(self) -> _ShippingPosition:
        return _ShippingPosition(seq=self.seq, size=self.size, dropped=self.dropped, mark=self.mark)

    @property
    def confirmed(self) -> _ShippingPosition:
        """Position up to which the broker has confirmed all lines."""
        return self.waiting[0].behind if self.waiting else self.place


class LogShipper:
    """Reads log sources and publishes their lines as ``LogBatch``.

    Args:
        notes: folder for the positions of unfinished logs, from which a restarted runner can
            ship the rest.
    """

    def __init__(self, broker: Broker, notes: Path | None = None) -> None:
        self._broker = broker
        self._notes = notes
        self._followed: dict[tuple[int, str], _FollowedLog] = {}
        self._outage = Outage(
            logger, "shipping of logs", first=RETRY_SECONDS, longest=RETRY_SECONDS
        )
        self._retry_at = 0.0
        if notes is not None:
            notes.mkdir(parents=True, exist_ok=True)

    @property
    def idle(self) -> bool:
        """Whether nothing is followed, and everything is confirmed."""
        return not self._followed

    def follows(self, *, run: int) -> bool:
        """Return whether lines of this run are still to be read or confirmed."""
        return any(one.run == run for one in self._followed.values())

    def unfinished(self) -> list[tuple[int, str]]:
        """Return the (run, boot) pairs whose logs an earlier shipper has not finished."""
        if self._notes is None:
            return []
        names = (path.name.partition(".") for path in self._notes.iterdir())
        found = [(int(run), boot) for run, _, boot in names if run.isdecimal() and boot]
        return sorted(one for one in found if one not in self._followed)

    def follow(self, *, run: int, boot: str, source: LogSource) -> None:
        """Ship a source from its first line until ``finish()``; idempotent for (run, boot)."""
        if (run, boot) in self._followed:
            source.close()
            return
        one = self._followed[run, boot] = _FollowedLog(run, boot, source)
        if self._notes is None:
            return
        note = self._notes / f"{run}.{boot}"
        note.touch()
        place = _read_note(note)
        if place.mark and isinstance(source, Resumable):
            source.resume(place.mark)
            one.seq, one.size, one.dropped = place.seq, place.size, place.dropped
            one.mark, one.noted = place.mark, place

    def finish(self, *, run: int) -> None:
        """Mark the logs of a run as complete; returns at once.

        The following steps ship the rest and then forget the run.
        """
        for one in self._followed.values():
            if one.run == run:
                one.ending = True

    def step(self) -> bool:
        """Read and publish for a bounded time; return whether there was anything to do.

        Never blocks, and never fails because of an absent broker or a broken source.
        """
        worked = self._settle()
        if not self._broker.connected:
            return worked
        lines, size = STEP_LINES, STEP_BYTES
        # Logs that were not served come first in the next step.
        turns = deque(self._followed)
        while turns and lines > 0 and size > 0:
            key = turns.popleft()
            one = self._followed[key] = self._followed.pop(key)
            before = one.seq, one.size
            if one.readable and self._read(one):
                turns.append(key)
            lines -= one.seq - before[0]
            size -= one.size - before[1]
        worked |= lines < STEP_LINES
        self._publish()
        return worked

    def close(self, timeout: float) -> None:
        """Ship what was read and what has ended, for up to ``timeout`` seconds; close the sources.

        The next shipper with the same ``notes`` ships the rest.
        """
        deadline = time.monotonic() + timeout
        while self._left() and time.monotonic() < deadline:
            if not self.step():
                time.sleep(_CLOSE_PAUSE_SECONDS)
        for one in self._followed.values():
            one.source.close()
        self._followed.clear()

    def _left(self) -> bool:
        return any(one.ending or one.waiting for one in self._followed.values())

    # --- reading ----------------------------------------------------------------------------------

    def _read(self, one: _FollowedLog) -> bool:
        """Read a source once; return whether it gave any lines."""
        try:
            lines = one.source.read(last=one.ending)
        except Exception as error:  # noqa: BLE001 - one broken source is no reason to stop a runner
            logger.warning("the log of run %s cannot be read any more: %s", one.run, error)
            one.read = True
            lines = ()
        records: list[LogRecord] = []
        size = 0
        begin = one.place
        for line in lines:
            text, length = _cut(line.text)
            behind = one.place
            one.seq += 1
            one.size += length
            one.mark = line.mark or one.mark
            if one.seq > MAX_LINES or one.size > MAX_BYTES:
                one.dropped += 1
                continue
            if len(records) == BATCH_LINES or size + length > BATCH_BYTES:
                self._add(one, records, begin)
                records, size, begin = [], 0, behind
            records.append(LogRecord(one.seq, line.at, "", line.source, text))
            size += length
        one.read |= one.ending and not lines and one.source.ended
        if records or self._must_tell(one):
            self._add(one, records, begin)
        return bool(lines)

    def _must_tell(self, one: _FollowedLog) -> bool:
        due = one.read or time.monotonic() >= one.tell_at
        return due and one.dropped > one.told_dropped

    def _add(self, one: _FollowedLog, records: list[LogRecord], behind: _ShippingPosition) -> None:
        message = LogBatch(
            stream=f"run:{one.run}", boot=one.boot, lines=records, dropped=one.dropped
        )
        one.waiting.append(_PendingBatch(encode(message), behind))
        one.told_dropped = one.dropped
        one.tell_at = time.monotonic() + TELL_SECONDS

    # --- publishing -------------------------------------------------------------------------------

    def _publish(self) -> None:
        if time.monotonic() < self._retry_at:
            return
        for one in self._followed.values():
            for message in one.waiting:
                if message.confirmed is None:
                    outgoing = Outgoing(body=message.body, key=topology.LOGS.name)
                    message.confirmed = self._broker.publish([outgoing])

    def _settle(self) -> bool:
        """Forget confirmed batches, and the logs that are confirmed to their end."""
        settled = False
        for key, one in list(self._followed.items()):
            for message in list(one.waiting):
                if message.confirmed is None or not message.confirmed.done():
                    continue
                settled = True
                error = message.confirmed.exception()
                if error is None:
                    self._outage.recovered()
                    one.waiting.remove(message)
                else:
                    message.confirmed = None
                    self._failed(error)
            if one.read and not one.waiting:
                self._forget(key)
            else:
                self._note(one)
        return settled

    def _note(self, one: _FollowedLog) -> None:
        """Store the position, for a source whose lines cannot be counted again."""
        place = one.confirmed
        if self._notes is None or not place.mark or place == one.noted:
            return
        if time.monotonic() < one.note_at:
            return
        one.noted, one.note_at = place, time.monotonic() + NOTE_SECONDS
        beside = self._notes / f".{one.run}.{one.boot}"
        try:
            beside.write_bytes(msgspec.json.encode(place))
            beside.replace(self._notes / f"{one.run}.{one.boot}")
        except OSError as error:
            # The previous position still holds: lines after it are sent again.
            logger.warning("how far run %s is shipped cannot be written down: %s", one.run, error)

    def _failed(self, error: BaseException) -> None:
        self._retry_at = time.monotonic() + self._outage.failed(error)
        if isinstance(error, Unroutable):
            # The queue was deleted.
            with contextlib.suppress(BrokerError):
                self._broker.declare(topology.LOGS)

    def _forget(self, key: tuple[int, str]) -> None:
        self._followed.pop(key).source.close()
        if self._notes is not None:
            (self._notes / f"{key[0]}.{key[1]}").unlink(missing_ok=True)


def _read_note(path: Path) -> _ShippingPosition:
    """Return the stored position, the beginning where there is none."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=_ShippingPosition)
    except (OSError, msgspec.DecodeError):
        return _ShippingPosition()


def _cut(text: str) -> tuple[str, int]:
    """Return the text as it is shipped, and its size in bytes."""
    if text.isascii() and len(text) <= LINE_BYTES:
        return text, len(text)
    # A lone surrogate cannot be encoded.
    whole = text.encode("utf-8", "replace")
    if len(whole) <= LINE_BYTES:
        return whole.decode(), len(whole)
    return whole[:LINE_BYTES].decode("utf-8", "ignore") + CUT_MARK, LINE_BYTES + len(CUT_MARK)
