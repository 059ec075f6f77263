"""Queue as a Redis list: see ``yardkit.redis_list`` for keys and leases.

Entries with a priority of 1 to 9 are in lists of their own, ``<key>:1`` to ``<key>:9``; the
highest is taken first. A foreign consumer names them all: ``BRPOP <key>:9 ... <key>:1 <key> 5``.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import redis

from apps.requeststore.engine.entity import MAX_PRIORITY
from apps.requeststore.engine.errors import BadEntry, RequestStoreUnavailable
from apps.requeststore.queues.base import QueueStats, TakenEntry
from apps.requeststore.queues.dead_letters import (
    DeadLetterFunction,
    RedisDeadLetters,
    forward_dead_letters,
)
from apps.requeststore.queues.entries import level_of, read_entry, write_entry
from apps.requeststore.stores.base import QueueEntry
from yardkit.redis_list import REDIS_ERRORS, ListClosed, ReliableList, TakenValue
from yardkit.redis_server import RedisServer

logger = logging.getLogger(__name__)

# Entries of a dead consumer requeued at a time.
MOST_TAKEN: Final = 10_000


class RedisListQueue:
    """See ``base.RequestQueue``. Redis 6.2 or newer.

    ``settle`` and ``requeue`` do not raise: without a server they are repeated later. Malformed
    entries go to ``dead_letter``.
    """

    def __init__(
        self,
        server: RedisServer,
        key: str,
        *,
        consumer: str,
        dead_letter: DeadLetterFunction | None = None,
    ) -> None:
        self._server = server
        self._client = server.client
        self._key = key
        self._bury = dead_letter or RedisDeadLetters(server.client)
        self._list = ReliableList(
            server, key, consumer=consumer, levels=MAX_PRIORITY + 1, most_taken=MOST_TAKEN
        )
        # Malformed entries by number, with the reason, until they are dead-lettered.
        self._junk: dict[int, tuple[bytes, str]] = {}
        self._burying = threading.Lock()

    def push(self, entries: Sequence[QueueEntry], *, priority: int = 0) -> None:
        """See ``base.RequestQueue``."""
        with self._errors():
            self._list.push([write_entry(entry) for entry in entries], level=level_of(priority))

    def take(self, number: int, *, timeout: float) -> list[TakenEntry]:
        """See ``base.RequestQueue``."""
        deadline = time.monotonic() + timeout
        while True:
            with self._errors():
                values = self._list.take(number, timeout=max(0.0, deadline - time.monotonic()))
            entries = [self._read(value) for value in values]
            self._dead_letter_malformed()
            valid = [entry for entry in entries if entry is not None]
            if valid or time.monotonic() >= deadline:
                return valid

    def settle(self, taken: Sequence[TakenEntry]) -> None:
        """See ``base.RequestQueue``."""
        self._settle(entry.token for entry in taken)

    def requeue(self, taken: Sequence[TakenEntry]) -> None:
        """See ``base.RequestQueue``."""
        with self._repeated_later():
            self._list.give_back(entry.token for entry in taken)

    def rescue(self) -> int:
        """See ``base.RequestQueue``."""
        with self._errors():
            moved = self._list.rescue()
            if not isinstance(self._bury, RedisDeadLetters):
                try:
                    forward_dead_letters(self._client, self._key, self._bury)
                except RequestStoreUnavailable as error:
                    logger.warning("%s: dead letters have to wait: %s", self._key, error)
        return moved

    def stats(self) -> QueueStats:
        """See ``base.RequestQueue``; the memory is the server's estimate for the lists."""
        with self._errors():
            waiting, taken = self._list.counts()
            try:
                with self._client.pipeline(transaction=False) as pipeline:
                    for key in self._list.lists:
                        pipeline.memory_usage(key, samples=5)
                    memory = sum(size or 0 for size in pipeline.execute())
            except redis.ResponseError:
                memory = None  # hosted Redis may forbid the command
        return QueueStats(waiting, taken, memory)

    def clear(self) -> int:
        """See ``base.RequestQueue``."""
        with self._errors():
            return self._list.clear()

    def close(self) -> None:
        """See ``base.RequestQueue``; without a server the end of the lease has the same effect."""
        self._dead_letter_malformed()
        try:
            self._list.close()
        except REDIS_ERRORS as error:
            logger.warning("%s; its lease will end", self._unavailable(error))

    def _read(self, taken: TakenValue) -> TakenEntry | None:
        try:
            return TakenEntry(read_entry(taken.value), taken.number)
        except BadEntry as error:
            logger.warning("%s: a dead letter: %s", self._key, error)
            with self._burying:
                self._junk[taken.number] = (taken.value, str(error))
            return None

    def _dead_letter_malformed(self) -> None:
        """Dead-letter malformed entries; on a failure they stay taken until the next ``take``."""
        if not self._junk:
            return
        buried = []
        with self._burying:
            for number, (value, reason) in list(self._junk.items()):
                try:
                    self._bury(self._key, value, reason)
                except (RequestStoreUnavailable, *REDIS_ERRORS) as error:
                    logger.warning("%s: a dead letter has to wait: %s", self._key, error)
                    break
                del self._junk[number]
                buried.append(number)
        self._settle(buried)

    def _settle(self, numbers: Iterable[object]) -> None:
        with self._repeated_later():
            self._list.settle(numbers)

    @contextlib.contextmanager
    def _repeated_later(self) -> Iterator[None]:
        try:
            yield
        except REDIS_ERRORS as error:
            logger.warning("%s; it will be said again", self._unavailable(error))

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except ListClosed:
            raise RequestStoreUnavailable("this queue is closed") from None
        except REDIS_ERRORS as error:
            raise self._unavailable(error) from error

    def _unavailable(self, error: BaseException) -> RequestStoreUnavailable:
        return RequestStoreUnavailable(
            f"Redis at {self._server.address}: {self._server.text(error)}"
        )
