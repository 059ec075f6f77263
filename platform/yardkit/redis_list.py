"""Redis list as a reliable queue: taken values survive the consumer's process.

Producers ``LPUSH``, consumers take from the right. ``RPOP`` alone would lose the taken value when
the consumer dies; here a value moves, in one step, to a hash of the consumer and leaves that hash
only when it is settled. Each consumer holds a lease; when the lease ends, any other consumer moves
the values back in their order. Other programs may ``LPUSH`` and ``BRPOP`` meanwhile.

Needs Redis 6.2 or newer, and all keys on one server (no Redis Cluster). Keys:

- ``KEY``, and ``KEY:1`` to ``KEY:9`` for the priority levels above 0: lists of waiting values.
- ``KEY:taken:CONSUMER``: hash of the taken values, number -> digit of the level, then the value.
- ``KEY:consumers``: sorted set, consumer by the end of its lease in milliseconds.
- ``KEY:waiting``: sorted set of consumers that wait for values; only where there are levels.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import redis

from yardkit import redis_list_scripts as scripts
from yardkit.redis_server import WAIT_SECONDS, RedisServer

# Limit of values moved by one script: Redis serves no other client meanwhile.
_MOST_AT_ONCE: Final = 1000
# Time that a consumer's name is kept after its lease: a frozen process may resume and take.
_KNOWN_MILLISECONDS: Final = 24 * 3600 * 1000
# Minimum wait for another thread that is taking: without it a full list looks empty.
_SHARE_SECONDS: Final = 0.1
REDIS_ERRORS: Final = (redis.RedisError, OSError)


class ListClosed(RuntimeError):
    """``take`` was called on a list that is closed."""


@dataclass(frozen=True, slots=True)
class TakenValue:
    """A value taken by this consumer; ``number`` identifies it for ``settle`` and ``give_back``."""

    number: int
    value: bytes
    # The reply that carried it was lost, so the server moved it earlier than this take.
    redelivered: bool


class ReliableList:
    """One consumer of the list ``key``. Thread-safe. Methods raise ``REDIS_ERRORS``.

    Args:
        consumer: shown in the names of keys; made unique for each instance.
        levels: number of priority levels, 1 to 10.
        most_taken: the most values this consumer holds unsettled.
        rescues: move back what dead consumers hold, at the first take and at each renewal.
    """

    def __init__(
        self,
        server: RedisServer,
        key: str,
        *,
        consumer: str,
        levels: int = 1,
        most_taken: int,
        rescues: bool = False,
    ) -> None:
        self.key = key
        self.consumer = f"{consumer}:{secrets.token_hex(6)}"
        self.lists = (*(f"{key}:{level}" for level in range(levels - 1, 0, -1)), key)
        # Number of settled values that another consumer had received meanwhile.
        self.late = 0
        self._server = server
        self._client = server.client
        self._most_taken = most_taken
        self._rescues = rescues
        self._taken_key = f"{key}:taken:{self.consumer}"
        self._keys = (*self.lists, f"{key}:consumers", self._taken_key, f"{key}:waiting")
        self._scripts = {text: self._client.register_script(text) for text in scripts.ALL}
        # Locks: of taking, of the lease, of reporting settled values, and of the fields below.
        self._taking = threading.Lock()
        self._leasing = threading.Lock()
        self._reporting = threading.Lock()
        self._state = threading.Lock()
        self._next = 1
        # Numbers held by the caller; recovered values wait in ``_spare``.
        self._out: set[int] = set()
        self._spare: deque[TakenValue] = deque()
        # Numbers that the server has not confirmed as settled or given back.
        self._settled: set[int] = set()
        self._returned: set[int] = set()
        self._repeats = False
        # A reply was lost: the server may have moved values that were not received.
        self._unsure = False
        self._leased = False
        self._closed = threading.Event()
        server.attach(self)

    def push(self, values: Sequence[bytes], *, level: int = 0) -> None:
        """Append; on return the server has them all."""
        for start in range(0, len(values), _MOST_AT_ONCE):
            part = values[start : start + _MOST_AT_ONCE]
            if level:
                self._run(scripts.PUSH, len(self.lists) - level, *part)
            else:
                self._client.lpush(self.key, *part)

    def take(self, most: int, *, timeout: float) -> list[TakenValue]:
        """Return up to ``most`` values, waiting up to ``timeout`` seconds for the first.

        Raises ``ListClosed``, too.
        """
        deadline = time.monotonic() + timeout
        while True:
            wait = max(0.0, min(deadline - time.monotonic(), WAIT_SECONDS))
            values = self._take(most, wait)
            if values or wait <= 0.001:
                return values
            if self._room() > 0:
                self._wait(wait)
            else:
                self._closed.wait(min(wait, 0.05))

    def settle(self, numbers: Iterable[object]) -> None:
        """Remove finished values. After an error they are remembered and sent again."""
        with self._state:
            self._settled |= self._release(numbers)
        self._send_reports()

    def give_back(self, numbers: Iterable[object]) -> None:
        """Move values back, in front of the waiting ones; after an error as ``settle``."""
        with self._state:
            self._returned |= self._release(numbers)
        self._send_reports()

    def rescue(self) -> int:
        """Return values of consumers without a lease to the list; return their number."""
        moved = 0
        while True:
            some = self._run(
                scripts.RESCUE, f"{self.key}:taken:", _KNOWN_MILLISECONDS, _MOST_AT_ONCE
            )
            moved += int(some)
            if some < _MOST_AT_ONCE or self._closed.is_set():
                return moved

    def depth(self) -> int:
        """Return the number of values waiting on level 0."""
        return int(self._client.llen(self.key)) + len(self._spare)

    def counts(self) -> tuple[int, int]:
        """Return the numbers of waiting values on all levels and of all taken values."""
        waiting, taken = self._run(scripts.COUNT, f"{self.key}:taken:")
        return int(waiting), int(taken)

    def clear(self) -> int:
        """Delete the waiting values; return how many."""
        return int(self._run(scripts.CLEAR))

    def renew(self) -> None:
        """Renew the lease once; called by the thread of ``RedisServer``."""
        with self._leasing:
            if self._closed.is_set():
                return
            self._send_reports()
            self._ask(0, 0.0)
            if self._rescues:
                self.rescue()

    def close(self) -> None:
        """Return unsettled values. After an error the end of the lease does that.

        Settled values are reported first: otherwise they would be returned, too.
        """
        if self._closed.is_set():
            return
        self._closed.set()
        self._server.let_go(self)
        try:
            with self._taking, self._leasing:
                self._send_reports()
                if self._leased:
                    self._run(scripts.RELEASE, self.consumer)
        finally:
            self._out.clear()
            self._spare.clear()
            self._server.detach(self)

    # --- taking ---------------------------------------------------------------------------------

    def _take(self, most: int, wait: float) -> list[TakenValue]:
        if not self._taking.acquire(timeout=max(wait, _SHARE_SECONDS)):
            return []
        try:
            if self._closed.is_set():
                raise ListClosed(self.key)
            self._find_unseen()
            count = min(most, self._room(), _MOST_AT_ONCE)
            if count < 1:
                return []
            if not self._spare:
                self._fetch(count, wait)
            values = [self._spare.popleft() for _ in range(min(count, len(self._spare)))]
            with self._state:
                self._out.update(taken.number for taken in values)
            return values
        finally:
            self._taking.release()

    def _fetch(self, count: int, wait: float) -> None:
        if not self._leased:
            # Before the first value is taken: without a lease another consumer would rescue it at
            # once.
            self._server.keep(self)
            self._leased = True
            if self._rescues:
                self.rescue()
        first = self._next
        self._next += count
        try:
            values = self._ask(count, wait if len(self.lists) > 1 else 0.0, first)
        except REDIS_ERRORS:
            self._unsure = True
            raise
        self._spare.extend(
            TakenValue(number, value, redelivered=False)
            for number, value in enumerate(values, first)
        )

    def _find_unseen(self) -> None:
        """Return values that the server moved to this consumer in a call whose reply was lost."""
        self._send_reports()
        if not self._unsure:
            return
        with self._state:
            known = self._out | self._settled | self._returned
        known |= {taken.number for taken in self._spare}
        # Read after ``known``: a value that another thread settles in between is known, or gone.
        own = {int(number): text for number, text in self._client.hgetall(self._taken_key).items()}
        self._spare.extend(
            TakenValue(number, own[number][1:], redelivered=True)
            for number in sorted(own.keys() - known)
        )
        self._unsure = False

    def _wait(self, seconds: float) -> None:
        """Wait until level 0 has a value, which stays where it is."""
        self._client.execute_command(
            "BLMOVE", self.key, self.key, "RIGHT", "RIGHT", f"{max(seconds, 0.001):.3f}"
        )

    def _ask(self, count: int, wait: float, first: int = 0) -> list[bytes]:
        lease = int(self._server.lease_seconds * 1000)
        values: list[bytes] = self._run(
            scripts.TAKE, self.consumer, lease, count, first, int(wait * 1000)
        )
        return values

    def _room(self) -> int:
        with self._state:
            return self._most_taken - sum(map(len, (self._out, self._settled, self._returned)))

    # --- settling -------------------------------------------------------------------------------

    def _release(self, numbers: Iterable[object]) -> set[int]:
        """Remove ``numbers`` from those that the caller holds; return those removed."""
        given = {number for number in numbers if isinstance(number, int)} & self._out
        self._out -= given
        return given

    def _send_reports(self) -> None:
        """Report settled and returned values. Repeating a report is harmless."""
        with self._reporting:
            with self._state:
                settled, returned = list(self._settled), sorted(self._returned, reverse=True)
            if not settled and not returned:
                return
            # Values reported before whose reply was lost may be gone; they are not late.
            counts, self._repeats = not self._repeats, True
            for part in _parts(settled):
                removed = self._client.hdel(self._taken_key, *part)
                self.late += len(part) - removed if counts else 0
                with self._state:
                    self._settled.difference_update(part)
            for part in _parts(returned):
                self._run(scripts.GIVE_BACK, *part)
                with self._state:
                    self._returned.difference_update(part)
            self._repeats = False

    def _run(self, script: str, *arguments: bytes | str | int) -> Any:
        return self._scripts[script](keys=self._keys, args=arguments)


def _parts(numbers: list[int]) -> Iterable[list[int]]:
    for start in range(0, len(numbers), _MOST_AT_ONCE):
        yield numbers[start : start + _MOST_AT_ONCE]
