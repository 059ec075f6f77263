"""Documents of MongoDB, replaced by their identity or by the dataset's key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from apps.datasets.engine.item_types import Item
from apps.datasets.engine.targets.base import (
    Chunk,
    NoKey,
    TargetUnavailable,
    identified,
    identity_of,
)
from yardkit.errors import first_line

if TYPE_CHECKING:
    from pymongo import MongoClient

TIMEOUT_MS: Final = 10_000
# Errors of one write that concern the server: rights, a change of the primary, a full disk.
_PASSING: Final = frozenset({6, 7, 13, 89, 91, 189, 9001, 10107, 11600, 11602, 13435, 14031})
# A document of this key is there and is newer: the one given was to be inserted.
_DUPLICATE: Final = 11000
_MAX_LONG: Final = 2**63


class DocumentTarget:
    """One collection. The identity or key is ``_id``."""

    most_items = 1000
    by_place = False

    def __init__(
        self, url: str, database: str, collection: str, key_fields: Sequence[str] = ()
    ) -> None:
        self._url = url
        self._database = database
        self._collection = collection
        self._key_fields = key_fields
        self._client: MongoClient[Any] | None = None

    def write(self, chunk: Chunk) -> Mapping[int, str]:
        refused: dict[int, str] = {}
        writes: dict[str, tuple[int, Any]] = {}
        for place, item in enumerate(chunk.items):
            try:
                document = self._document(item)
            except NoKey as error:
                refused[place] = str(error)
            else:
                # The last one of a key.
                writes[document["_id"]] = (place, document)
        self._write(list(writes.values()), refused)
        return refused

    def _document(self, item: Item) -> dict[str, Any]:
        document = {name: _fitting(value) for name, value in identified(item).items()}
        return document | {"_id": identity_of(item, item.data, self._key_fields), "_at": item.at}

    def _write(self, writes: list[tuple[int, Any]], refused: dict[int, str]) -> None:
        from bson.errors import InvalidDocument
        from pymongo.errors import BulkWriteError, PyMongoError

        if not writes:
            return
        requests = [self._replacement(document) for _place, document in writes]
        try:
            self._open()[self._database][self._collection].bulk_write(requests, ordered=False)
        except BulkWriteError as error:
            self._refuse(error, writes, refused)
        except InvalidDocument as error:
            if len(writes) == 1:
                refused[writes[0][0]] = first_line(error)
                return
            middle = len(writes) // 2
            for part in (writes[:middle], writes[middle:]):
                self._write(part, refused)
        except PyMongoError as error:
            raise TargetUnavailable(first_line(error)) from error

    def _replacement(self, document: dict[str, Any]) -> Any:
        from pymongo import ReplaceOne

        chosen: dict[str, Any] = {"_id": document["_id"]}
        if self._key_fields:
            # Dead letters come again after newer items of their key, which stay.
            chosen["$nor"] = [
                {"_run": {"$gt": document["_run"]}},
                {"_run": document["_run"], "_at": {"$gt": document["_at"]}},
            ]
        return ReplaceOne(chosen, document, upsert=True)

    def _refuse(self, error: Any, writes: list[tuple[int, Any]], refused: dict[int, str]) -> None:
        """Note what is refused; all others are written."""
        details = error.details or {}
        found = details.get("writeErrors", [])
        for each in found:
            if "index" not in each or each.get("code") in _PASSING:
                raise TargetUnavailable(each.get("errmsg") or first_line(error)) from error
        if not found or details.get("writeConcernErrors"):
            raise TargetUnavailable(first_line(error)) from error
        for each in found:
            place, _document = writes[each["index"]]
            newer = self._key_fields and each.get("code") == _DUPLICATE
            if not (newer and each.get("keyPattern", {"_id": 1}) == {"_id": 1}):
                refused[place] = str(each.get("errmsg", "refused"))[:500]

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    def _open(self) -> MongoClient[Any]:
        if self._client is None:
            from pymongo import MongoClient
            from pymongo.errors import PyMongoError

            try:
                self._client = MongoClient(
                    self._url,
                    serverSelectionTimeoutMS=TIMEOUT_MS,
                    connectTimeoutMS=TIMEOUT_MS,
                    socketTimeoutMS=3 * TIMEOUT_MS,
                    w="majority",
                    appname="crawlyard delivery",
                )
            except (PyMongoError, ValueError) as error:
                raise TargetUnavailable(first_line(error)) from error
        return self._client


def _fitting(value: Any) -> Any:
    """Return a value that BSON holds: whole numbers beyond 64 bit become text."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value if -_MAX_LONG <= value < _MAX_LONG else str(value)
    if isinstance(value, dict):
        return {name: _fitting(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_fitting(each) for each in value]
    return value
