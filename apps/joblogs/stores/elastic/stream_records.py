"""Stored records of streams, updated with optimistic concurrency."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Any, Final

from elasticsearch.dsl import A, Q, Search

from apps.joblogs.stores.base import LogStoreUnavailable
from apps.joblogs.stores.elastic.connection import (
    CONFLICT,
    OK,
    Answer,
    BulkOperation,
    ElasticConnection,
)
from apps.joblogs.stores.elastic.indexes import IndexNames
from apps.joblogs.stores.elastic.stream_record import StreamRecord
from yardkit.backoff import back_off

# Limit of version conflicts; concurrent writers of one stream cause only a few.
TRIES: Final = 30
FIRST_PAUSE_SECONDS: Final = 0.02
LONGEST_PAUSE_SECONDS: Final = 0.2
PAGE: Final = 1000
Group = tuple[int, int, int, int, int]


@dataclass(slots=True)
class VersionedRecord:
    """Record as read, with its version; ``seq_no`` is -1 if it is not stored yet."""

    record: StreamRecord
    seq_no: int = -1
    primary_term: int = -1


class StreamRecords:
    """Access to stream records. Thread-safe. Raises ``LogStoreUnavailable``."""

    def __init__(self, connection: ElasticConnection, names: IndexNames) -> None:
        self._connection = connection
        self._index = names.records

    def read(self, streams: Collection[str]) -> dict[str, VersionedRecord]:
        """Return the existing records in real time (not as of the last refresh)."""
        if not streams:
            return {}
        answer = self._connection.ask(
            lambda client: client.mget(index=self._index, ids=list(streams), realtime=True)
        )
        records: dict[str, VersionedRecord] = {}
        for document in answer["docs"]:
            if "error" in document:
                raise LogStoreUnavailable(
                    f"the streams of log lines: {document['error'].get('reason')}"
                )
            if document["found"]:
                record = StreamRecord.read(document["_source"])
                records[document["_id"]] = VersionedRecord(
                    record, document["_seq_no"], document["_primary_term"]
                )
        return records

    def change(
        self,
        known: dict[str, VersionedRecord],
        change: Callable[[StreamRecord], bool],
        *,
        make: Callable[[str], StreamRecord] | None = None,
    ) -> None:
        """Apply ``change`` to each record and write those for which it returns True.

        On a version conflict the record is read and changed again, so ``change`` may be called
        several times. Afterwards ``known`` holds the written records; one that was deleted
        concurrently is missing, unless ``make`` creates it again.
        """
        left = list(known)
        for attempt in range(TRIES):
            if attempt:
                # Random pause, so that two writers do not collide again.
                time.sleep(back_off(attempt, FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS))
                self._read_again(known, left, make)
            changed = [name for name in left if name in known and change(known[name].record)]
            results = self._connection.bulk([self._operation(known[name]) for name in changed])
            left = []
            for name, result in zip(changed, results, strict=True):
                if result.status in OK:
                    known[name].seq_no = result.seq_no
                    known[name].primary_term = result.primary_term
                elif result.status == CONFLICT:
                    left.append(name)
                else:
                    raise ValueError(f"{name}: {result.error}")
            if not left:
                return
        raise LogStoreUnavailable(f"too many write the lines of {left[0]} at the same time")

    def delete(self, known: VersionedRecord) -> None:
        """Delete a record, unless it was changed since it was read."""
        place = {"_index": self._index, "_id": known.record.stream}
        version = {"if_seq_no": known.seq_no, "if_primary_term": known.primary_term}
        self._connection.bulk([BulkOperation({"delete": place | version})])

    def search(self, *queries: Any) -> Iterator[VersionedRecord]:
        """Yield the records that match all conditions, as of the last refresh."""
        search = Search(index=self._index).filter("bool", filter=list(queries))
        search = search.sort("stream").extra(
            size=PAGE, seq_no_primary_term=True, track_total_hits=False
        )
        after: Any = None
        while True:
            page = search if after is None else search.extra(search_after=after)
            hits = self._connection.search(self._index, page.to_dict())["hits"]["hits"]
            for hit in hits:
                yield VersionedRecord(
                    StreamRecord.read(hit["_source"]), hit["_seq_no"], hit["_primary_term"]
                )
            if len(hits) < PAGE:
                return
            after = hits[-1]["sort"]

    def usages(self) -> Iterator[Group]:
        """Yield (project, job, lines, bytes, first_at) of jobs that have lines."""
        self._connection.refresh(self._index)
        sources = [{name: A("terms", field=name)} for name in ("project", "job")]
        after: Any = None
        while True:
            jobs = A("composite", sources=sources, size=PAGE, **({"after": after} if after else {}))
            jobs.metric("lines", "sum", field="lines").metric("bytes", "sum", field="bytes")
            jobs.metric("first_at", "min", field="first_at")
            search = Search(index=self._index).filter(Q("range", lines={"gt": 0}))
            search = search.extra(size=0, track_total_hits=False)
            search.aggs.bucket("jobs", jobs)
            answer = self._connection.search(self._index, search.to_dict())
            buckets = answer.get("aggregations", {"jobs": {"buckets": []}})["jobs"]
            for bucket in buckets["buckets"]:
                values = (int(bucket[name]["value"]) for name in ("lines", "bytes", "first_at"))
                yield (bucket["key"]["project"], bucket["key"]["job"], *values)
            after = buckets.get("after_key")
            if not after or len(buckets["buckets"]) < PAGE:
                return

    def _read_again(
        self,
        known: dict[str, VersionedRecord],
        names: list[str],
        make: Callable[[str], StreamRecord] | None,
    ) -> None:
        current = self.read(names)
        for name in names:
            known.pop(name)
            if name in current:
                known[name] = current[name]
            elif make is not None:
                known[name] = VersionedRecord(make(name))

    def _operation(self, known: VersionedRecord) -> BulkOperation:
        place: Answer = {"_index": self._index, "_id": known.record.stream}
        if known.seq_no < 0:
            return BulkOperation({"create": place}, known.record.document())
        version = {"if_seq_no": known.seq_no, "if_primary_term": known.primary_term}
        return BulkOperation({"index": place | version}, known.record.document())
