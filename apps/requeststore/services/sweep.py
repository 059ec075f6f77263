"""Sweeps over one shard: requeue, expire, delete."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from apps.requeststore.engine.placement import ShardPlace
from apps.requeststore.queues.base import RequestQueue, TakenEntry
from apps.requeststore.services.bindings import BoundBiz
from apps.requeststore.stores.base import Finish, QueueEntry, StorageNode, StoredRequest, TakeCode
from yardkit.failpoints import hit

# Seconds between storing and queueing before a request counts as an orphan.
ORPHAN_SECONDS: Final = 30
# Age (seconds) from which a queued request may count as forgotten; at least the retry delay of the
# biz plus a minute.
FORGOTTEN_SECONDS: Final = 600
LIMIT: Final = 1000
# Entries held at a time while searching for expired ones, and the wait for the first.
MOST_HELD: Final = 2000
FIRST_ENTRY_SECONDS: Final = 0.5


@dataclass(slots=True)
class UpkeepResult:
    """Numbers of requests, and of dropped queue entries."""

    orphans: int = 0
    overdue: int = 0
    given_up: int = 0
    forgotten: int = 0
    expired: int = 0
    dropped: int = 0
    deleted: int = 0
    closed: int = 0

    def __iadd__(self, other: UpkeepResult) -> UpkeepResult:
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        return self

    def __bool__(self) -> bool:
        return any(getattr(self, name) for name in self.__slots__)


def drop_expired(queue: RequestQueue, biz: str, *, cutoff: int, most: int) -> int:
    """Remove up to ``most`` entries of expired requests from a queue; return their number.

    The oldest entries come first, so they are taken from the head; entries of live requests go
    back in front. Where more than ``MOST_HELD`` of those are ahead (a busy higher priority), the
    expired ones behind them wait until those are gone.

    Args:
        queue: opened for this call, and closed by the caller: closing gives back what is held.
        cutoff: Unix ms; a request stored then or earlier has expired.

    Raises:
        RequestStoreUnavailable: the queue does not answer.
    """
    dropped, held, wait = 0, list[TakenEntry](), FIRST_ENTRY_SECONDS
    try:
        while dropped < most and len(held) < MOST_HELD:
            taken = queue.take(min(LIMIT, MOST_HELD), timeout=wait)
            if not taken:
                break
            expired = [
                entry for entry in taken if entry.entry.biz == biz and entry.entry.ts <= cutoff
            ]
            queue.settle(expired)
            dropped += len(expired)
            gone = {id(entry) for entry in expired}
            held += [entry for entry in taken if id(entry) not in gone]
            wait = 0.05
    finally:
        queue.requeue(held)
    return dropped


class Sweep:
    """Sweep of one shard at one time. Each method does a limited amount of work."""

    def __init__(
        self, bound: BoundBiz, place: ShardPlace, node: StorageNode, *, by: str, now: int
    ) -> None:
        self._bound = bound
        self._shard = place.shard
        self._node = node
        self._by = by
        self._now = now
        self._cutoff = bound.settings.cutoff(now)

    def orphans(self, queue: RequestQueue) -> int:
        """Queue requests that were stored and never queued; return how many."""
        requests = self._node.orphans(
            self._shard, before=self._now - ORPHAN_SECONDS * 1000, cutoff=self._cutoff, limit=LIMIT
        )
        return self._queue(queue, requests)

    def overdue(self, queue: RequestQueue) -> tuple[int, int]:
        """End leases past their deadline; return (requeued, failed after the last try)."""
        requests = self._node.overdue(
            self._shard, now=self._now, cutoff=self._cutoff, limit=LIMIT, by=self._by
        )
        hit("requests.after_overdue")
        most = self._bound.settings.max_tries
        hopeless = [request for request in requests if request.tries >= most]
        given_up = self._give_up(hopeless)
        again = [_entry(request) for request in requests if request.tries < most]
        return self._queue(queue, again), given_up

    def forgotten(self, queue: RequestQueue, limit: int) -> int:
        """Queue again up to ``limit`` requests that were queued long ago; return how many."""
        seconds = max(FORGOTTEN_SECONDS, self._bound.settings.retry_seconds + 60)
        requests = self._node.forgotten(
            self._shard,
            before=self._now - seconds * 1000,
            cutoff=self._cutoff,
            limit=min(limit, LIMIT),
        )
        return self._queue(queue, requests)

    def expire(self) -> int:
        """Mark expired requests; return how many."""
        done = self._node.expire(
            self._shard, cutoff=self._cutoff, limit=LIMIT, by=self._by, now=self._now
        )
        hit("requests.after_expire")
        return done

    def delete(self, closed_until: int) -> int:
        """Delete requests that are counted and past their retention; return how many."""
        before = min(closed_until, self._now - self._bound.settings.delete_after_seconds * 1000)
        done = self._node.delete(self._shard, before=max(before, 0), limit=LIMIT)
        hit("requests.after_delete")
        return done

    def _queue(self, queue: RequestQueue, entries: Sequence[QueueEntry]) -> int:
        if not entries:
            return 0
        # Requeued with the priority of the biz: reading their own ones would cost a query.
        queue.push(entries, priority=self._bound.settings.priority)
        hit("requests.after_requeue")
        ids = [entry.id for entry in entries]
        self._node.queued(self._shard, ids, by=self._by, now=self._now, again=True)
        return len(entries)

    def _give_up(self, requests: Sequence[StoredRequest]) -> int:
        """End requests as failed. After a crash before that they are orphans and get one more
        try.
        """
        if not requests:
            return 0
        takes = self._node.take(
            self._shard,
            [_entry(request) for request in requests],
            owner=self._by,
            now=self._now,
            deadline=self._now + self._bound.settings.take_seconds * 1000,
            cutoff=self._cutoff,
        )
        text = f"not ended in time in {self._bound.settings.max_tries} tries"
        ends = [
            Finish(
                take.request.id,
                take.request.tries,
                self._bound.settings.failed_flag,
                b'{"code":"overdue"}',
                text,
            )
            for take in takes
            if take.code is TakeCode.TAKEN and take.request is not None
        ]
        if ends:
            self._node.finish(self._shard, ends, owner=self._by, now=self._now)
        return len(ends)


def _entry(request: StoredRequest) -> QueueEntry:
    return QueueEntry(request.id, request.biz, request.ts)
