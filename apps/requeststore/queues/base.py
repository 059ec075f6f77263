"""Interface of request queues; one contract test covers every adapter.

An entry is the JSON ``{"id": "123", "biz": "news", "ts": 1700000000000}``, with the ID as text
because many readers lose digits beyond 2^53; readers accept a number, too. The store is the truth:
a duplicate entry is leased once, and a lost one is queued again by upkeep.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from apps.requeststore.stores.base import QueueEntry


class TakenEntry(msgspec.Struct, frozen=True):
    """Entry held by this consumer until it is settled. ``token`` belongs to the adapter."""

    entry: QueueEntry
    token: object


class QueueStats(msgspec.Struct, frozen=True):
    """Lengths: ``waiting`` in the queue, ``taken`` by consumers and not settled. None: unknown.

    ``waiting`` includes entries of expired requests until upkeep removes them.
    """

    waiting: int
    taken: int | None = None
    memory_bytes: int | None = None


class RequestQueue(Protocol):
    """Queue with a physical name. Thread-safe. Raises ``RequestStoreUnavailable``.

    ``settle``, ``requeue`` and ``close`` do not raise: without a server they are repeated later,
    or the server finds out by itself. The store ignores the duplicates of that.
    """

    def push(self, entries: Sequence[QueueEntry], *, priority: int = 0) -> None:
        """Append; durable on return. First in, first out."""

    def take(self, number: int, *, timeout: float) -> list[TakenEntry]:
        """Return up to ``number`` entries as soon as there is one; [] after ``timeout`` seconds.

        A malformed entry becomes a dead letter with its reason and is not returned.
        """

    def settle(self, taken: Sequence[TakenEntry]) -> None:
        """Remove entries that were taken."""

    def requeue(self, taken: Sequence[TakenEntry]) -> None:
        """Put entries back in front of the waiting ones."""

    def rescue(self) -> int:
        """Requeue the entries of dead consumers; return how many. Cheap."""

    def stats(self) -> QueueStats:
        """Return the lengths."""

    def clear(self) -> int:
        """Delete all waiting entries; return how many."""

    def close(self) -> None:
        """Requeue entries that were taken and not settled."""
