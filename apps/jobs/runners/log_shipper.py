"""Shipping of run output to the queue of logs; the runner calls ``step()`` regularly.

A line is identified by its number in its source, counted from 1. Shipping it again is harmless: the
store keeps each line of (stream, boot) once. While the broker is unreachable no source is read, so
that the source itself is the buffer and no line is lost. Only an execution that writes more than
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

from apps.jobs.runners.log_sources import BATCH_BYTES, BATCH_LINES, LINE_BYTES, LogSource, Resumable
from yardkit import topology
from yardkit.broker import Broker, BrokerError, Outgoing, Unroutable
from yardkit.outage import Outage
from yardkit.protocol import LogBatch, LogRecord, encode

logger = logging.getLogger(__name__)

CUT_MARK: Final = " ... [cut: the line is longer than 16 KiB]"
# Limit per step over all runs, so that one endless log does not delay the others.
STEP_LINES: Final = 10_000
STEP_BYTES: Final = 1024 * 1024
# Limit of unconfirmed batches of one run, beyond which its source is not read.
WINDOW: Final = 8
# Limits of one execution; lines beyond them are dropped and counted.
MAX_LINES: Final = 1_000_000
MAX_BYTES: Final = 256 * 1024 * 1024
RETRY_SECONDS: Final = 0.5
# Interval of reporting the number of dropped lines, in seconds.
TELL_SECONDS: Final = 1.0
# Interval of storing a position, in seconds.
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
    # Last stored position, and the monotonic time from which it may be stored again.
    noted: _ShippingPosition = field(default_factory=_ShippingPosition)
    note_at: float = 0.0
    # ``ending``: no more lines will be written. ``read``: all lines have been read.
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
        """Position up to which all lines are confirmed by the broker."""
        return self.waiting[0].behind if self.waiting else self.place


class LogShipper:
    """Reads log sources and publishes their lines as ``LogBatch``. Not thread-safe.

    Args:
        notes: folder for the positions of unfinished logs, from which a restarted runner continues.
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
        """Whether no source is followed, so that all lines are confirmed."""
        return not self._followed

    def follows(self, *, run: int) -> bool:
        """Return whether lines of this run are not read or not confirmed yet."""
        return any(log.run == run for log in self._followed.values())

    def unfinished(self) -> list[tuple[int, str]]:
        """Return (run, boot) of the logs that an earlier shipper has not finished."""
        if self._notes is None:
            return []
        names = (path.name.partition(".") for path in self._notes.iterdir())
        executions = [(int(run), boot) for run, _, boot in names if run.isdecimal() and boot]
        return sorted(execution for execution in executions if execution not in self._followed)

    def follow(self, *, run: int, boot: str, source: LogSource) -> None:
        """Ship a source from its first line until ``finish()``. Idempotent for (run, boot)."""
        if (run, boot) in self._followed:
            source.close()
            return
        log = self._followed[run, boot] = _FollowedLog(run, boot, source)
        if self._notes is None:
            return
        note = self._notes / f"{run}.{boot}"
        note.touch()
        place = _read_note(note)
        if place.mark and isinstance(source, Resumable):
            source.resume(place.mark)
            log.seq, log.size, log.dropped = place.seq, place.size, place.dropped
            log.mark, log.noted = place.mark, place

    def finish(self, *, run: int) -> None:
        """Mark the logs of a run as complete, without waiting.

        The following steps ship the remaining lines and then forget the run.
        """
        for log in self._followed.values():
            if log.run == run:
                log.ending = True

    def step(self) -> bool:
        """Read and publish a limited amount; return whether there was work.

        Never blocks; an unreachable broker or a broken source raises no exception.
        """
        worked = self._settle()
        if not self._broker.connected:
            return worked
        lines, size = STEP_LINES, STEP_BYTES
        # Logs that were not read come first in the next step.
        turns = deque(self._followed)
        while turns and lines > 0 and size > 0:
            key = turns.popleft()
            log = self._followed[key] = self._followed.pop(key)
            before = log.seq, log.size
            if log.readable and self._read(log):
                turns.append(key)
            lines -= log.seq - before[0]
            size -= log.size - before[1]
        worked |= lines < STEP_LINES
        self._publish()
        return worked

    def close(self, timeout: float) -> None:
        """Ship pending lines and ended logs for at most ``timeout`` seconds; close all sources.

        The next shipper with the same ``notes`` ships the remaining lines.
        """
        deadline = time.monotonic() + timeout
        while self._left() and time.monotonic() < deadline:
            if not self.step():
                time.sleep(_CLOSE_PAUSE_SECONDS)
        for log in self._followed.values():
            log.source.close()
        self._followed.clear()

    def _left(self) -> bool:
        return any(log.ending or log.waiting for log in self._followed.values())

    # --- reading ----------------------------------------------------------------------------------

    def _read(self, log: _FollowedLog) -> bool:
        """Read a source once; return whether there were any lines."""
        try:
            lines = log.source.read(last=log.ending)
        except Exception as error:  # noqa: BLE001 - one broken source is no reason to stop a runner
            logger.warning("the log of run %s cannot be read any more: %s", log.run, error)
            log.read = True
            lines = ()
        records: list[LogRecord] = []
        size = 0
        begin = log.place
        for line in lines:
            text, length = _cut(line.text)
            behind = log.place
            log.seq += 1
            log.size += length
            log.mark = line.mark or log.mark
            if log.seq > MAX_LINES or log.size > MAX_BYTES:
                log.dropped += 1
                continue
            if len(records) == BATCH_LINES or size + length > BATCH_BYTES:
                self._add(log, records, begin)
                records, size, begin = [], 0, behind
            records.append(LogRecord(log.seq, line.at, "", line.source, text))
            size += length
        log.read |= log.ending and not lines and log.source.ended
        if records or self._must_report_drops(log):
            self._add(log, records, begin)
        return bool(lines)

    def _must_report_drops(self, log: _FollowedLog) -> bool:
        due = log.read or time.monotonic() >= log.tell_at
        return due and log.dropped > log.told_dropped

    def _add(self, log: _FollowedLog, records: list[LogRecord], behind: _ShippingPosition) -> None:
        message = LogBatch(
            stream=f"run:{log.run}", boot=log.boot, lines=records, dropped=log.dropped
        )
        log.waiting.append(_PendingBatch(encode(message), behind))
        log.told_dropped = log.dropped
        log.tell_at = time.monotonic() + TELL_SECONDS

    # --- publishing -------------------------------------------------------------------------------

    def _publish(self) -> None:
        if time.monotonic() < self._retry_at:
            return
        for log in self._followed.values():
            for message in log.waiting:
                if message.confirmed is None:
                    outgoing = Outgoing(body=message.body, key=topology.LOGS.name)
                    message.confirmed = self._broker.publish([outgoing])

    def _settle(self) -> bool:
        """Forget confirmed batches and complete logs; return whether any publish has ended."""
        settled = False
        for key, log in list(self._followed.items()):
            for message in list(log.waiting):
                if message.confirmed is None or not message.confirmed.done():
                    continue
                settled = True
                error = message.confirmed.exception()
                if error is None:
                    self._outage.recovered()
                    log.waiting.remove(message)
                else:
                    message.confirmed = None
                    self._failed(error)
            if log.read and not log.waiting:
                self._forget(key)
            else:
                self._note(log)
        return settled

    def _note(self, log: _FollowedLog) -> None:
        """Store the position of a ``Resumable`` source, whose lines cannot be counted again."""
        place = log.confirmed
        if self._notes is None or not place.mark or place == log.noted:
            return
        if time.monotonic() < log.note_at:
            return
        log.noted, log.note_at = place, time.monotonic() + NOTE_SECONDS
        beside = self._notes / f".{log.run}.{log.boot}"
        try:
            beside.write_bytes(msgspec.json.encode(place))
            beside.replace(self._notes / f"{log.run}.{log.boot}")
        except OSError as error:
            # The previous position remains valid: lines after it are sent again.
            logger.warning("how far run %s is shipped cannot be written down: %s", log.run, error)

    def _failed(self, error: BaseException) -> None:
        self._retry_at = time.monotonic() + self._outage.failed(error)
        if isinstance(error, Unroutable):
            # The queue was deleted: declare it again.
            with contextlib.suppress(BrokerError):
                self._broker.declare(topology.LOGS)

    def _forget(self, key: tuple[int, str]) -> None:
        self._followed.pop(key).source.close()
        if self._notes is not None:
            (self._notes / f"{key[0]}.{key[1]}").unlink(missing_ok=True)


def _read_note(path: Path) -> _ShippingPosition:
    """Return the stored position; by default the beginning."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=_ShippingPosition)
    except (OSError, msgspec.DecodeError):
        return _ShippingPosition()


def _cut(text: str) -> tuple[str, int]:
    """Return the text, cut to ``LINE_BYTES``, and its size in bytes."""
    if text.isascii() and len(text) <= LINE_BYTES:
        return text, len(text)
    # A lone surrogate cannot be encoded.
    whole = text.encode("utf-8", "replace")
    if len(whole) <= LINE_BYTES:
        return whole.decode(), len(whole)
    return whole[:LINE_BYTES].decode("utf-8", "ignore") + CUT_MARK, LINE_BYTES + len(CUT_MARK)
