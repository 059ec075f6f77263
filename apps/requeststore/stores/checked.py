"""Base of the adapters: validates arguments and splits batches.

An adapter implements the methods with an underscore. They get valid arguments in portions without
duplicate IDs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import ClassVar, TypeVar

from apps.requeststore.engine.flags import is_own
from apps.requeststore.engine.limits import MAX_ID, MAX_TS
from apps.requeststore.stores import checks
from apps.requeststore.stores.base import (
    EndCode,
    Finish,
    GiveBack,
    NewRequest,
    QueueEntry,
    Shard,
    ShardCounts,
    ShardSize,
    StoredRequest,
    Take,
)

T = TypeVar("T")
Named = TypeVar("Named", QueueEntry, Finish, GiveBack)


class CheckedNode(ABC):
    """Implements ``stores.base.StorageNode``, except the methods about a whole node."""

    # Limits of one portion: writes stay short, so that others wait less for the lock.
    portion: ClassVar[int] = 1000
    portion_bytes: ClassVar[int] = 8 * 1024 * 1024

    # --- inserts ----------------------------------------------------------------------------

    def ensure(self, shard: Shard, *, delete_after_seconds: int) -> None:
        checks.check_shard(shard)
        self._ensure(shard, delete_after_seconds)

    def insert(
        self, shard: Shard, requests: Sequence[NewRequest], *, by: str, now: int
    ) -> list[bool]:
        checks.check_shard(shard)
        checks.check_new(requests)
        checks.check_by(by)
        checks.check_time("now", now)
        answers = [False] * len(requests)
        for portion in checks.portions(
            requests,
            lambda one: one.id,
            most=self.portion,
            size=lambda one: len(one.data),
            most_bytes=self.portion_bytes,
        ):
            new = self._insert(shard, [request for _, request in portion], by, now)
            for (place, _), answer in zip(portion, new, strict=True):
                answers[place] = answer
        return answers

    def receive(self, shard: Shard, requests: Sequence[StoredRequest], *, by: str, now: int) -> int:
        checks.check_shard(shard)
        checks.check_received(requests)
        checks.check_by(by)
        checks.check_time("now", now)
        return sum(
            self._receive(shard, [request for _, request in portion], by, now)
            for portion in checks.portions(
                requests,
                lambda one: one.id,
                most=self.portion,
                size=lambda one: len(one.data),
                most_bytes=self.portion_bytes,
            )
        )

    # --- changes ----------------------------------------------------------------------------

    def queued(
        self, shard: Shard, ids: Sequence[int], *, by: str, now: int, again: bool = False
    ) -> None:
        checks.check_shard(shard)
        checks.check_ids(ids)
        checks.check_by(by)
        checks.check_time("now", now)
        for portion in self._slices(ids):
            self._queued(shard, portion, by, now, again)

    def take(
        self,
        shard: Shard,
        entries: Sequence[QueueEntry],
        *,
        owner: str,
        now: int,
        deadline: int,
        cutoff: int,
    ) -> list[Take]:
        checks.check_shard(shard)
        checks.check_entries(entries)
        checks.check_owner(owner)
        checks.check_times(now=now, deadline=deadline)
        checks.check_deadline(deadline, now)
        checks.check_cutoff(cutoff)
        return self._each(
            entries, lambda some: self._take(shard, some, owner, now, deadline, cutoff)
        )

    def finish(
        self, shard: Shard, ends: Sequence[Finish], *, owner: str, now: int
    ) -> list[EndCode]:
        self._check_ends(shard, ends, owner, now)
        return self._each(ends, lambda some: self._finish(shard, some, owner, now))

    def give_back(
        self, shard: Shard, ends: Sequence[GiveBack], *, owner: str, now: int
    ) -> list[EndCode]:
        self._check_ends(shard, ends, owner, now)
        return self._each(ends, lambda some: self._give_back(shard, some, owner, now))

    # --- reads ------------------------------------------------------------------------------

    def find(self, shard: Shard, ids: Sequence[int]) -> list[StoredRequest | None]:
        checks.check_shard(shard)
        checks.check_ids(ids)
        requests = {
            request.id: request for some in self._slices(ids) for request in self._find(shard, some)
        }
        return [requests.get(number) for number in ids]

    def page(
        self,
        shard: Shard,
        *,
        biz: str,
        flag: int | None = None,
        since: int = 0,
        until: int = MAX_TS,
        after: tuple[int, int] | None = None,
        limit: int = 100,
    ) -> list[StoredRequest]:
        checks.check_shard(shard)
        checks.check_span(since, until)
        checks.check_limit(limit)
        last = after or (MAX_ID, MAX_ID)
        checks.check_span(*last)
        return self._page(shard, biz, flag, since, until, last, limit)

    def orphans(self, shard: Shard, *, before: int, cutoff: int, limit: int) -> list[QueueEntry]:
        self._check_search(shard, before, cutoff, limit)
        return self._orphans(shard, before, cutoff, limit)

    def forgotten(self, shard: Shard, *, before: int, cutoff: int, limit: int) -> list[QueueEntry]:
        self._check_search(shard, before, cutoff, limit)
        return self._forgotten(shard, before, cutoff, limit)

    def count(self, shard: Shard, *, since: int = 0, until: int = MAX_TS) -> ShardCounts:
        checks.check_shard(shard)
        checks.check_span(since, until)
        return ShardCounts(self._count(shard, since, until))

    def oldest(self, shard: Shard, *, flag: int) -> int | None:
        checks.check_shard(shard)
        return self._oldest(shard, flag)

    def size(self, shard: Shard) -> ShardSize:
        checks.check_shard(shard)
        return self._size(shard)

    # --- sweeps and moves -------------------------------------------------------------------

    def overdue(
        self, shard: Shard, *, now: int, cutoff: int, limit: int, by: str
    ) -> list[StoredRequest]:
        self._check_sweep(shard, now, cutoff, limit, by)
        return self._overdue(shard, now, cutoff, limit, by)

    def expire(self, shard: Shard, *, cutoff: int, limit: int, by: str, now: int) -> int:
        self._check_sweep(shard, now, cutoff, limit, by)
        return self._expire(shard, cutoff, limit, by, now)

    def delete(self, shard: Shard, *, before: int, limit: int) -> int:
        checks.check_shard(shard)
        checks.check_span(before, before)
        checks.check_limit(limit)
        return self._delete(shard, before, limit)

    def reopen(
        self,
        shard: Shard,
        ids: Sequence[int],
        *,
        flags: Sequence[int],
        by: str,
        now: int,
        cutoff: int,
    ) -> list[bool]:
        self._check_sweep(shard, now, cutoff, 1, by)
        checks.check_ids(ids)
        ended = sorted({flag for flag in flags if is_own(flag)})
        opened = {
            request_id
            for portion in self._slices(ids)
            for request_id in self._reopen(shard, portion, ended, by, now, cutoff)
        }
        # A duplicate ID was reopened by its first occurrence only.
        first = {request_id: place for place, request_id in reversed(list(enumerate(ids)))}
        return [
            request_id in opened and first[request_id] == place
            for place, request_id in enumerate(ids)
        ]

    def start_move(
        self, shard: Shard, ids: Sequence[int], *, now: int
    ) -> list[StoredRequest | None]:
        checks.check_shard(shard)
        checks.check_ids(ids)
        checks.check_time("now", now)
        started = {
            request.id: request
            for portion in self._slices(ids)
            for request in self._start_move(shard, portion)
        }
        return [started.get(number) for number in ids]

    def undo_move(self, shard: Shard, ids: Sequence[int]) -> int:
        checks.check_shard(shard)
        checks.check_ids(ids)
        return sum(self._undo_move(shard, portion) for portion in self._slices(ids))

    def end_move(self, shard: Shard, ids: Sequence[int]) -> int:
        checks.check_shard(shard)
        checks.check_ids(ids)
        return sum(self._end_move(shard, portion) for portion in self._slices(ids))

    def drop(self, shard: Shard) -> None:
        checks.check_shard(shard)
        self._drop(shard)

    # --- shared helpers ---------------------------------------------------------------------

    def _slices(self, ids: Sequence[int]) -> list[list[int]]:
        """Split IDs in ascending order: all callers lock rows in one order, so none deadlock."""
        distinct = sorted(set(ids))
        return [
            distinct[start : start + self.portion]
            for start in range(0, len(distinct), self.portion)
        ]

    def _each(self, items: Sequence[Named], work: Callable[[list[Named]], list[T]]) -> list[T]:
        """Apply ``work`` to portions; return the answers in the order of the items."""
        answers: dict[int, T] = {}
        for portion in checks.portions(items, lambda one: one.id, most=self.portion):
            portion.sort(key=lambda pair: pair[1].id)
            some = [item for _, item in portion]
            for (place, _), answer in zip(portion, work(some), strict=True):
                answers[place] = answer
        return [answers[place] for place in range(len(items))]

    @staticmethod
    def _check_ends(shard: Shard, ends: Sequence[Finish | GiveBack], owner: str, now: int) -> None:
        checks.check_shard(shard)
        checks.check_ends(ends)
        checks.check_owner(owner)
        checks.check_time("now", now)

    @staticmethod
    def _check_search(shard: Shard, before: int, cutoff: int, limit: int) -> None:
        checks.check_shard(shard)
        checks.check_span(cutoff, before)
        checks.check_limit(limit)

    @staticmethod
    def _check_sweep(shard: Shard, now: int, cutoff: int, limit: int, by: str) -> None:
        checks.check_shard(shard)
        checks.check_time("now", now)
        checks.check_cutoff(cutoff)
        checks.check_limit(limit)
        checks.check_by(by)

    # --- adapter methods: see the base ------------------------------------------------------

    @abstractmethod
    def _ensure(self, shard: Shard, delete_after_seconds: int) -> None: ...

    @abstractmethod
    def _insert(
        self, shard: Shard, requests: list[NewRequest], by: str, now: int
    ) -> list[bool]: ...

    @abstractmethod
    def _receive(self, shard: Shard, requests: list[StoredRequest], by: str, now: int) -> int: ...

    @abstractmethod
    def _queued(self, shard: Shard, ids: list[int], by: str, now: int, again: bool) -> None: ...

    @abstractmethod
    def _take(
        self,
        shard: Shard,
        entries: list[QueueEntry],
        owner: str,
        now: int,
        deadline: int,
        cutoff: int,
    ) -> list[Take]: ...

    @abstractmethod
    def _finish(self, shard: Shard, ends: list[Finish], owner: str, now: int) -> list[EndCode]: ...

    @abstractmethod
    def _give_back(
        self, shard: Shard, ends: list[GiveBack], owner: str, now: int
    ) -> list[EndCode]: ...

    @abstractmethod
    def _find(self, shard: Shard, ids: list[int]) -> list[StoredRequest]: ...

    @abstractmethod
    def _page(
        self,
        shard: Shard,
        biz: str,
        flag: int | None,
        since: int,
        until: int,
        after: tuple[int, int],
        limit: int,
    ) -> list[StoredRequest]: ...

    @abstractmethod
    def _orphans(self, shard: Shard, before: int, cutoff: int, limit: int) -> list[QueueEntry]: ...

    @abstractmethod
    def _forgotten(
        self, shard: Shard, before: int, cutoff: int, limit: int
    ) -> list[QueueEntry]: ...

    @abstractmethod
    def _count(self, shard: Shard, since: int, until: int) -> dict[int, int]: ...

    @abstractmethod
    def _oldest(self, shard: Shard, flag: int) -> int | None: ...

    @abstractmethod
    def _size(self, shard: Shard) -> ShardSize: ...

    @abstractmethod
    def _overdue(
        self, shard: Shard, now: int, cutoff: int, limit: int, by: str
    ) -> list[StoredRequest]: ...

    @abstractmethod
    def _expire(self, shard: Shard, cutoff: int, limit: int, by: str, now: int) -> int: ...

    @abstractmethod
    def _delete(self, shard: Shard, before: int, limit: int) -> int: ...

    @abstractmethod
    def _reopen(
        self, shard: Shard, ids: list[int], flags: list[int], by: str, now: int, cutoff: int
    ) -> list[int]: ...

    @abstractmethod
    def _start_move(self, shard: Shard, ids: list[int]) -> list[StoredRequest]: ...

    @abstractmethod
    def _undo_move(self, shard: Shard, ids: list[int]) -> int: ...

    @abstractmethod
    def _end_move(self, shard: Shard, ids: list[int]) -> int: ...

    @abstractmethod
    def _drop(self, shard: Shard) -> None: ...
