"""Guarded changes of documents by ID."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from bson.int64 import Int64
from pymongo import ReturnDocument, UpdateOne
from pymongo.collection import Collection
from pymongo.errors import AutoReconnect

from apps.requeststore.engine.flags import NEW, TAKEN
from apps.requeststore.stores.base import QueueEntry, StoredRequest
from apps.requeststore.stores.mongo import documents
from apps.requeststore.stores.mongo.client import Document
from apps.requeststore.stores.mongo.documents import date, request_of, state_of

# Forces the ID index, whatever plan is cached.
BY_ID: Final = "_id_"


def among(ids: Iterable[int]) -> Document:
    """Return the filter for these IDs."""
    return {"$in": [Int64(number) for number in ids]}


def _free(now: int) -> list[Document]:
    return [{"flag": NEW}, {"flag": TAKEN, "deadline": {"$lte": now}}]


def take_one(
    found: Collection[Document],
    entries: list[QueueEntry],
    change: list[Document],
    _token: str,
    now: int,
) -> dict[int, StoredRequest]:
    """Lease one request by findAndModify with ID, biz and ts."""
    (entry,) = entries
    document = found.find_one_and_update(
        {"_id": Int64(entry.id), "biz": entry.biz, "ts": date(entry.ts), "$or": _free(now)},
        change,
        return_document=ReturnDocument.AFTER,
        hint=BY_ID,
    )
    return {} if document is None else {entry.id: _shorter(found, [document])[0]}


def take_many(
    found: Collection[Document],
    entries: list[QueueEntry],
    change: list[Document],
    token: str,
    now: int,
) -> dict[int, StoredRequest]:
    """Lease requests by one guarded update with a token, then read them by the token."""
    # Checked beforehand: biz and ts of a request never change.
    states = {
        document["_id"]: state_of(document)
        for document in found.find({"_id": among(entry.id for entry in entries)}, documents.STATE)
    }
    ids = among(
        entry.id
        for entry in entries
        if (state := states.get(entry.id))
        and (state.biz, state.ts) == (entry.biz, entry.ts)
        and (state.flag == NEW or (state.flag == TAKEN and state.deadline <= now))
    )
    if not ids["$in"]:
        return {}
    update(found, {"_id": ids, "$or": _free(now)}, change)
    mine = found.find({"_id": ids, "token": token}, hint=BY_ID).to_list()
    return {request.id: request for request in _shorter(found, mine)}


def _shorter(found: Collection[Document], mine: list[Document]) -> list[StoredRequest]:
    """Return the leased requests, and cut histories that have become too long."""
    requests = [request_of(document) for document in mine]
    cuts = [
        UpdateOne(
            {"_id": document["_id"], "token": document["token"]},
            {"$set": {"steps": documents.stored_steps(request.steps)}},
            hint=BY_ID,
        )
        for request, document in zip(requests, mine, strict=True)
        if len(request.steps) < len(document["steps"])  # an array since it was leased
    ]
    if cuts:
        found.bulk_write(cuts, ordered=False)
    return requests


def update(found: Collection[Document], which: Document, change: list[Document]) -> int:
    """Update documents; return how many changed. Repeated once, which the driver does not do."""
    try:
        return found.update_many(which, change, hint=BY_ID).modified_count
    except AutoReconnect:
        return found.update_many(which, change, hint=BY_ID).modified_count


def remove(found: Collection[Document], which: Document) -> int:
    """Delete documents, with the same repeat."""
    try:
        return found.delete_many(which, hint=BY_ID).deleted_count
    except AutoReconnect:
        return found.delete_many(which, hint=BY_ID).deleted_count
