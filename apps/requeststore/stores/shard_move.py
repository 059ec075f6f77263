"""Moves requests between shards, so that each can be found all the time.

start_move (marked, cannot be leased) -> receive (copied) -> end_move (deleted)

After a crash, moving the same IDs again completes the move. A leased request stays until it is
returned or finished; an expired one stays until it is deleted, because its time may be closed in
the accounting of the other shard.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from apps.requeststore.engine.flags import EXPIRED, MOVING, TAKEN
from apps.requeststore.engine.placement import ShardPlace
from apps.requeststore.stores.base import StorageNode, StoredRequest
from yardkit import failpoints

Nodes = Callable[[str], StorageNode]
Target = Callable[[int], ShardPlace]

# Minimum time to expiry (ms) of a moved request: it must be in its new shard long before the
# accounting of its time is closed there.
MARGIN_MS: Final = 60_000


class Slice(msgspec.Struct, frozen=True):
    """Requests found by one look; ``after``: cursor for the next, None at the end."""

    movable: list[int]
    taken: list[int]
    in_place: int
    expired: int
    after: tuple[int, int] | None


class MoveResult(msgspec.Struct, frozen=True):
    """IDs by outcome: moved, still leased, or staying because expired."""

    moved: int
    taken: list[int]
    expired: int


def look(
    nodes: Nodes,
    source: ShardPlace,
    target: Target,
    *,
    biz: str,
    after: tuple[int, int] | None,
    limit: int,
    cutoff: int,
) -> Slice:
    """Return the next requests of the shard, newest first, by what is to be done with them."""
    page = nodes(source.node).page(source.shard, biz=biz, after=after, limit=limit)
    movable, taken = [], []
    in_place = expired = 0
    for request in page:
        if target(request.id) == source:
            in_place += 1
        elif request.flag == TAKEN:
            taken.append(request.id)
        elif request.flag != MOVING and is_over(request, cutoff):
            expired += 1
        else:
            movable.append(request.id)
    last = (page[-1].ts, page[-1].id) if len(page) == limit else None
    return Slice(movable, taken, in_place, expired, last)


def move(
    nodes: Nodes,
    source: ShardPlace,
    target: Target,
    ids: Sequence[int],
    *,
    by: str,
    now: int,
    cutoff: int,
) -> MoveResult:
    """Move requests, including those whose move was interrupted."""
    node = nodes(source.node)
    started = node.start_move(source.shard, ids, now=now)
    failpoints.hit("requeststore.move.started")
    held = [request for request in started if request is not None]
    staying = _staying(nodes, target, held, cutoff)
    going = [request for request in held if request.id not in staying]
    for place, group in _grouped(target, going).items():
        nodes(place.node).receive(place.shard, group, by=by, now=now)
    failpoints.hit("requeststore.move.received")
    if staying:
        node.undo_move(source.shard, sorted(staying))
    node.end_move(source.shard, [request.id for request in going])
    failpoints.hit("requeststore.move.ended")
    absent = [number for number, request in zip(ids, started, strict=True) if request is None]
    taken = [
        request.id
        for request in node.find(source.shard, absent)
        if request is not None and request.flag == TAKEN
    ]
    return MoveResult(len(ids) - len(taken) - len(staying), taken, len(staying))


def is_over(request: StoredRequest, cutoff: int) -> bool:
    """Return whether the request has expired or is about to."""
    return request.flag == EXPIRED or request.ts <= cutoff + MARGIN_MS


def _staying(
    nodes: Nodes, target: Target, held: Sequence[StoredRequest], cutoff: int
) -> frozenset[int]:
    """Return IDs that expired meanwhile and are not in the new shard yet."""
    over = [request for request in held if is_over(request, cutoff)]
    staying = []
    for place, group in _grouped(target, over).items():
        stored = nodes(place.node).find(place.shard, [request.id for request in group])
        staying += [
            request.id for request, there in zip(group, stored, strict=True) if there is None
        ]
    return frozenset(staying)


def _grouped(
    target: Target, requests: Sequence[StoredRequest]
) -> dict[ShardPlace, list[StoredRequest]]:
    groups: dict[ShardPlace, list[StoredRequest]] = {}
    for request in requests:
        groups.setdefault(target(request.id), []).append(request)
    return groups
