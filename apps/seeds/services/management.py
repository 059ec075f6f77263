"""Management calls on a frontier's seeds, sent to the seed service.

All functions may raise ``yardkit.seeds.SeedServiceAway`` and ``CallRefused``, whose ``code`` is
that of the engine's errors: ``unknown_key``, ``unknown_segment``, ``seed_in_use``,
``seed_not_final``, ...
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from apps.seeds.engine.errors import UnknownSegment
from apps.seeds.engine.segments import segment_text
from apps.seeds.models import Frontier
from apps.seeds.services.clients import client_of, manager_of
from apps.seeds.stores.base import ReopenedCount, ReopenedSlice, Segment, SegmentCounts
from apps.seeds.stores.operations import (
    RESULTS,
    AnyOperation,
    DropSegment,
    FindSeed,
    Forget,
    Reopen,
    ReopenFailedSlice,
    ShowSegments,
    now_ms,
)
from yardkit.protocol import Seed, SeedLookedUp
from yardkit.protocol.seeds import KnownSeed

# Limit of seeds per call, so that the service stays responsive to others.
SLICE: Final = 2000
# Timeout in seconds, long enough for a busy disk.
LONG_SECONDS: Final = 60.0


def manage(
    frontier: Frontier,
    operation: AnyOperation,
    *,
    timeout: float | None = None,
    patience: float = 0.0,
) -> Any:
    """Send a management operation; return its result."""
    raw = msgspec.Raw(msgspec.msgpack.encode(operation))
    result = manager_of(frontier, timeout=timeout, patience=patience).manage(raw)
    return msgspec.msgpack.decode(result, type=RESULTS[type(operation)])


def show_segments(frontier: Frontier, *, timeout: float | None = None) -> list[Segment]:
    """Return all segments with current counts; pages read ``SegmentReport`` instead."""
    segments: list[Segment] = manage(frontier, ShowSegments(), timeout=timeout)
    return segments


def segment_at(frontier: Frontier, time: int) -> int:
    """Return the segment that begins at ``time``, or else the one that contains it; both in ms.

    Raises:
        UnknownSegment: the frontier has neither.
        InvalidFrontierSetting: the frontier's rules cannot be loaded.
    """
    known = {existing.segment for existing in show_segments(frontier)}
    if time in known:
        return time
    segment = frontier.rules().segments(time)
    if segment not in known:
        raise UnknownSegment(f"there is no segment {segment_text(segment)}")
    return segment


def find_seed(frontier: Frontier, segment: int, key: str) -> KnownSeed | None:
    """Return the seed stored under a key; None if there is none."""
    known: KnownSeed | None = manage(frontier, FindSeed(segment, key))
    return known


def reopen(frontier: Frontier, segment: int, key: str) -> None:
    """Make a finished seed pending again."""
    manage(frontier, Reopen(segment, key))


def forget(frontier: Frontier, segment: int, key: str) -> None:
    """Delete a seed, so that its key counts as new."""
    manage(frontier, Forget(segment, key))


def reopen_failed(frontier: Frontier, source: int, target: int | None = None) -> ReopenedCount:
    """Add the failed seeds of a segment to the current segment, or to ``target``.

    Blocks until all slices are done; ``operations.start_operation`` leaves the work to a worker.
    """
    if target is None:
        # Computed once: the slices must not be split by midnight.
        target = frontier.rules().segments(now_ms())
    reopened = duplicates = 0
    after: bytes | None = b""
    while after is not None:
        done: ReopenedSlice = manage(frontier, ReopenFailedSlice(source, target, after, SLICE))
        reopened += done.reopened
        duplicates += done.duplicates
        after = done.after
    return ReopenedCount(reopened, duplicates)


def drop_segment(frontier: Frontier, segment: int, *, leased_too: bool = False) -> SegmentCounts:
    """Delete a whole segment; return its last counts."""
    books: SegmentCounts = manage(frontier, DropSegment(segment, leased_too), timeout=LONG_SECONDS)
    return books


def look_up(frontier: Frontier, seed: Seed) -> SeedLookedUp:
    """Return whether a seed would be new and, if not, since when it is known."""
    return client_of(frontier).look_up(seed)
