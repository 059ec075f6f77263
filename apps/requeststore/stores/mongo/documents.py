"""Documents of requests, which other programs may write, too.

{_id: Long, biz, ts: Date, flag, data: BinData}: fields of the patent.
{priority, owner, deadline, tries, queued_at, finished_at, result, steps}: added, may be missing.

Added times are Unix ms; ``ts`` is a date, because TTL indexes need one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from bson.binary import Binary
from bson.datetime_ms import DatetimeMS
from bson.int64 import Int64

from apps.requeststore.engine.flags import NEW
from apps.requeststore.engine.limits import MAX_STEPS, MAX_TEXT, MAX_TS
from apps.requeststore.stores.base import HistoryStep, HistoryStepKind, NewRequest, StoredRequest
from apps.requeststore.stores.guards import LeaseState
from apps.requeststore.stores.mongo.client import Document
from apps.requeststore.stores.story import shortened

# All fields except the large ones.
SHORT: Final = {"data": 0, "steps": 0, "token": 0}
STATE: Final = dict.fromkeys(("biz", "ts", "flag", "owner", "deadline", "tries"), 1)
# Foreign documents that are no requests are ignored.
REQUEST: Final = {"_id": {"$type": ["int", "long"]}, "biz": {"$type": "string"}}
ENTRY: Final = {"biz": 1, "ts": 1}
# The year 1, the earliest date in many languages.
_MIN_TS: Final = -62_135_596_800_000


def date(milliseconds: int) -> DatetimeMS:
    """Return ``ts`` as stored, limited to the range of dates."""
    return DatetimeMS(max(_MIN_TS, min(milliseconds, MAX_TS)))


def new_document(request: NewRequest, step: list[Any]) -> Document:
    """Return the document of a new request."""
    return {
        "_id": Int64(request.id),
        "biz": request.biz,
        "ts": date(request.ts),
        "data": Binary(request.data),
        "flag": NEW,
        "priority": request.priority,
        **untouched(),
        "steps": [step],
    }


def untouched() -> Document:
    """Return the added fields of a request that was never leased."""
    return {
        "owner": "",
        "deadline": Int64(0),
        "tries": 0,
        "queued_at": Int64(0),
        "finished_at": Int64(0),
        "result": b"",
    }


def whole_document(request: StoredRequest, step: list[Any]) -> Document:
    """Return the document of a request from another shard."""
    return {
        "_id": Int64(request.id),
        "biz": request.biz,
        "ts": date(request.ts),
        "data": Binary(request.data),
        "flag": request.flag,
        "priority": request.priority,
        "owner": request.owner,
        "deadline": Int64(request.deadline),
        "tries": request.tries,
        "queued_at": Int64(request.queued_at),
        "finished_at": Int64(request.finished_at),
        "result": request.result,
        "steps": [*stored_steps(shortened(request.steps)), step],
    }


def step_of(at: int, kind: HistoryStepKind, by: str, text: str = "") -> list[Any]:
    """Return one step as stored."""
    return [Int64(at), kind.value, by, _line(text)]


def stored_steps(steps: list[HistoryStep]) -> list[list[Any]]:
    """Return a whole history as stored."""
    return [step_of(step.at, step.kind, step.by, step.text) for step in steps]


def change_of(values: Document, step: list[Any], *, is_taken: bool = False) -> list[Document]:
    """Return an update that sets values, adds a step and, for a lease, counts a try.

    An aggregation pipeline, which tolerates foreign documents with other types in the added
    fields. Leasing shortens histories; without leases the oldest steps are dropped.
    """
    changed = {name: {"$literal": value} for name, value in values.items()}
    steps = {"$cond": [{"$isArray": "$steps"}, "$steps", []]}
    added = {"$concatArrays": [steps, [{"$literal": step}]]}
    changed["steps"] = {"$slice": [added, -2 * MAX_STEPS]}
    if is_taken:
        counted = {"$and": [{"$isNumber": "$tries"}, {"$gte": ["$tries", 0]}]}
        changed["tries"] = {"$add": [{"$cond": [counted, "$tries", 0]}, 1]}
    return [{"$set": changed}]


def request_of(document: Document, **changed: Any) -> StoredRequest:
    """Return the request of a document, whole or without large fields; ``changed`` overrides."""
    values: dict[str, Any] = {
        "id": int(document["_id"]),
        "biz": _text(document.get("biz")),
        "ts": milliseconds_of(document.get("ts")),
        "flag": _whole(document.get("flag")),
        "data": _bytes(document.get("data")),
        "priority": _whole(document.get("priority")),
        "owner": _text(document.get("owner")),
        "deadline": _whole(document.get("deadline")),
        "tries": _whole(document.get("tries")),
        "queued_at": _whole(document.get("queued_at")),
        "finished_at": _whole(document.get("finished_at")),
        "result": _bytes(document.get("result")),
        "steps": shortened(list(_steps(document.get("steps")))),
    }
    return StoredRequest(**(values | changed))


def state_of(document: Document) -> LeaseState:
    """Return the fields that the guards compare."""
    return LeaseState(
        _text(document.get("biz")),
        milliseconds_of(document.get("ts")),
        _whole(document.get("flag")),
        _text(document.get("owner")),
        _whole(document.get("deadline")),
        _whole(document.get("tries")),
    )


def milliseconds_of(value: object) -> int:
    """Return Unix ms of a date, or of a number in its place."""
    return int(value) if isinstance(value, DatetimeMS) else _whole(value)


def _steps(value: object) -> Iterable[HistoryStep]:
    for step in value if isinstance(value, list) else ():
        if isinstance(step, list) and len(step) == 4 and step[1] in _KINDS:
            yield HistoryStep(
                _whole(step[0]), HistoryStepKind(step[1]), _text(step[2]), _text(step[3])
            )


_KINDS: Final = frozenset(kind.value for kind in HistoryStepKind)


def _line(text: str) -> str:
    return " ".join(text[: 2 * MAX_TEXT].split())[:MAX_TEXT] if text else ""


def _whole(value: object) -> int:
    return int(value) if isinstance(value, int | float) and value == value // 1 else 0


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _bytes(value: object) -> bytes:
    if isinstance(value, str):
        return value.encode()
    return bytes(value) if isinstance(value, bytes) else b""
