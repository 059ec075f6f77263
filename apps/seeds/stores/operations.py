"""What those who manage a frontier ask of its store, as it travels to the process that has it."""

from __future__ import annotations

import time
from typing import Any, TypeAlias

import msgspec

from apps.seeds.engine.errors import BadCall
from apps.seeds.engine.rules import FrontierRules
from apps.seeds.stores.base import Books, Reopened, SeedStore, Segment


class Operation(msgspec.Struct, frozen=True, tag_field="operation"):
    """Base of all; the tag names it."""


class ShowSegments(Operation, frozen=True, tag="segments"):
    """``list[Segment]``: all of them, now."""


class Reopen(Operation, frozen=True, tag="reopen"):
    """Let an ended seed be crawled again; no result."""

    segment: int
    key: str


class Forget(Operation, frozen=True, tag="forget"):
    """Take a seed away, so that its key is new again; no result."""

    segment: int
    key: str


class ReopenFailed(Operation, frozen=True, tag="reopen_failed"):
    """``Reopened``. ``target`` None: the segment of now."""

    source: int
    target: int | None = None


class DropSegment(Operation, frozen=True, tag="drop_segment"):
    """``Books``: the last ones of the segment."""

    segment: int
    leased_too: bool = False


AnyOperation: TypeAlias = ShowSegments | Reopen | Forget | ReopenFailed | DropSegment

# What each gives.
RESULTS: dict[type[Operation], Any] = {
    ShowSegments: list[Segment],
    Reopen: None,
    Forget: None,
    ReopenFailed: Reopened,
    DropSegment: Books,
}
_decoder: msgspec.msgpack.Decoder[AnyOperation] = msgspec.msgpack.Decoder(AnyOperation)


def decode_operation(raw: msgspec.Raw | bytes) -> AnyOperation:
    """Raises ``BadCall``."""
    try:
        return _decoder.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadCall(f"not an operation on seeds: {error}") from None


def perform(
    store: SeedStore, frontier: int, rules: FrontierRules, operation: AnyOperation, now: int
) -> Any:
    """Do it; what it gives can be encoded.

    Raises:
        SeedError: what the store refuses.
    """
    match operation:
        case ShowSegments():
            return store.segments(frontier)
        case Reopen(segment, key):
            return store.reopen(frontier, segment, key, now=now)
        case Forget(segment, key):
            return store.forget(frontier, segment, key, now=now)
        case ReopenFailed(source, target):
            if target is None:
                target = rules.segments(now)
            return store.reopen_failed(frontier, source, target, now=now)
        case DropSegment(segment, leased_too):
            return store.drop_segment(frontier, segment, leased_too=leased_too)


def now_ms() -> int:
    """The time as the stores count it."""
    return int(time.time() * 1000)
