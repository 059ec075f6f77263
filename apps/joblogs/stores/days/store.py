"""``LogStore`` methods shared by the SQL engines."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from datetime import datetime
from typing import TypeVar

from apps.joblogs.engine.moments import microseconds
from apps.joblogs.stores.accounts import level_numbers
from apps.joblogs.stores.base import (
    ErrorCount,
    FoundLines,
    Ref,
    Search,
    StoredLine,
    StreamState,
    Usage,
)
from apps.joblogs.stores.days import pages, retention
from apps.joblogs.stores.days import search as line_search
from apps.joblogs.stores.days.retention import PORTION
from apps.joblogs.stores.days.session import StoreSession

T = TypeVar("T")


class DayStore(ABC):
    """Base of the SQL stores, see ``LogStore``."""

    @abstractmethod
    def _reading(self, work: Callable[[StoreSession], T]) -> T:
        """Run ``work`` on a snapshot; it may be called several times."""

    @abstractmethod
    def _writing(self, work: Callable[[StoreSession], T]) -> T:
        """Run ``work`` in a transaction; it may be called several times and is committed once."""

    def page(
        self,
        stream: str,
        *,
        after: Ref | None = None,
        before: Ref | None = None,
        limit: int,
        levels: Collection[str] = (),
        contains: str = "",
    ) -> list[StoredLine]:
        """See ``LogStore.page``."""

        def work(session: StoreSession) -> list[StoredLine]:
            where = pages.filtered(session, levels, contains)
            if after is None:
                return pages.preceding(session, stream, before, limit, where)
            now = int(time.time() * 1_000_000)
            return pages.following(session, stream, after, limit, where, now)

        return self._reading(work)

    def stream_state(self, stream: str) -> StreamState | None:
        """See ``LogStore.stream_state``."""
        return self._reading(lambda session: pages.stream_state(session, stream))

    def find(self, stream: str, ref: Ref) -> StoredLine | None:
        """See ``LogStore.find``."""
        return self._reading(lambda session: pages.find(session, stream, ref))

    def first(self, stream: str, levels: Collection[str]) -> StoredLine | None:
        """See ``LogStore.first``."""
        return self._reading(lambda session: pages.first(session, stream, levels))

    def search(self, search: Search, *, cursor: str = "", limit: int) -> FoundLines:
        """See ``LogStore.search``."""
        return self._reading(lambda session: line_search.search(session, search, cursor, limit))

    def groups(self, search: Search, *, limit: int) -> list[ErrorCount]:
        """See ``LogStore.groups``."""
        return self._reading(lambda session: line_search.groups(session, search, limit))

    def delete(
        self,
        *,
        project: int,
        job: int,
        before: datetime,
        levels: Collection[str] | None = None,
        limit: int,
    ) -> int:
        """See ``LogStore.delete``."""
        micros = microseconds(before)
        numbers = None if levels is None else level_numbers(levels)

        def work(session: StoreSession, portion: int) -> int:
            return retention.delete_some(session, project, job, micros, numbers, portion)

        return self._in_portions(work, limit)

    def delete_oldest(self, *, project: int, job: int, keep_bytes: int, limit: int) -> int:
        """See ``LogStore.delete_oldest``."""

        def work(session: StoreSession, portion: int) -> int:
            return retention.delete_oldest_some(session, project, job, keep_bytes, portion)

        return self._in_portions(work, limit)

    def usages(self) -> list[Usage]:
        """See ``LogStore.usages``."""
        return self._reading(retention.usages)

    def prune(self, *, now: datetime) -> None:
        """See ``LogStore.prune``."""
        micros = microseconds(now)
        self._writing(lambda session: retention.prune(session, micros))

    def _in_portions(self, work: Callable[[StoreSession, int], int], limit: int) -> int:
        total = 0
        while total < limit:
            portion = min(PORTION, limit - total)

            def once(session: StoreSession, portion: int = portion) -> int:
                return work(session, portion)

            deleted = self._writing(once)
            total += deleted
            if deleted < portion:
                break
        return total
