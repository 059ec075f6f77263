"""Event counters by second, in any process, at low cost.

    rates.add("requests.created", project=7, label="news", amount=500)    # any thread
    for message in rates.reports(now): publish(message); rates.sent(message)

A finished second becomes part of a ``Samples`` message, which stays the same until it is confirmed;
receivers de-duplicate by (sender, boot, seq). Memory is bounded: unconfirmed counts older than two
minutes are kept by the minute, than two hours by the hour, than two days in the oldest hour.
``coarsened`` counts them; no count is dropped.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

from yardkit.protocol import SampleKind, SampleNote, Samples

MINUTE: Final = 60
HOUR: Final = 3600
# Limit of unsent spans of each length; beyond it the oldest is merged into a longer one.
WAITING_SECONDS: Final = 120
WAITING_MINUTES: Final = 120
WAITING_HOURS: Final = 48
# Limit of published and unconfirmed messages; their content is fixed.
UNCONFIRMED: Final = 30
NOTES_A_MESSAGE: Final = 2000

# (series, project, label)
Key = tuple[str, int, str]


class _Number:
    """One value of one series in one span."""

    __slots__ = ("count", "highest", "kind", "value")

    def __init__(self, kind: SampleKind) -> None:
        self.kind = kind
        self.value = 0.0
        self.count = 0
        self.highest = 0.0

    def read(self, value: float) -> None:
        self.highest = value if self.count == 0 else max(self.highest, value)
        self.value += value
        self.count += 1

    def merge(self, other: _Number) -> None:
        self.highest = other.highest if self.count == 0 else max(self.highest, other.highest)
        self.value += other.value
        self.count += other.count


# By the start of the span.
_Spans = dict[int, dict[Key, _Number]]


class Rates:
    """Unconfirmed counts of one process. Thread-safe.

    ``sender`` names the process, ``boot`` its start; together they are unique.
    """

    def __init__(self, sender: str, boot: str, clock: Callable[[], float] = time.time) -> None:
        self.sender = sender
        self.boot = boot
        self.coarsened = 0
        self._clock = clock
        self._lock = threading.Lock()
        self._second = 0
        # Counts of the current second: sums as bare numbers, for speed.
        self._sums: dict[Key, float] = {}
        self._gauges: dict[Key, _Number] = {}
        self._spans: dict[int, _Spans] = {1: {}, MINUTE: {}, HOUR: {}}
        self._unconfirmed: list[Samples] = []
        self._seq = 0

    def add(self, series: str, project: int, label: str, amount: float = 1) -> None:
        """Count ``amount`` events now."""
        key = (series, project, label)
        second = int(self._clock())
        with self._lock:
            if second != self._second:
                self._turn(second)
            self._sums[key] = self._sums.get(key, 0) + amount

    def gauge(self, series: str, project: int, label: str, value: float) -> None:
        """Record the current value of a gauge."""
        key = (series, project, label)
        second = int(self._clock())
        with self._lock:
            if second != self._second:
                self._turn(second)
            number = self._gauges.get(key)
            if number is None:
                number = self._gauges[key] = _Number(SampleKind.GAUGE)
            number.read(value)

    def reports(self, *, ending: bool = False) -> list[Samples]:
        """Return the messages to publish, oldest first: unconfirmed and new ones.

        ``ending``: include the unfinished second. Unconfirmed messages keep their ``seq`` and
        content.
        """
        now = self._clock()
        with self._lock:
            if ending or int(now) != self._second:
                self._turn(int(now))
            self._collect()
            return [_sent_at(message, now) for message in self._unconfirmed]

    def sent(self, messages: list[Samples]) -> None:
        """Note confirmed messages."""
        done = {message.seq for message in messages}
        with self._lock:
            self._unconfirmed = [m for m in self._unconfirmed if m.seq not in done]

    @property
    def waiting(self) -> bool:
        """Return whether anything is unconfirmed or unpublished."""
        with self._lock:
            return bool(
                self._sums or self._gauges or self._unconfirmed or any(self._spans.values())
            )

    def _turn(self, second: int) -> None:
        """Start a new second, also after the clock was set."""
        if self._sums or self._gauges:
            numbers = self._spans[1].setdefault(self._second, {})
            for key, amount in self._sums.items():
                number = numbers.setdefault(key, _Number(SampleKind.SUM))
                number.value += amount
                number.count += 1
            for key, gauge in self._gauges.items():
                numbers.setdefault(key, _Number(SampleKind.GAUGE)).merge(gauge)
            self._sums, self._gauges = {}, {}
            self._bound()
        self._second = second

    def _bound(self) -> None:
        self._coarsen(1, WAITING_SECONDS, MINUTE)
        self._coarsen(MINUTE, WAITING_MINUTES, HOUR)
        hours = self._spans[HOUR]
        while len(hours) > WAITING_HOURS:
            oldest, second = sorted(hours)[:2]
            _merge(hours.pop(oldest), hours[second])
            self.coarsened += 1

    def _coarsen(self, spread: int, most: int, into: int) -> None:
        spans = self._spans[spread]
        while len(spans) > most:
            start = min(spans)
            _merge(spans.pop(start), self._spans[into].setdefault(start - start % into, {}))
            self.coarsened += 1

    def _collect(self) -> None:
        """Build messages from spans within the limit of unconfirmed ones."""
        notes: list[SampleNote] = []
        for spread in (HOUR, MINUTE, 1):
            spans = self._spans[spread]
            while spans and len(self._unconfirmed) < UNCONFIRMED:
                start = min(spans)
                notes += [
                    SampleNote(
                        start, spread, *key, number.value, number.kind, number.count, number.highest
                    )
                    for key, number in spans.pop(start).items()
                ]
                while len(notes) >= NOTES_A_MESSAGE:
                    self._queue(notes[:NOTES_A_MESSAGE])
                    del notes[:NOTES_A_MESSAGE]
        if notes:
            self._queue(notes)

    def _queue(self, notes: list[SampleNote]) -> None:
        self._seq += 1
        self._unconfirmed.append(
            Samples(sender=self.sender, boot=self.boot, seq=self._seq, sent_at=0.0, samples=notes)
        )


def _merge(numbers: dict[Key, _Number], into: dict[Key, _Number]) -> None:
    for key, number in numbers.items():
        kept = into.get(key)
        if kept is None:
            into[key] = number
        else:
            kept.merge(number)


def _sent_at(message: Samples, now: float) -> Samples:
    return Samples(
        v=message.v,
        sender=message.sender,
        boot=message.boot,
        seq=message.seq,
        sent_at=now,
        samples=message.samples,
    )
