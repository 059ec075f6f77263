"""The port of a queue of requests (seed S4.19, S4.22): what one contract test holds.

An entry is the JSON ``{"id": "123", "biz": "news", "ts": 1700000000000}``: the id as a text, since
numbers beyond 2^53 lose digits in many readers. Readers accept the id as a number, too. The store
is the truth: an entry that comes twice is handed out once, one that got lost is found by the sweep.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from apps.requeststore.stores.base import Entry


class Taken(msgspec.Struct, frozen=True):
    """An entry that is this consumer's until it settles it. ``token`` is the adapter's own."""

    entry: Entry
    token: object


class QueueStats(msgspec.Struct, frozen=True):
    """``waiting`` in the queue, ``taken`` by consumers and not settled; None: cannot be told."""

    waiting: int
    taken: int | None = None
    memory_bytes: int | None = None


class RequestQueue(Protocol):
    """One queue, by its physical name. Thread-safe. Raises ``StoreUnavailable``.

    ``settle``, ``requeue`` and ``close`` do not: without a server they are said again later, or the
    server finds out by itself; what comes twice then is handed out once by the store.
    """

    def push(self, entries: Sequence[Entry], *, priority: int = 0) -> None:
        """Append; on return the server has them all. First in, first out."""

    def take(self, number: int, *, timeout: float) -> list[Taken]:
        """Up to ``number``, as soon as there is one; [] after ``timeout`` seconds without any.

        What is no entry at all is a dead letter by then, with its reason, and not in the answer.
        """

    def settle(self, taken: Sequence[Taken]) -> None:
        """Done with them, whatever became of them."""

    def requeue(self, taken: Sequence[Taken]) -> None:
        """Back into the queue, in front of what waits there; soon, if not at once."""

    def rescue(self) -> int:
        """Bring back what dead consumers had taken; how many. Cheap, for a sweep."""

    def stats(self) -> QueueStats:
        """How long it is."""

    def clear(self) -> int:
        """Delete what waits; how many that were."""

    def close(self) -> None:
        """Give back what was taken and not settled."""
