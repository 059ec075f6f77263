"""Validation shared by the adapters; raises ``InvalidRequest``."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Final, TypeVar

from apps.requeststore.engine.entity import MAX_PRIORITY
from apps.requeststore.engine.errors import InvalidRequest, TooLarge
from apps.requeststore.engine.flags import MAX_FLAG, MOVING, is_own
from apps.requeststore.engine.limits import (
    MAX_BATCH,
    MAX_DATA_BYTES,
    MAX_ID,
    MAX_NAME,
    MAX_OWNER,
    MAX_RESULT_BYTES,
    MAX_TS,
)
from apps.requeststore.stores.base import (
    Finish,
    GiveBack,
    NewRequest,
    QueueEntry,
    Shard,
    StoredRequest,
)

T = TypeVar("T")

MAX_TRIES: Final = 1_000_000
_NAME: Final = re.compile(rf"[a-z0-9_]{{1,{MAX_NAME}}}")


def check_shard(shard: Shard) -> None:
    """Require names that need no quoting."""
    for name in (shard.database, shard.collection):
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise InvalidRequest(f"{name!r} is no name of a database or collection: a-z, 0-9, _")


def check_batch(batch: Sequence[object]) -> None:
    """Require at most ``MAX_BATCH`` items."""
    if len(batch) > MAX_BATCH:
        raise InvalidRequest(f"{len(batch)} at once; at most {MAX_BATCH}")


def check_limit(limit: int) -> None:
    """Require a positive limit."""
    _number("the limit", limit, 1, MAX_BATCH)


def check_time(name: str, value: int) -> None:
    """Require Unix ms that every store can keep as a date."""
    _number(name, value, 0, MAX_TS)


def check_times(**times: int) -> None:
    """Check several times."""
    for name, value in times.items():
        check_time(name, value)


def check_deadline(deadline: int, now: int) -> None:
    """Require a future deadline: a past one would let a batch lease a request twice."""
    if deadline <= now:
        raise InvalidRequest(f"the deadline {deadline} is not after {now}")


def check_span(since: int, until: int) -> None:
    """Check times that may exceed the range of stored ones."""
    _number("since", since, -MAX_ID, MAX_ID)
    _number("until", until, -MAX_ID, MAX_ID)


def check_cutoff(cutoff: int) -> None:
    """Check a cutoff; it may be before 1970, when nothing has expired."""
    _number("the cutoff", cutoff, -MAX_TS, MAX_TS)


def check_ids(ids: Sequence[int]) -> None:
    """Check a batch of IDs."""
    check_batch(ids)
    for id_ in ids:
        _number("the id", id_, 0, MAX_ID)


def check_by(by: str) -> None:
    """Check the name of a process or owner."""
    _text("the name", by, MAX_OWNER)


def check_owner(owner: str) -> None:
    """Check the name of an owner, which must not be empty."""
    check_by(owner)
    if not owner:
        raise InvalidRequest("an owner has a name")


def check_new(requests: Sequence[NewRequest]) -> None:
    """Check new requests. Raises ``TooLarge``, too."""
    check_batch(requests)
    for number, request in enumerate(requests):
        where = f"request {number}: "
        _number(f"{where}the id", request.id, 0, MAX_ID)
        _number(f"{where}ts", request.ts, 0, MAX_TS)
        _number(f"{where}the priority", request.priority, 0, MAX_PRIORITY)
        _text(f"{where}the biz", request.biz, MAX_NAME)
        _data(where, request.data)


def check_entries(entries: Sequence[QueueEntry]) -> None:
    """Check queue entries, which other programs may have written."""
    check_batch(entries)
    for number, entry in enumerate(entries):
        _number(f"entry {number}: the id", entry.id, 0, MAX_ID)
        _number(f"entry {number}: ts", entry.ts, 0, MAX_TS)
        _text(f"entry {number}: the biz", entry.biz, None)


def check_ends(ends: Sequence[Finish | GiveBack]) -> None:
    """Check flags, results and texts of ends and returns."""
    check_batch(ends)
    for number, end in enumerate(ends):
        where = f"end {number}: "
        _number(f"{where}the id", end.id, 0, MAX_ID)
        _number(f"{where}tries", end.tries, 0, MAX_TRIES)
        _text(f"{where}the text", end.text, None)
        if isinstance(end, Finish):
            if not (_is_int(end.flag) and is_own(end.flag)):
                raise InvalidRequest(f"{where}{end.flag!r} is no flag of an end: 1 to {MAX_FLAG}")
            _result(where, end.result)


def check_received(requests: Sequence[StoredRequest]) -> None:
    """Check whole requests from another node."""
    check_batch(requests)
    for number, request in enumerate(requests):
        where = f"request {number}: "
        _number(f"{where}the id", request.id, 0, MAX_ID)
        for name in ("ts", "deadline", "queued_at", "finished_at"):
            _number(f"{where}{name}", getattr(request, name), 0, MAX_TS)
        _number(f"{where}the priority", request.priority, 0, MAX_PRIORITY)
        _number(f"{where}tries", request.tries, 0, MAX_TRIES)
        _number(f"{where}the flag", request.flag, MOVING + 1, MAX_FLAG)
        _text(f"{where}the biz", request.biz, MAX_NAME)
        _text(f"{where}the owner", request.owner, MAX_OWNER)
        for step in request.steps:
            _number(f"{where}the time of a step", step.at, 0, MAX_TS)
            _text(f"{where}a step", step.by, MAX_OWNER)
            _text(f"{where}a step", step.text, None)
        _data(where, request.data)
        _result(where, request.result)


def portions(
    items: Iterable[T],
    key: Callable[[T], Hashable],
    *,
    most: int,
    size: Callable[[T], int] | None = None,
    most_bytes: int = 0,
) -> Iterator[list[tuple[int, T]]]:
    """Split into portions of limited size without duplicate keys, with positions.

    A repeated key comes in a later portion, so that a batch equals its items one by one.
    """
    waiting = list(enumerate(items))
    while waiting:
        again: list[tuple[int, T]] = []
        seen: set[Hashable] = set()
        portion: list[tuple[int, T]] = []
        held = 0
        for place, item in waiting:
            if key(item) in seen:
                again.append((place, item))
                continue
            seen.add(key(item))
            portion.append((place, item))
            held += size(item) if size else 0
            if len(portion) >= most or (size and held >= most_bytes):
                yield portion
                portion, held = [], 0
        if portion:
            yield portion
        waiting = again


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _number(name: str, value: object, least: int, most: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise InvalidRequest(f"{name} is {_shown(value)}: not a number from {least} to {most}")


def _text(name: str, value: object, most: int | None) -> None:
    if not isinstance(value, str):
        raise InvalidRequest(f"{name} is no text")
    if most is not None and len(value) > most:
        raise InvalidRequest(f"{name} has {len(value)} characters; at most {most}")
    if value.isascii() and "\0" not in value:
        return
    if "\0" in value:
        raise InvalidRequest(f"{name} has a NUL character")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InvalidRequest(f"{name} is no valid Unicode: it has half a surrogate pair") from None


def _data(where: str, data: object) -> None:
    if not isinstance(data, bytes):
        raise InvalidRequest(f"{where}the data is not bytes")
    if len(data) > MAX_DATA_BYTES:
        raise TooLarge(f"{where}{len(data)} bytes; at most {MAX_DATA_BYTES} are stored")


def _result(where: str, result: object) -> None:
    if not isinstance(result, bytes):
        raise InvalidRequest(f"{where}the result is not bytes")
    if len(result) > MAX_RESULT_BYTES:
        raise TooLarge(f"{where}a result of {len(result)} bytes; at most {MAX_RESULT_BYTES}")


def _shown(value: object) -> str:
    shown = repr(value)
    return shown if len(shown) <= 40 else f"{shown[:37]}..."
