"""Pages of one log."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from datetime import datetime
from typing import Any, Final

from elasticsearch.dsl import Q, Search

from apps.joblogs.stores.accounts import as_stored
from apps.joblogs.stores.base import BEGINNING, Ref, StoredLine
from apps.joblogs.stores.elastic.connection import Answer, ElasticConnection
from apps.joblogs.stores.elastic.documents import stored_line
from apps.joblogs.stores.elastic.indexes import IndexNames
from apps.joblogs.stores.elastic.stream_record import MOST_DAYS, StreamRecord
from apps.joblogs.stores.elastic.stream_records import StreamRecords

# Maximum of hits of one search.
MOST_HITS: Final = 10_000
# Hits per page if the caller filters them.
LOOKED_AT: Final = 500
MOST_PATTERN: Final = 200


class ElasticPages:
    """Reads of one stream. Thread-safe. Raises ``LogStoreUnavailable``."""

    def __init__(
        self,
        connection: ElasticConnection,
        records: StreamRecords,
        names: IndexNames,
        clock: Callable[[], datetime],
    ) -> None:
        self._connection = connection
        self._records = records
        self._names = names
        self._clock = clock

    def record(self, stream: str) -> StreamRecord | None:
        """Return the current record of a stream."""
        known = self._records.read([stream]).get(stream)
        return None if known is None else known.record

    def page(
        self,
        stream: str,
        *,
        after: Ref | None,
        before: Ref | None,
        limit: int,
        levels: Collection[str],
        contains: str,
    ) -> list[StoredLine]:
        """See ``LogStore.page``."""
        record = self.record(stream)
        if record is None or limit < 1:
            return []
        plain = not levels and not contains
        horizon = record.horizon(after or BEGINNING, self._clock())
        if after is None:
            return self._backwards(record, before, limit, levels, contains)
        if horizon <= after:
            return []
        # Recorded lines exist but are found only after a refresh. If both agree, no refresh is
        # needed.
        if plain and not record.forgotten:
            expected = record.following(after, horizon, limit)
            lines = self._lines(record, _upwards(after, horizon), limit, levels, contains)
            if [line.ref for line in lines] == expected:
                return lines
        self._connection.refresh(self.indexes(record))
        return self._lines(record, _upwards(after, horizon), limit, levels, contains)

    def find(self, stream: str, ref: Ref) -> StoredLine | None:
        """See ``LogStore.find``."""
        record = self.record(stream)
        if record is None:
            return None
        query = Q("term", boot_number=ref.boot_number), Q("term", seq=ref.seq)
        search = self._search(record, (), "").filter(query[0]).filter(query[1]).extra(size=1)
        indexes = self.indexes(record)
        hits = self._hits(indexes, search)
        if not hits:
            self._connection.refresh(indexes)
            hits = self._hits(indexes, search)
        return stored_line(hits[0]) if hits else None

    def first(self, stream: str, levels: Collection[str]) -> StoredLine | None:
        """See ``LogStore.first``."""
        record = self.record(stream)
        if record is None:
            return None
        self._connection.refresh(self.indexes(record))
        lines = self._lines(record, {}, 1, levels, "")
        return lines[0] if lines else None

    def indexes(self, record: StreamRecord) -> str:
        """Return the indexes that have lines of the stream."""
        if not 1 <= len(record.days) <= MOST_DAYS:
            return self._names.lines
        return ",".join(self._names.day(day) for day in record.days)

    def _backwards(
        self,
        record: StreamRecord,
        before: Ref | None,
        limit: int,
        levels: Collection[str],
        contains: str,
    ) -> list[StoredLine]:
        """Return the last lines before a place, or of the whole log, in reading order."""
        self._connection.refresh(self.indexes(record))
        body = {} if before is None else {"search_after": list(before)}
        lines = self._lines(record, body, limit, levels, contains, order="desc")
        return lines[::-1]

    def _lines(
        self,
        record: StreamRecord,
        extra: Answer,
        limit: int,
        levels: Collection[str],
        contains: str,
        order: str = "asc",
    ) -> list[StoredLine]:
        search = self._search(record, levels, contains)
        filters = dict(extra)
        horizon = filters.pop("horizon", None)
        if horizon is not None:
            search = search.filter(horizon)
        search = search.sort({"boot_number": {"order": order}}, {"seq": {"order": order}})
        lines: list[StoredLine] = []
        wanted = as_stored(contains).casefold()
        for hit in self._walk(self.indexes(record), search.extra(**filters), limit, contains):
            line = stored_line(hit)
            if not wanted or wanted in line.text.casefold():
                lines.append(line)
                if len(lines) == limit:
                    break
        return lines

    def _walk(self, indexes: str, search: Search, limit: int, contains: str) -> Iterator[Answer]:
        """Yield pages of hits; a single page suffices if the query is exact."""
        size = min(MOST_HITS, max(limit, LOOKED_AT) if contains else limit)
        while True:
            hits = self._hits(indexes, search.extra(size=size))
            yield from hits
            if len(hits) < size:
                return
            search = search.extra(search_after=hits[-1]["sort"])

    def _search(self, record: StreamRecord, levels: Collection[str], contains: str) -> Search:
        search = Search().filter("term", stream=record.stream).extra(track_total_hits=False)
        if levels:
            search = search.filter("terms", level=sorted(levels))
        if contains:
            search = search.filter(containing(contains))
        return search

    def _hits(self, indexes: str, search: Search) -> list[Answer]:
        hits: list[Answer] = self._connection.search(indexes, search.to_dict())["hits"]["hits"]
        return hits


def containing(text: str) -> Any:
    """Return a query for lines that contain ``text``, case-insensitive; it may match further lines.

    The server folds case in ASCII only, so a wildcard replaces characters that may differ, and the
    caller filters the hits. Only the beginning is used: the server rejects repetitive patterns of
    more than 314 characters.
    """
    pattern = "".join(_pattern(character) for character in as_stored(text)[:MOST_PATTERN])
    return Q("wildcard", text={"value": f"*{pattern}*", "case_insensitive": True})


def _pattern(character: str) -> str:
    if character in "*?\\":
        return f"\\{character}"
    # Case folding may turn one character into two.
    if character.isascii() or character.casefold() == character.upper():
        return character
    return "*"


def _upwards(after: Ref, horizon: Ref) -> Answer:
    earlier = Q("range", boot_number={"lt": horizon.boot_number})
    same = Q("term", boot_number=horizon.boot_number) & Q("range", seq={"lte": horizon.seq})
    return {"search_after": list(after), "horizon": earlier | same}
