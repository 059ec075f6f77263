"""Storage node on MongoDB.

A single request is leased by one ``findAndModify`` with ID, biz and ts. A batch is marked by one
guarded update with a unique token and read by that token: each document changes atomically, of two
callers one wins, and a repeat after a lost answer changes nothing.
"""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from bson.int64 import Int64
from pymongo import UpdateOne
from pymongo.collection import Collection
from pymongo.errors import BulkWriteError, OperationFailure
from pymongo.monitoring import CommandListener

from apps.requeststore.engine.flags import EXPIRED, MOVING, NEW, TAKEN, is_final
from apps.requeststore.stores.base import (
    EndCode,
    Finish,
    GiveBack,
    HistoryStepKind,
    NewRequest,
    NodeHealth,
    QueueEntry,
    Shard,
    ShardSize,
    StoredRequest,
    Take,
    TakeCode,
)
from apps.requeststore.stores.checked import CheckedNode
from apps.requeststore.stores.guards import LeaseState, why_not_ended, why_not_taken
from apps.requeststore.stores.mongo import documents, queries
from apps.requeststore.stores.mongo.client import SERVER_SECONDS, Document, MongoConnection
from apps.requeststore.stores.mongo.documents import change_of, date, request_of, state_of, step_of
from apps.requeststore.stores.mongo.health import health_of
from apps.requeststore.stores.mongo.indexes import BY_FLAG, IN_HANDS, ensure_indexes
from apps.requeststore.stores.mongo.updates import BY_ID, among, remove, take_many, take_one, update

T = TypeVar("T")

_DUPLICATE: Final = 11000
_BAD_VALUE: Final = 2
_NAME: Final = re.compile(r"[a-z0-9_]{1,63}")
# Interval (seconds) of checking indexes: the collection may have been dropped.
_ENSURED_SECONDS: Final = 60.0


class MongoNode(CheckedNode):
    """See ``stores.base.StorageNode``. Connects at the first call.

    Raises:
        BadSetting: the URL is invalid.
    """

    def __init__(
        self,
        url: str,
        *,
        server_seconds: float = SERVER_SECONDS,
        listeners: list[CommandListener] | None = None,
    ) -> None:
        self._client = MongoConnection(url, server_seconds=server_seconds, listeners=listeners)
        # Shard -> (TTL in seconds, time of the check).
        self._ensured: dict[Shard, tuple[int | None, float]] = {}

    # --- storing ----------------------------------------------------------------------------

    def _ensure(self, shard: Shard, delete_after_seconds: int | None) -> None:
        seconds, looked = self._ensured.get(shard, (-1, 0.0))
        if seconds == delete_after_seconds and time.monotonic() - looked < _ENSURED_SECONDS:
            return
        with self._client.errors():
            ensure_indexes(self._client.collection(shard), delete_after_seconds)
        self._ensured[shard] = (delete_after_seconds, time.monotonic())

    def _insert(self, shard: Shard, requests: list[NewRequest], by: str, now: int) -> list[bool]:
        step = step_of(now, HistoryStepKind.STORED, by)
        old = self._store(shard, [documents.new_document(request, step) for request in requests])
        return [place not in old for place in range(len(requests))]

    def _receive(self, shard: Shard, requests: list[StoredRequest], by: str, now: int) -> int:
        step = step_of(now, HistoryStepKind.MOVED, by)
        old = self._store(shard, [documents.whole_document(request, step) for request in requests])
        return len(requests) - len(old)

    def _store(self, shard: Shard, new: list[Document]) -> set[int]:
        """Insert documents; return the positions of existing ones."""
        seconds, _looked = self._ensured.get(shard, (None, 0.0))
        self._ensure(shard, seconds)
        with self._client.errors():
            try:
                self._client.collection(shard).insert_many(new, ordered=False)
            except BulkWriteError as error:
                details = error.details or {}
                failed = details.get("writeErrors", [])
                if details.get("writeConcernErrors") or any(
                    error["code"] != _DUPLICATE for error in failed
                ):
                    raise
                return {error["index"] for error in failed}
        return set()

    # --- changing ---------------------------------------------------------------------------

    def _queued(self, shard: Shard, ids: list[int], by: str, now: int, again: bool) -> None:
        kind = HistoryStepKind.REQUEUED if again else HistoryStepKind.QUEUED
        which = {
            "_id": among(ids),
            "flag": {"$ne": MOVING},
            # Matches a missing field, too.
            "queued_at": {"$not": {"$gte": now}},
        }
        change = change_of({"queued_at": Int64(now)}, step_of(now, kind, by))
        self._run(shard, lambda found: update(found, which, change), 0)

    def _take(
        self,
        shard: Shard,
        entries: list[QueueEntry],
        owner: str,
        now: int,
        deadline: int,
        cutoff: int,
    ) -> list[Take]:
        token = secrets.token_hex(8)
        values = {"flag": TAKEN, "owner": owner, "deadline": Int64(deadline), "token": token}
        change = change_of(values, step_of(now, HistoryStepKind.TAKEN, owner), is_taken=True)
        fresh = [entry for entry in entries if entry.ts > cutoff]
        work = take_one if len(fresh) == 1 else take_many
        taken: dict[int, StoredRequest] = {}
        if fresh:
            taken = self._run(shard, lambda found: work(found, fresh, change, token, now), taken)
        states = self._states(shard, [entry.id for entry in entries if entry.id not in taken])
        return [
            Take(TakeCode.TAKEN, taken[entry.id])
            if entry.id in taken
            else Take(why_not_taken(entry, states.get(entry.id), cutoff=cutoff))
            for entry in entries
        ]

    def _finish(self, shard: Shard, ends: list[Finish], owner: str, now: int) -> list[EndCode]:
        changes = [
            change_of(
                {
                    "flag": end.flag,
                    "deadline": Int64(0),
                    "finished_at": Int64(now),
                    "result": end.result,
                },
                step_of(now, HistoryStepKind.FINISHED, owner, end.text),
            )
            for end in ends
        ]
        return self._end(shard, ends, owner, changes)

    def _give_back(self, shard: Shard, ends: list[GiveBack], owner: str, now: int) -> list[EndCode]:
        changes = [
            change_of(
                {"flag": NEW, "deadline": Int64(0), "queued_at": Int64(0)},
                step_of(now, HistoryStepKind.RETURNED, owner, end.text),
            )
            for end in ends
        ]
        return self._end(shard, ends, owner, changes)

    def _end(
        self,
        shard: Shard,
        ends: Sequence[Finish | GiveBack],
        owner: str,
        changes: list[list[Document]],
    ) -> list[EndCode]:
        token = secrets.token_hex(8)
        for change in changes:
            change[0]["$set"]["token"] = token
        updates = [
            UpdateOne(
                {"_id": end.id, "flag": TAKEN, "owner": owner, "tries": end.tries},
                change,
                hint=BY_ID,
            )
            for end, change in zip(ends, changes, strict=True)
        ]

        def work(found: Collection[Document]) -> int:
            return found.bulk_write(updates, ordered=False).matched_count if updates else 0

        if self._run(shard, work, 0) == len(ends):
            return [EndCode.DONE] * len(ends)
        which = {"_id": among(end.id for end in ends), "token": token}
        done: set[int] = self._run(
            shard,
            lambda found: {
                document["_id"] for document in found.find(which, {"_id": 1}, hint=BY_ID)
            },
            set(),
        )
        states = self._states(shard, [end.id for end in ends if end.id not in done])
        return [
            EndCode.DONE if end.id in done else why_not_ended(end, states.get(end.id), owner=owner)
            for end in ends
        ]

    def _states(self, shard: Shard, ids: list[int]) -> dict[int, LeaseState]:
        if not ids:
            return {}
        which = {"_id": among(ids)}
        return self._run(
            shard,
            lambda found: {
                document["_id"]: state_of(document)
                for document in found.find(which, documents.STATE)
            },
            {},
        )

    # --- reading ----------------------------------------------------------------------------

    def _find(self, shard: Shard, ids: list[int]) -> list[StoredRequest]:
        return self._run(
            shard,
            lambda found: [request_of(document) for document in found.find({"_id": among(ids)})],
            [],
        )

    def _page(
        self,
        shard: Shard,
        biz: str,
        flag: int | None,
        since: int,
        until: int,
        after: tuple[int, int],
        limit: int,
    ) -> list[StoredRequest]:
        return self._run(
            shard, lambda found: queries.page(found, biz, flag, since, until, after, limit), []
        )

    def _orphans(self, shard: Shard, before: int, cutoff: int, limit: int) -> list[QueueEntry]:
        return self._run(shard, lambda found: queries.orphans(found, before, cutoff, limit), [])

    def _forgotten(self, shard: Shard, before: int, cutoff: int, limit: int) -> list[QueueEntry]:
        return self._run(shard, lambda found: queries.forgotten(found, before, cutoff, limit), [])

    def _count(self, shard: Shard, since: int, until: int) -> dict[int, int]:
        return self._run(shard, lambda found: queries.count(found, since, until), {})

    def _oldest(self, shard: Shard, flag: int) -> int | None:
        return self._run(shard, lambda found: queries.oldest(found, flag), None)

    def _size(self, shard: Shard) -> ShardSize:
        return self._run(shard, queries.size, ShardSize(0, 0))

    # --- sweeping and moving ----------------------------------------------------------------

    def _overdue(
        self, shard: Shard, now: int, cutoff: int, limit: int, by: str
    ) -> list[StoredRequest]:
        late = {
            **documents.REQUEST,
            "flag": TAKEN,
            "deadline": {"$lte": now},
            "ts": {"$gt": date(cutoff)},
        }
        token = secrets.token_hex(8)
        values = {
            "flag": NEW,
            "owner": "",
            "deadline": Int64(0),
            "queued_at": Int64(0),
            "token": token,
        }
        change = change_of(values, step_of(now, HistoryStepKind.OVERDUE, by))

        def work(found: Collection[Document]) -> list[StoredRequest]:
            cursor = found.find(late, {"owner": 1}, hint=IN_HANDS).sort("deadline").limit(limit)
            owners = {document["_id"]: document.get("owner") or "" for document in cursor}
            if not owners:
                return []
            update(found, {**late, "_id": among(owners)}, change)
            which = {"_id": among(owners), "token": token}
            mine = found.find(which, documents.SHORT, hint=BY_ID)
            return [request_of(document, owner=owners[document["_id"]]) for document in mine]

        return self._run(shard, work, [])

    def _expire(self, shard: Shard, cutoff: int, limit: int, by: str, now: int) -> int:
        old = {**documents.REQUEST, "flag": {"$in": [NEW, TAKEN]}, "ts": {"$lte": date(cutoff)}}
        values = {"flag": EXPIRED, "deadline": Int64(0), "finished_at": Int64(now)}
        change = change_of(values, step_of(now, HistoryStepKind.EXPIRED, by))

        def work(found: Collection[Document]) -> int:
            ids = [
                document["_id"]
                for document in found.find(old, {"_id": 1}, hint=BY_FLAG).limit(limit)
            ]
            return update(found, {**old, "_id": among(ids)}, change) if ids else 0

        return self._run(shard, work, 0)

    def _delete(self, shard: Shard, before: int, limit: int) -> int:
        def work(found: Collection[Document]) -> int:
            flags = [flag for flag in queries.flags(found) if is_final(flag)]
            old = {**documents.REQUEST, "flag": {"$in": flags}, "ts": {"$lt": date(before)}}
            ids = [
                document["_id"]
                for document in found.find(old, {"_id": 1}, hint=BY_FLAG).limit(limit)
            ]
            return remove(found, {**old, "_id": among(ids)}) if ids else 0

        return self._run(shard, work, 0)

    def _reopen(
        self, shard: Shard, ids: list[int], flags: list[int], by: str, now: int, cutoff: int
    ) -> list[int]:
        ended = {"_id": among(ids), "flag": {"$in": flags}, "ts": {"$gt": date(cutoff)}}
        token = secrets.token_hex(8)
        values = {"flag": NEW, **documents.untouched(), "token": token}
        change = change_of(values, step_of(now, HistoryStepKind.REOPENED, by))

        def work(found: Collection[Document]) -> list[int]:
            update(found, ended, change)
            mine = found.find({"_id": among(ids), "token": token}, {"_id": 1}, hint=BY_ID)
            return [document["_id"] for document in mine]

        return self._run(shard, work, [])

    def _start_move(self, shard: Shard, ids: list[int]) -> list[StoredRequest]:
        which = {"_id": among(ids), "flag": {"$nin": [TAKEN, MOVING]}}
        # In one bulk write: no reader sees the one without the other.
        change = [{"$set": {"was": "$flag", "flag": MOVING}}]

        def work(found: Collection[Document]) -> list[StoredRequest]:
            update(found, which, change)
            moving = found.find({"_id": among(ids), "flag": MOVING}, hint=BY_ID)
            return [
                request_of({**document, "flag": document.get("was", NEW)}) for document in moving
            ]

        return self._run(shard, work, [])

    def _undo_move(self, shard: Shard, ids: list[int]) -> int:
        which = {"_id": among(ids), "flag": MOVING}
        change = [{"$set": {"flag": {"$ifNull": ["$was", NEW]}}}]
        return self._run(shard, lambda found: update(found, which, change), 0)

    def _end_move(self, shard: Shard, ids: list[int]) -> int:
        which = {"_id": among(ids), "flag": MOVING}
        return self._run(shard, lambda found: remove(found, which), 0)

    # --- the node ---------------------------------------------------------------------------

    def shards(self, prefix: str) -> list[Shard]:
        with self._client.errors():
            names = self._client.connected().list_database_names()
            return [
                Shard(name, collection)
                for name in sorted(names)
                if name.startswith(prefix)
                for collection in sorted(self._client.database(name).list_collection_names())
                if _NAME.fullmatch(collection)
            ]

    def _drop(self, shard: Shard) -> None:
        self._ensured.pop(shard, None)
        with self._client.errors():
            self._client.collection(shard).drop()

    def health(self) -> NodeHealth:
        with self._client.errors():
            return health_of(self._client.connected())

    def close(self) -> None:
        self._client.close()

    def _run(self, shard: Shard, work: Callable[[Collection[Document]], T], nothing: T) -> T:
        """Run ``work``; a missing shard counts as empty, and lost indexes are made again."""
        with self._client.errors():
            collection = self._client.collection(shard)
            try:
                return work(collection)
            except OperationFailure as error:
                if not _lacks_an_index(error):
                    raise
            if collection.name not in collection.database.list_collection_names():
                return nothing
            ensure_indexes(collection, self._ensured.get(shard, (None, 0.0))[0])
            return work(collection)


def _lacks_an_index(error: OperationFailure) -> bool:
    """Return whether an index named by ``hint`` is missing."""
    details = error.details or {}
    failed = [details, *details.get("writeErrors", [])]
    return any(
        error.get("code") == _BAD_VALUE and "hint" in str(error.get("errmsg", ""))
        for error in failed
    )
