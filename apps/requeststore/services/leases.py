"""Leases of requests: take, finish, return."""

from __future__ import annotations

import heapq
import itertools
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeVar

from apps.queuestats.services.rates import count
from apps.requeststore.engine.errors import RequestStoreUnavailable
from apps.requeststore.engine.placement import ShardPlace
from apps.requeststore.services.bindings import BoundBiz
from apps.requeststore.services.connections import Connections
from apps.requeststore.services.lookup import RequestLookup
from apps.requeststore.stores.base import (
    EndCode,
    Finish,
    GiveBack,
    QueueEntry,
    Shard,
    StorageNode,
    StoredRequest,
    Take,
    TakeCode,
)
from yardkit.failpoints import hit

logger = logging.getLogger(__name__)

_UNKNOWN: Final = Take(TakeCode.UNKNOWN)
_AWAY: Final = Take(TakeCode.AWAY)
_EXPIRED: Final = Take(TakeCode.EXPIRED)

End = TypeVar("End", Finish, GiveBack)
_Ask = Callable[[StorageNode, Shard, Sequence[End]], list[EndCode]]


class LeaseService:
    """Leases of one process. Thread-safe."""

    def __init__(self, connections: Connections, looking: RequestLookup) -> None:
        self._connections = connections
        self._looking = looking
        self._retries = DelayedReturns(connections)

    def take(
        self, bound: BoundBiz, entries: Sequence[QueueEntry], *, owner: str, now: int
    ) -> list[Take]:
        """See ``RequestStore.take``."""
        takes = dict[int, Take]()
        deadline = now + bound.settings.take_seconds * 1000
        cutoff = bound.settings.cutoff(now)

        def look(place: ShardPlace, positions: Sequence[int]) -> Iterator[int]:
            answers = self._connections.node(place.node).take(
                place.shard,
                [entries[position] for position in positions],
                owner=owner,
                now=now,
                deadline=deadline,
                cutoff=cutoff,
            )
            for position, answer in zip(positions, answers, strict=True):
                if answer.code is TakeCode.UNKNOWN:
                    yield position
                else:
                    takes[position] = answer

        def key(position: int) -> tuple[int, int]:
            return entries[position].id, entries[position].ts

        # Expired and deleted requests leave entries behind; they need no look-up.
        gone = now - bound.settings.delete_after_seconds * 1000
        mine = [
            at for at, entry in enumerate(entries) if entry.biz == bound.name and entry.ts > gone
        ]
        away = self._looking.through(bound, mine, key, look)
        hit("requests.after_take")

        def missing(entry: QueueEntry) -> Take:
            if entry.biz != bound.name:
                return _UNKNOWN
            if entry.ts <= cutoff:
                return _EXPIRED
            return _UNKNOWN if away is None else _AWAY

        return [takes[at] if at in takes else missing(entry) for at, entry in enumerate(entries)]

    def finish(
        self,
        bound: BoundBiz,
        done: Sequence[tuple[StoredRequest, Finish]],
        *,
        owner: str,
        now: int,
        counted: set[int] | None = None,
    ) -> list[EndCode]:
        """See ``RequestStore.finish``."""
        codes = [EndCode.UNKNOWN] * len(done)

        def ask(node: StorageNode, shard: Shard, ends: Sequence[Finish]) -> list[EndCode]:
            return node.finish(shard, ends, owner=owner, now=now)

        try:
            self._end(bound, done, ask, codes)
            hit("requests.after_finish")
        finally:
            # Counted even after an error: a repeat gets REPEATED.
            ends = [end for _request, end in done]
            _count_ended(bound, ends, codes, counted)
        return codes

    def give_back(
        self,
        bound: BoundBiz,
        back: Sequence[tuple[StoredRequest, GiveBack]],
        *,
        owner: str,
        now: int,
    ) -> list[EndCode]:
        """See ``RequestStore.give_back``."""

        def ask(node: StorageNode, shard: Shard, ends: Sequence[GiveBack]) -> list[EndCode]:
            codes = node.give_back(shard, ends, owner=owner, now=now)
            returned = zip(ends, codes, strict=True)
            later = [end for end, code in returned if code in (EndCode.DONE, EndCode.REPEATED)]
            hit("requests.after_give_back")
            # Marked as queued, so that upkeep does not requeue them early; if this process dies
            # before their time, upkeep treats them as forgotten.
            node.queued(shard, [end.id for end in later], by=owner, now=now)
            return codes

        codes = [EndCode.UNKNOWN] * len(back)
        self._end(bound, back, ask, codes)
        for (request, end), code in zip(back, codes, strict=True):
            # REPEATED: an earlier call stored the end and failed before this line.
            if code in (EndCode.DONE, EndCode.REPEATED):
                entry = QueueEntry(request.id, request.biz, request.ts)
                self._retries.add(bound, entry, request.priority, max(end.not_before, now))
        self._retries.push_due(now)
        return codes

    def push_due(self, now: int | None) -> int:
        """Queue returned requests that are due, or all with ``now=None``; return how many."""
        return self._retries.push_due(now)

    def _end(
        self,
        bound: BoundBiz,
        ends: Sequence[tuple[StoredRequest, End]],
        ask: _Ask[End],
        codes: list[EndCode],
    ) -> None:
        """Fill in ``codes``. Raises ``RequestStoreUnavailable`` after the other nodes have
        answered.
        """

        def look(place: ShardPlace, positions: Sequence[int]) -> Iterator[int]:
            node = self._connections.node(place.node)
            answers = ask(node, place.shard, [ends[position][1] for position in positions])
            for position, answer in zip(positions, answers, strict=True):
                if answer is EndCode.UNKNOWN:
                    yield position
                else:
                    codes[position] = answer

        def key(position: int) -> tuple[int, int]:
            return ends[position][0].id, ends[position][0].ts

        away = self._looking.through(bound, range(len(ends)), key, look)
        if away is not None and EndCode.UNKNOWN in codes:
            raise away


class DelayedReturns:
    """Returned requests that wait for their time in this process. Thread-safe."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._lock = threading.Lock()
        self._numbers = itertools.count()
        self._waiting: list[tuple[int, int, BoundBiz, QueueEntry, int]] = []

    def add(self, bound: BoundBiz, entry: QueueEntry, priority: int, at: int) -> None:
        """Queue the entry at ``at`` (Unix ms)."""
        with self._lock:
            item = (at, next(self._numbers), bound, entry, priority)
            heapq.heappush(self._waiting, item)

    def push_due(self, now: int | None) -> int:
        """Queue entries that are due; after an error they wait for the next call."""
        groups = dict[tuple[int, str, int], tuple[BoundBiz, list[tuple[int, QueueEntry]]]]()
        with self._lock:
            while self._waiting and (now is None or self._waiting[0][0] <= now):
                at, _, bound, entry, priority = heapq.heappop(self._waiting)
                key = bound.project_id, bound.name, priority
                groups.setdefault(key, (bound, []))[1].append((at, entry))
        pushed = 0
        for (_project, _name, priority), (bound, due) in groups.items():
            try:
                queue = self._connections.queue(bound)
                queue.push([entry for _, entry in due], priority=priority)
                pushed += len(due)
            except RequestStoreUnavailable as error:
                logger.warning("biz %s: retries cannot be queued now: %s", bound.name, error)
                for at, entry in due:
                    self.add(bound, entry, priority, at)
        return pushed


def _count_ended(
    bound: BoundBiz, ends: Sequence[Finish], codes: Sequence[EndCode], counted: set[int] | None
) -> None:
    """Add each end to the rates once; ``counted`` holds the ids added by earlier calls."""
    own_repeats = counted is not None
    counted = set() if counted is None else counted
    processed = failed = 0
    for end, code in zip(ends, codes, strict=True):
        if end.id in counted:
            continue
        if code is EndCode.DONE or (own_repeats and code is EndCode.REPEATED):
            counted.add(end.id)
            processed += 1
            failed += end.flag == bound.settings.failed_flag
    _count(bound, "requests.processed", processed)
    _count(bound, "requests.failed", failed)


def _count(bound: BoundBiz, series: str, amount: int) -> None:
    if amount:
        count(series, project=bound.project_id, label=bound.name, amount=amount)
