"""Management operations on a store, as sent to the process that owns it.

All are short: work on many seeds is split into slices, one call each.
"""

from __future__ import annotations

import time
from typing import Any, Final, TypeAlias

import msgspec

from apps.seeds.engine.errors import BadCall, BadSeed
from apps.seeds.engine.keys import key_hash, key_resolver
from apps.seeds.engine.rules import FrontierRules, NewPlace
from apps.seeds.engine.seeds import FIRST_TIME, LAST_TIME, MAX_RETRY_LIMIT, URGENT_DUE, Seed
from apps.seeds.engine.segments import segment_resolver, time_zone
from apps.seeds.stores.base import (
    Known,
    MovedSlice,
    ReopenedSlice,
    SeedPage,
    SeedStore,
    Segment,
    SegmentCounts,
)
from yardkit.nesting import check_msgpack
from yardkit.protocol import SeedAnswer

# Frontier number under which the seeds of a frontier are staged during a move.
_STAGING: Final = 1 << 31


class StoreOperation(msgspec.Struct, frozen=True, tag_field="operation"):
    """Base class of all operations; the tag identifies the operation in a message."""


class Grouping(msgspec.Struct, frozen=True):
    """Rules that determine the segment and key of a seed, in the notation of the frontier form."""

    segments: str
    time_zone: str
    keys: str
    ignored_parameters: list[str] | None = None

    def rules(self) -> FrontierRules:
        """Return the parsed rules. Raises ``InvalidFrontierSetting``."""
        return FrontierRules(
            segments=segment_resolver(self.segments, time_zone(self.time_zone)),
            keys=key_resolver(self.keys, self.ignored_parameters),
        )


class ShowSegments(StoreOperation, frozen=True, tag="segments"):
    """Return ``list[Segment]`` with current counts. ``staged``: segments staged by a move."""

    staged: bool = False


class FindSeed(StoreOperation, frozen=True, tag="find"):
    """Return ``Known | None``: the seed stored under a key."""

    segment: int
    key: str


class Reopen(StoreOperation, frozen=True, tag="reopen"):
    """Make a finished seed pending again; no result."""

    segment: int
    key: str


class Forget(StoreOperation, frozen=True, tag="forget"):
    """Delete a seed, so that its key counts as new; no result."""

    segment: int
    key: str


class ReopenFailedSlice(StoreOperation, frozen=True, tag="reopen_failed_slice"):
    """Return ``ReopenedSlice``: failed seeds among the next ``limit`` seeds after the hash
    ``after``.

    ``target`` None: the current segment.
    """

    source: int
    target: int | None = None
    after: bytes = b""
    limit: int = 1000


class DropSegment(StoreOperation, frozen=True, tag="drop_segment"):
    """Return ``SegmentCounts``: the last counts of the deleted segment."""

    segment: int
    leased_too: bool = False
    staged: bool = False


class ReadSegment(StoreOperation, frozen=True, tag="read"):
    """Return ``SeedPage``: the next ``limit`` seeds after the hash ``after``."""

    segment: int
    after: bytes = b""
    limit: int = 1000


class Restore(StoreOperation, frozen=True, tag="restore"):
    """Return ``list[SeedAnswer]``: seeds added with state and times, placed by the frontier's
    rules.
    """

    seeds: list[Known]


class RegroupSlice(StoreOperation, frozen=True, tag="regroup"):
    """Return ``Regrouped``: where the next seeds of a segment would belong by other rules."""

    segment: int
    grouping: Grouping
    after: bytes = b""
    limit: int = 1000


class MoveSlice(StoreOperation, frozen=True, tag="move"):
    """Return ``MovedSlice``: a slice is staged beside the frontier, placed by ``grouping``.

    ``grouping`` None: a staged slice is put back into the frontier.
    """

    segment: int
    grouping: Grouping | None
    after: bytes = b""
    limit: int = 1000


class Regrouped(msgspec.Struct, frozen=True):
    """New segment, new hash and old hash of each seed; ``kept``: see ``MovedSlice``."""

    places: list[tuple[int, bytes, bytes]]
    kept: int
    after: bytes | None


AnyOperation: TypeAlias = (
    ShowSegments
    | FindSeed
    | Reopen
    | Forget
    | ReopenFailedSlice
    | DropSegment
    | ReadSegment
    | Restore
    | RegroupSlice
    | MoveSlice
)

# Result type of each operation.
RESULTS: dict[type[StoreOperation], Any] = {
    ShowSegments: list[Segment],
    FindSeed: Known | None,
    Reopen: None,
    Forget: None,
    ReopenFailedSlice: ReopenedSlice,
    DropSegment: SegmentCounts,
    ReadSegment: SeedPage,
    Restore: list[SeedAnswer],
    RegroupSlice: Regrouped,
    MoveSlice: MovedSlice,
}
_decoder: msgspec.msgpack.Decoder[AnyOperation] = msgspec.msgpack.Decoder(AnyOperation)


def decode_operation(raw: msgspec.Raw | bytes) -> AnyOperation:
    """Decode an operation. Raises ``BadCall``."""
    try:
        check_msgpack(bytes(raw))
        return _decoder.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadCall(f"not an operation on seeds: {error}") from None


def perform(
    store: SeedStore, frontier: int, rules: FrontierRules, operation: AnyOperation, now: int
) -> Any:
    """Execute an operation; return its result, which can be encoded.

    Raises:
        SeedError: the store rejects the operation.
    """
    match operation:
        case ShowSegments(staged):
            return store.segments(_number(frontier, staged))
        case FindSeed(segment, key):
            return store.lookup(frontier, segment, key)
        case Reopen(segment, key):
            return store.reopen(frontier, segment, key, now=now)
        case Forget(segment, key):
            return store.forget(frontier, segment, key, now=now)
        case ReopenFailedSlice(source, target, after, limit):
            if target is None:
                target = rules.segments(now)
            return store.reopen_failed_slice(
                frontier, source, target, after=after, limit=limit, now=now
            )
        case DropSegment(segment, leased_too, staged):
            return store.drop_segment(_number(frontier, staged), segment, leased_too=leased_too)
        case ReadSegment(segment, after, limit):
            return store.read(frontier, segment, after=after, limit=limit)
        case Restore(seeds):
            return _restore(store, frontier, rules, seeds, now)
        case RegroupSlice(segment, grouping, after, limit):
            return _regroup(store, frontier, segment, grouping, after, limit)
        case MoveSlice(segment, grouping, after, limit):
            source, target = _number(frontier, grouping is None), _number(frontier, bool(grouping))
            regroup = _as_it_is if grouping is None else grouping.rules().regroup
            return store.move(source, segment, target, regroup, after=after, limit=limit, now=now)


def _number(frontier: int, staged: bool) -> int:
    return frontier | _STAGING if staged else frontier


def _as_it_is(segment: int, key: str, _data: str, due: int) -> NewPlace:
    return NewPlace(segment, key, due, kept=False)


def _regroup(
    store: SeedStore, frontier: int, segment: int, grouping: Grouping, after: bytes, limit: int
) -> Regrouped:
    regroup = grouping.rules().regroup
    page = store.read(frontier, segment, after=after, limit=limit)
    places = []
    kept = 0
    for seed in page.seeds:
        new = regroup(segment, seed.key, seed.data, seed.due)
        old_hash = key_hash(seed.key)
        new_hash = old_hash if new.key == seed.key else key_hash(new.key)
        places.append((new.segment, new_hash, old_hash))
        kept += new.kept
    return Regrouped(places, kept, page.after)


def _restore(
    store: SeedStore, frontier: int, rules: FrontierRules, seeds: list[Known], now: int
) -> list[SeedAnswer]:
    """Add seeds by the frontier's rules; a rejected one does not affect the others."""
    answers: list[SeedAnswer | None] = []
    taken = []
    for seed in seeds:
        try:
            taken.append(_replaced(rules, seed))
            answers.append(None)
        except BadSeed as refusal:
            answers.append(SeedAnswer(refusal.code, text=str(refusal)))
    stored = iter(store.restore(frontier, taken, now=now))
    return [seed if seed is not None else _answer(next(stored)) for seed in answers]


def _answer(added: Any) -> SeedAnswer:
    return SeedAnswer("new" if added.new else "duplicate", added.since, added.state)


def _replaced(rules: FrontierRules, seed: Known) -> Known:
    """Return the seed with segment and key by ``rules``. Raises ``BadSeed``."""
    if not 0 <= seed.retry <= MAX_RETRY_LIMIT:
        raise BadSeed("bad_retry", f"retry {seed.retry} is outside 0 to {MAX_RETRY_LIMIT}")
    for name, time_of in (("added_at", seed.added_at), ("changed_at", seed.changed_at)):
        if not 0 <= time_of < LAST_TIME:
            raise BadSeed("bad_time", f"{name} {time_of} is not in ms between 1970 and 2100")
    active_at = seed.due if seed.due >= FIRST_TIME else None
    urgent = seed.due == URGENT_DUE
    resolved = rules.resolve(Seed(seed.data, active_at, seed.max_retry, seed.ext, urgent))
    return msgspec.structs.replace(
        seed, segment=resolved.segment, key=resolved.key, due=resolved.due, ext=resolved.ext
    )


def now_ms() -> int:
    """Return the current time in ms since 1970."""
    return int(time.time() * 1000)
