"""Documents of MongoDB, replaced by their identity or by the dataset's key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from apps.datasets.engine.targets.base import Chunk, TargetUnavailable, as_json
from yardkit.errors import first_line

if TYPE_CHECKING:
    from pymongo import MongoClient

TIMEOUT_MS: Final = 10_000
_MAX_LONG: Final = 2**63


class DocumentTarget:
    """One collection. The identity or key is ``_id``."""

    def __init__(
        self, url: str, database: str, collection: str, key_fields: Sequence[str] = ()
    ) -> None:
        self._url = url
        self._database = database
        self._collection = collection
        self._key_fields = key_fields
        self._client: MongoClient[Any] | None = None

    def write(self, chunk: Chunk) -> Mapping[int, str]:
        from bson.errors import InvalidDocument
        from pymongo import ReplaceOne
        from pymongo.errors import BulkWriteError, PyMongoError

        refused: dict[int, str] = {}
        writes: list[Any] = []
        places: list[int] = []
        for place, item in enumerate(chunk.items):
            data = item.data
            identity: Any = item.id
            if self._key_fields:
                parts = [data.get(field) for field in self._key_fields]
                if any(part is None for part in parts):
                    missing = self._key_fields[parts.index(None)]
                    refused[place] = f"the key field {missing} has no value"
                    continue
                identity = as_json(parts).decode()
            document = {
                **{name: _fitting(value) for name, value in data.items()},
                "_id": identity,
                "_run": item.run,
                "_at": item.at,
                "_url": item.url,
            }
            writes.append(ReplaceOne({"_id": identity}, document, upsert=True))
            places.append(place)
        if not writes:
            return refused
        try:
            self._open()[self._database][self._collection].bulk_write(writes, ordered=True)
        except BulkWriteError as error:
            first = (error.details or {}).get("writeErrors", [{}])[0]
            if "index" not in first:
                raise TargetUnavailable(first_line(error)) from error
            # Those before it are written; those after it come with the repeat.
            bad = places[first["index"]]
            rest = Chunk(chunk.dataset, chunk.batch, chunk.offset, chunk.items[bad + 1 :])
            refused[bad] = str(first.get("errmsg", "refused"))[:500]
            later = self.write(rest) if rest.items else {}
            return refused | {bad + 1 + place: reason for place, reason in later.items()}
        except InvalidDocument as error:
            if len(chunk.items) == 1:
                return {0: first_line(error)}
            middle = len(chunk.items) // 2
            halves = (chunk.items[:middle], chunk.items[middle:])
            one, two = (
                self.write(Chunk(chunk.dataset, chunk.batch, chunk.offset, half)) for half in halves
            )
            return {**one, **{middle + place: reason for place, reason in two.items()}}
        except PyMongoError as error:
            raise TargetUnavailable(first_line(error)) from error
        return refused

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
