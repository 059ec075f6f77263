"""Indexes of a shard, one for each query; the first one deletes."""

from __future__ import annotations

from typing import Any, Final

from pymongo import ASCENDING, IndexModel
from pymongo.collection import Collection
from pymongo.errors import OperationFailure

from apps.requeststore.engine.errors import BadSetting
from apps.requeststore.engine.flags import NEW, TAKEN
from apps.requeststore.stores.mongo.client import Document, is_missing

# For count, page, expire and delete.
BY_FLAG: Final = "flag_ts_id"
# For orphans and forgotten entries.
WAITING: Final = "waiting"
# For overdue leases.
IN_HANDS: Final = "in_hands"
_TTL: Final = "ts_ttl"
_MOST_SECONDS: Final = 2**31 - 1


def ensure_indexes(collection: Collection[Document], delete_after_seconds: int | None) -> None:
    """Make missing indexes and change the TTL (None: keep it).

    Raises ``BadSetting`` when an existing index on ``ts`` cannot become a TTL index.
    """
    try:
        there = collection.index_information()
    except OperationFailure as error:
        if not is_missing(error):
            raise
        there = {}
    wanted = [
        IndexModel([("flag", ASCENDING), ("ts", ASCENDING), ("_id", ASCENDING)], name=BY_FLAG),
        IndexModel(
            [("queued_at", ASCENDING), ("ts", ASCENDING)],
            name=WAITING,
            partialFilterExpression={"flag": NEW},
        ),
        IndexModel(
            [("deadline", ASCENDING)], name=IN_HANDS, partialFilterExpression={"flag": TAKEN}
        ),
    ]
    # By key, not by name: another program may have created it.
    of_ts = next((index for index in there.values() if list(index["key"]) == [("ts", 1)]), None)
    seconds = None if delete_after_seconds is None else min(delete_after_seconds, _MOST_SECONDS)
    if of_ts is None and seconds is not None:
        wanted.append(IndexModel([("ts", ASCENDING)], name=_TTL, expireAfterSeconds=seconds))
    missing = [index for index in wanted if index.document["name"] not in there]
    if missing:
        collection.create_indexes(missing)
    if of_ts is not None and seconds is not None and of_ts.get("expireAfterSeconds") != seconds:
        _change(collection, seconds, of_ts)


def _change(collection: Collection[Document], seconds: int, there: dict[str, Any]) -> None:
    index = {"keyPattern": {"ts": 1}, "expireAfterSeconds": seconds}
    try:
        collection.database.command("collMod", collection.name, index=index)
    except OperationFailure as error:
        if "expireAfterSeconds" in there:
            raise
        # Before MongoDB 5.1 a plain index cannot be converted to a TTL index.
        raise BadSetting(
            f"{collection.full_name} has an index on ts without expireAfterSeconds, which this "
            "MongoDB cannot change: drop that index"
        ) from error
