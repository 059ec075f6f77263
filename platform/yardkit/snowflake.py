"""64-bit ids that rise and never repeat, even if the clock jumps or the process is killed.

An id is, from the top: one bit 0, 41 bits of milliseconds since 2024 (enough until 2093), 10 bits
of worker, 12 bits of sequence. The milliseconds are those of a logical clock that follows the
wall clock and never goes back. A high-water mark 2 s ahead of the logical clock is stored before
the clock reaches it, and a restarted worker continues from the mark, so no id repeats whatever the
wall clock says. One process at a time may use a worker id; a lease outside this module assigns it.
"""

from __future__ import annotations

import os
import threading
from datetime import UTC, datetime, timedelta
from typing import Final, Protocol

from yardkit.clock import Clock, SystemClock

EPOCH: Final = datetime(2024, 1, 1, tzinfo=UTC)
EPOCH_MS: Final = int(EPOCH.timestamp() * 1000)
MAX_WORKER: Final = 1023
RESERVE_MS: Final = 2000

_SEQUENCE_BITS: Final = 12
_WORKER_BITS: Final = 10
_TIME_BITS: Final = 41
_PER_MS: Final = 1 << _SEQUENCE_BITS
_TIME_SHIFT: Final = _SEQUENCE_BITS + _WORKER_BITS
_END_MS: Final = EPOCH_MS + (1 << _TIME_BITS)

_forks = 0


def _count_fork() -> None:
    global _forks
    _forks += 1


os.register_at_fork(after_in_child=_count_fork)


class SnowflakeError(RuntimeError):
    """No id can be issued; the text says why."""


class MarkStore(Protocol):
    """Durable store of high-water marks. A mark is a Unix time in milliseconds."""

    def load(self, worker: int) -> int:
        """Return the last mark saved for this worker, 0 for none."""

    def save(self, worker: int, ms: int) -> None:
        """Save a mark; it is durable on return."""


class Snowflake:
    """Issues ids for one worker. Thread-safe.

    The first id needs one write to the store; after that there is one write for each 2 s of
    logical time in which ids are issued. An error of the store is raised by ``next``; no id is
    issued beyond the mark, and the next call retries.

    ``rolling`` continues the sequence from one millisecond to the next instead of restarting at 0:
    otherwise occasional ids would all end in twelve zero bits, and ``id mod n`` would put them all
    into one shard.
    """

    def __init__(
        self, worker: int, store: MarkStore, *, clock: Clock | None = None, rolling: bool = False
    ) -> None:
        if not 0 <= worker <= MAX_WORKER:
            raise ValueError(f"worker {worker} is outside 0 to {MAX_WORKER}")
        self.worker = worker
        self._store = store
        self._clock = clock or SystemClock()
        self._rolling = rolling
        self._lock = threading.Lock()
        self._forks = _forks
        # Every earlier id is below the mark, so the mark itself is free.
        self._mark = store.load(worker)
        self._ms = max(self._mark, EPOCH_MS) - 1
        self._sequence = _PER_MS - 1

    def next(self) -> int:
        """Return an id larger than every earlier one."""
        return self.next_many(1)[0]

    def next_many(self, count: int) -> list[int]:
        """Return ``count`` ids in rising order; [] for 0.

        Raises:
            SnowflakeError: after a fork (both processes would issue the same ids), or past 2093.
        """
        ids: list[int] = []
        with self._lock:
            if self._forks != _forks:
                raise SnowflakeError("made before a fork; make one generator in each process")
            while len(ids) < count:
                first = self._advance()
                some = min(count - len(ids), _PER_MS - first)
                base = (self._ms - EPOCH_MS) << _TIME_SHIFT | self.worker << _SEQUENCE_BITS
                ids.extend(range(base | first, (base | first) + some))
                self._sequence = first + some - 1
        return ids

    def _advance(self) -> int:
        """Move to the next free (millisecond, sequence) below a mark; return the sequence."""
        now = int(self._clock.time() * 1000)
        ms, sequence = self._ms, self._sequence + 1
        if now > ms:
            ms, sequence = now, sequence % _PER_MS if self._rolling else 0
        elif sequence >= _PER_MS:
            ms, sequence = ms + 1, 0
        if ms >= _END_MS:
            raise SnowflakeError("the clock is past what an id can hold (2093)")
        if ms >= self._mark:
            self._store.save(self.worker, ms + RESERVE_MS)
            self._mark = ms + RESERVE_MS
        self._ms, self._sequence = ms, sequence
        return sequence


def decode(number: int) -> tuple[datetime, int, int]:
    """Return the (time, worker, sequence) of an id. Raises ``ValueError`` for an invalid id."""
    if not 0 <= number < 1 << 63:
        raise ValueError(f"{number} is no id")
    ms = number >> _TIME_SHIFT
    worker = number >> _SEQUENCE_BITS & MAX_WORKER
    return EPOCH + timedelta(milliseconds=ms), worker, number & (_PER_MS - 1)
