"""Queries of a shard, each with a hint to its index."""

from __future__ import annotations

from typing import Final

from pymongo import DESCENDING
from pymongo.collection import Collection

from apps.requeststore.engine.flags import MOVING, NEW
from apps.requeststore.stores.base import QueueEntry, ShardSize, StoredRequest
from apps.requeststore.stores.mongo import documents
from apps.requeststore.stores.mongo.client import Document
from apps.requeststore.stores.mongo.documents import date, milliseconds_of, request_of
from apps.requeststore.stores.mongo.indexes import BY_FLAG, WAITING

_SAMPLE: Final = 100


def flags(found: Collection[Document]) -> list[int]:
    """Return the existing flags, each by one index seek."""
    known = found.distinct("flag", {"flag": {"$gte": MOVING}})
    return sorted(flag for flag in known if isinstance(flag, int))


def page(
    found: Collection[Document],
    biz: str,
    flag: int | None,
    since: int,
    until: int,
    after: tuple[int, int],
    limit: int,
) -> list[StoredRequest]:
    """See ``StorageNode.page``."""
    last_ts, last_id = after
    which = {
        **documents.REQUEST,
        "flag": {"$in": flags(found) if flag is None else [flag]},
        "ts": {"$gte": date(since), "$lt": date(until), "$lte": date(last_ts)},
        "biz": biz,
        "$or": [{"ts": {"$lt": date(last_ts)}}, {"_id": {"$lt": last_id}}],
    }
    cursor = found.find(which, documents.SHORT, hint=BY_FLAG)
    cursor.sort([("ts", DESCENDING), ("_id", DESCENDING)]).limit(limit)
    return [request_of(document) for document in cursor]


def orphans(found: Collection[Document], before: int, cutoff: int, limit: int) -> list[QueueEntry]:
    """See ``StorageNode.orphans``; foreign documents have no ``queued_at``."""
    which = {
        **documents.REQUEST,
        "flag": NEW,
        "queued_at": {"$in": [0, None]},
        "ts": {"$gt": date(cutoff), "$lte": date(before)},
    }
    return _entries(found, which, "ts", limit)


def forgotten(
    found: Collection[Document], before: int, cutoff: int, limit: int
) -> list[QueueEntry]:
    """See ``StorageNode.forgotten``."""
    which = {
        **documents.REQUEST,
        "flag": NEW,
        "queued_at": {"$gt": 0, "$lte": before},
        "ts": {"$gt": date(cutoff)},
    }
    return _entries(found, which, "queued_at", limit)


def _entries(
    found: Collection[Document], which: Document, order: str, limit: int
) -> list[QueueEntry]:
    cursor = found.find(which, documents.ENTRY, hint=WAITING).sort(order).limit(limit)
    return [
        QueueEntry(int(document["_id"]), document["biz"], milliseconds_of(document["ts"]))
        for document in cursor
    ]


def count(found: Collection[Document], since: int, until: int) -> dict[int, int]:
    """Count by flag from the index alone."""
    which = {"flag": {"$in": flags(found)}, "ts": {"$gte": date(since), "$lt": date(until)}}
    counted = found.aggregate(
        [{"$match": which}, {"$group": {"_id": "$flag", "number": {"$sum": 1}}}], hint=BY_FLAG
    )
    return {int(document["_id"]): document["number"] for document in counted}


def oldest(found: Collection[Document], flag: int) -> int | None:
    """See ``StorageNode.oldest``."""
    cursor = found.find({"flag": flag}, {"ts": 1}, hint=BY_FLAG)
    for document in cursor.sort([("flag", 1), ("ts", 1)]).limit(1):
        return milliseconds_of(document["ts"])
    return None


def size(found: Collection[Document]) -> ShardSize:
    """Return the server's size, else an estimate from a sample."""
    number = found.estimated_document_count()
    if not number:
        return ShardSize(0, 0)
    for stats in found.aggregate([{"$collStats": {"storageStats": {}}}]):
        storage = stats["storageStats"]
        held = int(storage.get("storageSize", 0)) + int(storage.get("totalIndexSize", 0))
        if held:
            return ShardSize(number, held)
    sizes = [
        document["bytes"]
        for document in found.aggregate(
            [{"$limit": _SAMPLE}, {"$project": {"bytes": {"$bsonSize": "$$ROOT"}}}]
        )
    ]
    return ShardSize(number, round(number * sum(sizes) / max(len(sizes), 1)))
