"""Reads from the log store for pages and REST; translates its errors."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from apps.joblogs.engine.lines import BIGGEST_SEQ, ERRORS
from apps.joblogs.errors import BadSearch, LogsUnavailable
from apps.joblogs.services.store import log_store
from apps.joblogs.stores.base import (
    BEGINNING,
    GAP_SECONDS,
    MOST_LINES,
    BadQuery,
    ErrorCount,
    FoundLines,
    LogStore,
    LogStoreUnavailable,
    Ref,
    Search,
    StoredLine,
    StreamState,
)

WAIT_SECONDS: Final = 0.5


@dataclass(frozen=True, slots=True)
class PageRequest:
    """Part of a log: at most one of ``after``, ``before``, ``around`` and ``tail``.

    Without any of them it starts at the beginning.
    """

    limit: int
    after: Ref | None = None
    before: Ref | None = None
    around: Ref | None = None
    tail: bool = False
    levels: Collection[str] = ()
    contains: str = ""


@dataclass(frozen=True, slots=True)
class LogPage:
    """Lines in the order of their places, and whether more exist before and after them."""

    lines: list[StoredLine]
    older: bool
    newer: bool
    # None: no line of this log ever arrived.
    state: StreamState | None


@dataclass(frozen=True, slots=True)
class LineCounts:
    """Error counts by project, job (0: builds) and fingerprint. ``whole``: False if only the latest
    groups were counted.
    """

    kinds: Mapping[tuple[int, int, str], ErrorCount]
    whole: bool

    def of(self, kind: tuple[int, int, str]) -> tuple[int, int] | None:
        """Return the number of errors and of logs; None if the group was not counted."""
        counted = self.kinds.get(kind)
        if counted is not None:
            return counted.count, counted.streams
        return (0, 0) if self.whole else None


@contextmanager
def asked_store() -> Iterator[LogStore]:
    """Yield the log store. Raises ``LogsUnavailable`` and ``BadSearch``, also for errors in the
    block.
    """
    try:
        yield log_store()
    except LogStoreUnavailable as error:
        raise LogsUnavailable from error
    except BadQuery as error:
        raise BadSearch(str(error)) from error


def read_log(stream: str, asked: PageRequest) -> LogPage:
    """Return a page of one log."""
    limit = min(asked.limit, MOST_LINES)
    with asked_store() as store:
        state = store.stream_state(stream)
        older, newer = _pieces(store, stream, asked, limit)
    # One more than shown, to detect a next page.
    backwards = limit if asked.around is None else limit // 2
    forwards = limit if asked.around is None else limit - limit // 2
    return LogPage(
        lines=older[-backwards:] + newer[:forwards] if backwards else newer[:forwards],
        older=len(older) > backwards,
        newer=len(newer) > forwards,
        state=state,
    )


def _pieces(
    store: LogStore, stream: str, asked: PageRequest, limit: int
) -> tuple[list[StoredLine], list[StoredLine]]:
    def page(
        count: int, *, after: Ref | None = None, before: Ref | None = None
    ) -> list[StoredLine]:
        return store.page(
            stream,
            after=after,
            before=before,
            limit=count + 1,
            levels=asked.levels,
            contains=asked.contains,
        )

    if asked.around is not None:
        place, half = asked.around, limit // 2
        return page(half, before=place), _from(page, place, limit - half)
    if asked.tail:
        return page(limit), []
    if asked.before is not None:
        return page(limit, before=asked.before), []
    return [], page(limit, after=asked.after or BEGINNING)


def _from(page: Callable[..., list[StoredLine]], place: Ref, count: int) -> list[StoredLine]:
    """Return the line at this place and the ``count`` lines after it.

    Reads backwards from a later number: a forward read would wait at a gap, but this line is known
    to exist.
    """
    further = Ref(place.boot_number, min(place.seq + count + 1, BIGGEST_SEQ))
    lines = [line for line in page(count, before=further) if line.ref >= place]
    if len(lines) <= count:
        before = lines[-1].ref if lines else Ref(place.boot_number, max(place.seq - 1, 0))
        lines += page(count, after=before)
    return lines[: count + 1]


def first_error(stream: str) -> StoredLine | None:
    """Return the first error of a log."""
    with asked_store() as store:
        return store.first(stream, ERRORS)


def search_lines(search: Search, *, cursor: str, limit: int) -> FoundLines:
    """Search lines, the newest first, from ``cursor`` on."""
    with asked_store() as store:
        return store.search(search, cursor=cursor, limit=min(limit, MOST_LINES))


def count_groups(
    projects: Collection[int] | None, *, since: datetime, limit: int, job: int | None = None
) -> LineCounts:
    """Count the errors since ``since`` in at most ``limit`` groups."""
    with asked_store() as store:
        counted = store.groups(Search(projects=projects, job=job, since=since), limit=limit)
    kinds = {(group.project, group.job, group.fingerprint): group for group in counted}
    return LineCounts(kinds, whole=len(counted) < limit)


def lines_of(
    stream: str, *, levels: Collection[str], since: datetime | None, until: datetime | None
) -> Iterator[list[StoredLine]]:
    """Yield the whole log in pages of lines.

    Waits at a gap for missing lines, like a follower. The generator may be resumed by different
    threads.
    """
    with asked_store() as store:
        newest = store.page(stream, limit=1, levels=levels)
    if not newest:
        return
    place, patience = BEGINNING, GAP_SECONDS + 1.0
    while place < newest[0].ref:
        with asked_store() as store:
            lines = store.page(stream, after=place, limit=MOST_LINES, levels=levels)
        if not lines:
            if patience <= 0:
                return
            patience -= WAIT_SECONDS
            time.sleep(WAIT_SECONDS)
            continue
        place = lines[-1].ref
        yield [
            line
            for line in lines
            if (since is None or line.at >= since) and (until is None or line.at < until)
        ]
