"""Deletes old lines, and then empty indexes and records."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from elasticsearch.dsl import A, Q, Search

from apps.joblogs.engine.moments import microseconds, moment_of
from apps.joblogs.stores.accounts import SILENT
from apps.joblogs.stores.base import Usage
from apps.joblogs.stores.elastic.connection import OK, Answer, BulkOperation, ElasticConnection
from apps.joblogs.stores.elastic.indexes import IndexNames
from apps.joblogs.stores.elastic.stream_record import StreamRecord, day_of
from apps.joblogs.stores.elastic.stream_records import StreamRecords, VersionedRecord
from yardkit import failpoints

logger = logging.getLogger(__name__)

# Lines per bulk deletion; the record is marked before and updated after it.
PORTION: Final = 5000
# Oldest day to which lines are still written, see ``engine.lines.OLDEST``; two more days for clock
# differences.
YOUNG: Final = timedelta(days=3)
# After this time an interrupted deletion is recounted.
SETTLED: Final = timedelta(minutes=10)


@dataclass(slots=True)
class _DeletedLines:
    lines: int = 0
    bytes: int = 0


class ElasticRetention:
    """Retention of lines. Thread-safe. Raises ``LogStoreUnavailable``."""

    def __init__(
        self, connection: ElasticConnection, records: StreamRecords, names: IndexNames
    ) -> None:
        self._connection = connection
        self._records = records
        self._names = names

    def delete(
        self,
        *,
        project: int,
        job: int,
        before: datetime,
        levels: Collection[str] | None,
        limit: int,
    ) -> int:
        """See ``LogStore.delete``."""
        search = _of_job(project, job).filter("range", at={"lt": microseconds(before)})
        if levels is not None:
            search = search.filter("terms", level=sorted(levels))
        total = 0
        while total < limit:
            size = min(PORTION, limit - total)
            hits = self._oldest(search, size)
            total += self._delete(hits)
            if len(hits) < size:
                break
        return total

    def delete_oldest(self, *, project: int, job: int, keep_bytes: int, limit: int) -> int:
        """See ``LogStore.delete_oldest``."""
        held = sum(
            usage.bytes for usage in self.usages() if (usage.project, usage.job) == (project, job)
        )
        excess, total = held - keep_bytes, 0
        while excess > 0 and total < limit:
            size = min(PORTION, limit - total)
            hits = self._oldest(_of_job(project, job), size)
            chosen: list[Answer] = []
            for hit in hits:
                if excess <= 0:
                    break
                chosen.append(hit)
                excess -= hit["_source"]["bytes"]
            total += self._delete(chosen)
            if len(hits) < size:
                break
        return total

    def usages(self) -> list[Usage]:
        """See ``LogStore.usages``."""
        usages_now = [Usage(*usage[:4], moment_of(usage[4])) for usage in self._records.usages()]
        return sorted(usages_now, key=lambda usage: (usage.project, usage.job))

    def prune(self, now: datetime) -> None:
        """See ``LogStore.prune``; also recounts streams after an interrupted deletion."""
        left = self._drop_empty_days(now)
        settled = microseconds(now - SETTLED)
        uncertain = Q("term", uncertain=True) & Q("range", updated_at={"lt": settled})
        self._recount(self._records.search(uncertain), left)
        # Whole days may have been deleted by the server's policy or by a person.
        young = microseconds(now - YOUNG)
        holding = Q("range", lines={"gt": 0}) & Q("range", last_at={"lt": young})
        gone = (
            known
            for known in self._records.search(holding & Q("range", updated_at={"lt": young}))
            if not left.issuperset(known.record.days)
        )
        self._recount(gone, left)
        silent = Q("range", updated_at={"lt": microseconds(now - SILENT)})
        for known in self._records.search(silent & Q("term", lines=0)):
            self._records.delete(known)

    # --- lines ----------------------------------------------------------------------------------

    def _oldest(self, search: Search, size: int) -> list[Answer]:
        self._connection.refresh(self._names.lines)
        search = search.sort("at", "stream", "boot_number", "seq").source(["stream", "bytes"])
        body = search.extra(size=size, track_total_hits=False).to_dict()
        hits: list[Answer] = self._connection.search(self._names.lines, body)["hits"]["hits"]
        return hits

    def _delete(self, hits: Sequence[Answer]) -> int:
        """Delete these lines, subtract them from the counts, and return how many still existed."""
        known = self._records.read({hit["_source"]["stream"] for hit in hits})
        self._records.change(known, _mark)
        results = self._connection.bulk(
            [
                BulkOperation({"delete": {"_index": hit["_index"], "_id": hit["_id"]}})
                for hit in hits
            ]
        )
        gone: dict[str, _DeletedLines] = {}
        for hit, result in zip(hits, results, strict=True):
            # 404: already deleted and counted by another process.
            if result.status in OK:
                source = hit["_source"]
                deleted = gone.setdefault(source["stream"], _DeletedLines())
                deleted.lines += 1
                deleted.bytes += source["bytes"]
        oldest = self._oldest_of(known)

        def count(record: StreamRecord) -> bool:
            deleted = gone.get(record.stream, _DeletedLines())
            record.forget(deleted.lines, deleted.bytes, oldest.get(record.stream))
            record.uncertain = False
            return True

        self._records.change(known, count)
        return sum(deleted.lines for deleted in gone.values())

    def _oldest_of(self, streams: Iterable[str]) -> dict[str, int]:
        """Return the time of the oldest line of each stream."""
        return {
            name: int(bucket["first_at"]["value"]) for name, bucket in self._counts(streams).items()
        }

    def _counts(self, streams: Iterable[str]) -> dict[str, Answer]:
        """Return the aggregated counts of each stream; streams without lines are missing."""
        names = sorted(streams)
        if not names:
            return {}
        self._connection.refresh(self._names.lines)
        counts = A("terms", field="stream", size=len(names))
        counts.metric("first_at", "min", field="at").metric("bytes", "sum", field="bytes")
        search = Search().filter("terms", stream=names).extra(size=0, track_total_hits=False)
        search.aggs.bucket("streams", counts)
        answer = self._connection.search(self._names.lines, search.to_dict())
        buckets = answer.get("aggregations", {"streams": {"buckets": []}})["streams"]["buckets"]
        return {bucket["key"]: bucket for bucket in buckets}

    # --- empty indexes and records ---------------------------------------------------------------

    def _drop_empty_days(self, now: datetime) -> set[str]:
        """Delete indexes of past days without lines; return the days that are left."""
        left: set[str] = set()
        young = day_of(now - YOUNG)
        blocked = self._connection.write_blocked(self._names.lines)
        for index, count in self._connection.counts(self._names.lines).items():
            day = self._names.day_of(index)
            # Blocked before: a process died between the block and the deletion.
            # Expected: lines that were reserved for this day while it was young may still be on
            # their way.
            keep = day >= young or (index not in blocked and (count or self._is_awaited(day)))
            if keep or not self._drop_if_empty(index):
                left.add(day)
        return left

    def _drop_if_empty(self, index: str) -> bool:
        """Delete an index unless it has lines. A write block keeps lines out until then.

        Writers that meet the block try again, and create the index again if it was deleted.
        """
        if not self._connection.block_writes(index):
            logger.warning("%s is empty and kept: deleting it needs the privilege manage", index)
            return False
        # Refresh first, or the count misses lines of the last second.
        self._connection.refresh(index)
        count = self._connection.counts(index).get(index)
        failpoints.hit("joblogs.elastic.counted")
        if count:
            self._connection.unblock_writes(index)
            return False
        self._connection.ask(
            lambda client: client.indices.delete(index=index, ignore_unavailable=True)
        )
        return True

    def _is_awaited(self, day: str) -> bool:
        self._connection.refresh(self._names.records)
        return next(self._records.search(Q("term", pending_days=day)), None) is not None

    def _recount(self, stored: Iterable[VersionedRecord], days: set[str]) -> None:
        """Set the counts of streams to the number of stored lines."""
        known = {versioned.record.stream: versioned for versioned in stored}
        counts = self._counts(known)

        def count(record: StreamRecord) -> bool:
            bucket: Any = counts.get(record.stream)
            lines, size = (bucket["doc_count"], int(bucket["bytes"]["value"])) if bucket else (0, 0)
            record.lines, record.bytes, record.uncertain = lines, size, False
            if bucket:
                record.first_at = int(bucket["first_at"]["value"])
            pending = {day for execution in record.executions for _f, _l, day in execution.pending}
            record.days = [day for day in record.days if day in days | pending]
            return True

        self._records.change(known, count)


def _of_job(project: int, job: int) -> Search:
    return Search().filter("term", project=project).filter("term", job=job)


def _mark(record: StreamRecord) -> bool:
    """Mark the counts as uncertain; return whether they were certain before."""
    changed = not record.uncertain
    record.uncertain = True
    return changed
