"""The queue as a list in Redis (seed S4.19): producers LPUSH, consumers take from the right.

RPOP alone would lose what it took when the consumer dies (seed S4.22). Here an entry moves, in one
step, to a hash of the consumer's own, and leaves that when it is settled. A consumer holds a lease;
when that ends, ``rescue`` puts back what it had. Programs of other make may LPUSH to the list and
BRPOP from it meanwhile.

Entries with a priority of 1 to 9 lie in lists of their own, ``<key>:1`` to ``<key>:9``, the
highest is taken first; a foreign consumer names them all: ``BRPOP <key>:9 ... <key>:1 <key> 5``.
"""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import Any, Final

import redis

from apps.requeststore.engine.errors import BadEntry, StoreUnavailable
from apps.requeststore.queues import redis_scripts as scripts
from apps.requeststore.queues.base import QueueStats, Taken
from apps.requeststore.queues.burying import Bury, BuryInRedis, hand_over
from apps.requeststore.queues.entries import level_of, read_entry, write_entry
from apps.requeststore.queues.redis_server import WAIT_SECONDS, RedisServer
from apps.requeststore.stores.base import Entry

logger = logging.getLogger(__name__)

_MOST_AT_ONCE: Final = 1000
# One consumer never has more: what it had is put back in one step.
MOST_TAKEN: Final = 10_000
_KNOWN_MILLISECONDS: Final = 24 * 3600 * 1000


class RedisListQueue:
    """See ``base.RequestQueue``. Redis 6.2 or newer.

    ``settle`` and ``requeue`` do not raise: without a server they are remembered, and said again
    when there is one. Junk goes to ``bury``.
    """

    def __init__(
        self, server: RedisServer, key: str, *, consumer: str, bury: Bury | None = None
    ) -> None:
        self._server = server
        self._client = server.client
        self._key = key
        self._bury = bury or BuryInRedis(server.client)
        # A name for each life: what an earlier life of this process took is not this one's.
        self._consumer = f"{consumer}:{secrets.token_hex(6)}"
        self._keys = (
            *(f"{key}:{level}" for level in range(scripts.LEVELS - 1, 0, -1)),
            key,
            f"{key}:consumers",
            f"{key}:taken:{self._consumer}",
            f"{key}:waiting",
        )
        self._scripts = {text: self._client.register_script(text) for text in scripts.ALL}
        # One thread at a time takes, or looks what was taken.
        self._talking = threading.Lock()
        self._state = threading.Lock()
        self._next = 1
        # Taken, and in the hands of our caller; what is spare is in nobody's.
        self._out: set[int] = set()
        self._spare: deque[tuple[int, bytes]] = deque()
        # What the server has to hear of yet, and junk that could not be buried yet.
        self._settled: set[int] = set()
        self._returned: set[int] = set()
        self._junk: dict[int, tuple[bytes, str]] = {}
        # After an error nobody knows what the server has done: look before anything else.
        self._unsure = False
        self._leased = False
        self._closed = False
        server.attach(self)

    def push(self, entries: Sequence[Entry], *, priority: int = 0) -> None:
        """See ``base.RequestQueue``."""
        level = level_of(priority)
        bodies = [write_entry(entry) for entry in entries]
        with self._server.errors():
            for start in range(0, len(bodies), _MOST_AT_ONCE):
                part = bodies[start : start + _MOST_AT_ONCE]
                if level:
                    self._run(scripts.PUSH, scripts.LEVELS - level, *part)
                else:
                    self._client.lpush(self._key, *part)

    def take(self, number: int, *, timeout: float) -> list[Taken]:
        """See ``base.RequestQueue``."""
        deadline = time.monotonic() + timeout
        while True:
            with self._server.errors():
                wait = max(0.0, min(deadline - time.monotonic(), WAIT_SECONDS))
                found = self._take(number, wait)
                if found:
                    return found
                if wait <= 0.001:
                    return []
                if self._room() > 0:
                    self._wait(wait)
                    continue
            # It has all that one consumer may have: somebody must settle first.
            time.sleep(min(wait, 0.05))

    def settle(self, taken: Sequence[Taken]) -> None:
        """See ``base.RequestQueue``."""
        with self._state:
            self._settled |= self._mine(taken)
        self._report()

    def requeue(self, taken: Sequence[Taken]) -> None:
        """See ``base.RequestQueue``."""
        with self._state:
            self._returned |= self._mine(taken)
        self._report()

    def rescue(self) -> int:
        """See ``base.RequestQueue``."""
        prefix = f"{self._key}:taken:"
        moved: int = 0
        with self._server.errors():
            while True:
                some = self._run(scripts.RESCUE, prefix, _KNOWN_MILLISECONDS, _MOST_AT_ONCE)
                moved += int(some)
                if some < _MOST_AT_ONCE:
                    break
            if not isinstance(self._bury, BuryInRedis):
                try:
                    hand_over(self._client, self._key, self._bury)
                except StoreUnavailable as error:
                    logger.warning("%s: dead letters have to wait: %s", self._key, error)
        return moved

    def stats(self) -> QueueStats:
        """See ``base.RequestQueue``; the memory is the server's own estimate, of the lists."""
        with self._server.errors():
            waiting, taken = self._run(scripts.COUNT, f"{self._key}:taken:")
            try:
                with self._client.pipeline(transaction=False) as pipeline:
                    for key in self._keys[: scripts.LEVELS]:
                        pipeline.memory_usage(key, samples=5)
                    memory = sum(each or 0 for each in pipeline.execute())
            except redis.ResponseError:
                memory = None  # some who rent out Redis do not let one ask
        return QueueStats(waiting, taken, memory)

    def clear(self) -> int:
        """See ``base.RequestQueue``."""
        with self._server.errors():
            return int(self._run(scripts.CLEAR))

    def close(self) -> None:
        """See ``base.RequestQueue``; without a server the end of the lease does the same."""
        if self._closed:
            return
        self._closed = True
        self._server.let_go(self)
        with self._talking:
            self._bury_junk()
            self._report()
            try:
                if self._leased:
                    self._run(scripts.RELEASE, self._consumer)
            except (redis.RedisError, OSError) as error:
                logger.warning("%s; its lease will end", self._server.unavailable(error))
            self._out.clear()
            self._spare.clear()
        self._server.detach(self)

    def renew(self) -> None:
        """See ``redis_server.Leaseholder``."""
        self._send_reports()
        self._ask(0, 0.0)

    # --- taking ---------------------------------------------------------------------------------

    def _take(self, number: int, wait: float) -> list[Taken]:
        with self._talking:
            if self._closed:
                raise StoreUnavailable("this queue is closed")
            self._look()
            count = min(number, self._room(), _MOST_AT_ONCE)
            if not self._spare and count > 0:
                self._fetch(count, wait)
            found: list[Taken] = []
            while self._spare and len(found) < number:
                one = self._read(*self._spare.popleft())
                if one is not None:
                    found.append(one)
            if self._junk:
                self._bury_junk()
            return found

    def _fetch(self, count: int, wait: float) -> None:
        if not self._leased:
            # Before the first entry is ours, so that no one takes it back before it is read.
            self._server.keep(self)
            self._leased = True
        first = self._next
        self._next += count
        try:
            values = self._ask(count, wait, first)
        except (redis.RedisError, OSError):
            self._unsure = True
            raise
        self._spare.extend(enumerate(values, first))

    def _read(self, number: int, value: bytes) -> Taken | None:
        """The entry of this, or None if it is none."""
        try:
            entry = read_entry(value)
        except BadEntry as error:
            logger.warning("%s: a dead letter: %s", self._key, error)
            self._junk[number] = (value, str(error))
            return None
        with self._state:
            self._out.add(number)
        return Taken(entry, number)

    def _bury_junk(self) -> None:
        """What cannot be buried now stays in our hash; it must not keep others waiting."""
        for number, (value, reason) in list(self._junk.items()):
            try:
                self._bury(self._key, value, reason)
            except (StoreUnavailable, redis.RedisError, OSError) as error:
                logger.warning("%s: a dead letter has to wait: %s", self._key, error)
                return
            del self._junk[number]
            with self._state:
                self._settled.add(number)
        self._report()

    def _look(self) -> None:
        """After an error: what our own hash holds beyond what is out was taken, and not seen."""
        self._send_reports()
        if not self._unsure:
            return
        with self._state:
            known = self._out | self._settled | self._returned | self._junk.keys()
        known |= {number for number, _ in self._spare}
        # Asked after that: what another thread settles meanwhile is known, or gone.
        own = {int(number): value for number, value in self._client.hgetall(self._keys[11]).items()}
        self._spare.extend(
            (number, own[number][1:]) for number in sorted(own) if number not in known
        )
        self._unsure = False

    def _wait(self, seconds: float) -> None:
        """Until the plain list has an entry, which goes back where it was in the same step."""
        self._client.execute_command(
            "BLMOVE", self._key, self._key, "RIGHT", "RIGHT", f"{max(seconds, 0.001):.3f}"
        )

    def _ask(self, count: int, wait: float, first: int = 0) -> list[bytes]:
        lease = int(self._server.lease_seconds * 1000)
        found: list[bytes] = self._run(
            scripts.TAKE, self._consumer, lease, count, first, int(wait * 1000)
        )
        return found

    def _room(self) -> int:
        with self._state:
            unknown = len(self._settled) + len(self._returned) + len(self._junk)
            return MOST_TAKEN - len(self._out) - unknown

    # --- ending ---------------------------------------------------------------------------------

    def _mine(self, taken: Sequence[Taken]) -> set[int]:
        """Their numbers; those that were ended before are left out."""
        numbers = {each.token for each in taken if isinstance(each.token, int)} & self._out
        self._out -= numbers
        return numbers

    def _report(self) -> None:
        try:
            self._send_reports()
        except (redis.RedisError, OSError) as error:
            logger.warning("%s; it will be said again", self._server.unavailable(error))

    def _send_reports(self) -> None:
        """Each may be said twice: a number is given once, and is gone or is not."""
        with self._state:
            settled, returned = list(self._settled), sorted(self._returned, reverse=True)
        for start in range(0, len(settled), _MOST_AT_ONCE):
            part = settled[start : start + _MOST_AT_ONCE]
            self._client.hdel(self._keys[11], *part)
            with self._state:
                self._settled.difference_update(part)
        for start in range(0, len(returned), _MOST_AT_ONCE):
            part = returned[start : start + _MOST_AT_ONCE]
            self._run(scripts.GIVE_BACK, *part)
            with self._state:
                self._returned.difference_update(part)

    def _run(self, script: str, *arguments: bytes | str | int) -> Any:
        return self._scripts[script](keys=self._keys, args=arguments)
