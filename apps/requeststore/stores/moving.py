"""Moving requests from one shard to another, so that each is found at every moment (seed S4.14).

    start_move (marked, nobody can take them) -> receive (copied) -> end_move (deleted)

Whoever dies in between leaves marked requests behind; moving the same ids once more completes it,
and changes nothing where it was complete. What somebody has taken stays until it is given back or
finished; what has expired stays until it is deleted, since its time may be closed in the books of
the other shard.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from apps.requeststore.engine.flags import EXPIRED, MOVING, TAKEN
from apps.requeststore.engine.sharding import Place
from apps.requeststore.stores.base import StorageNode, StoredRequest
from yardkit import failpoints

Nodes = Callable[[str], StorageNode]
Target = Callable[[int], Place]

# By so much a request must be younger than its time to live: it is in its new shard long before
# the counts of its time are closed there.
MARGIN_MS: Final = 60_000


class Slice(msgspec.Struct, frozen=True):
    """What one look at a shard found; ``after`` is where the next begins, None at the end."""

    movable: list[int]
    taken: list[int]
    in_place: int
    expired: int
    after: tuple[int, int] | None


class Moved(msgspec.Struct, frozen=True):
    """What became of the ids: in their new shard, still taken, or staying since they expired."""

    moved: int
    taken: list[int]
    expired: int


def look(
    nodes: Nodes,
    source: Place,
    target: Target,
    *,
    biz: str,
    after: tuple[int, int] | None,
    limit: int,
    cutoff: int,
) -> Slice:
    """The next requests of the shard, the newest first, by what shall become of them."""
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
    source: Place,
    target: Target,
    ids: Sequence[int],
    *,
    by: str,
    now: int,
    cutoff: int,
) -> Moved:
    """Move these; also what somebody had begun to move and could not end."""
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
    absent = [number for number, one in zip(ids, started, strict=True) if one is None]
    taken = [
        one.id for one in node.find(source.shard, absent) if one is not None and one.flag == TAKEN
    ]
    return Moved(len(ids) - len(taken) - len(staying), taken, len(staying))


def is_over(request: StoredRequest, cutoff: int) -> bool:
    """It has expired, or is about to."""
    return request.flag == EXPIRED or request.ts <= cutoff + MARGIN_MS


def _staying(
    nodes: Nodes, target: Target, held: Sequence[StoredRequest], cutoff: int
) -> frozenset[int]:
    """Those that have expired on their way and are not in their new shard yet."""
    over = [request for request in held if is_over(request, cutoff)]
    staying = []
    for place, group in _grouped(target, over).items():
        found = nodes(place.node).find(place.shard, [request.id for request in group])
        staying += [one.id for one, there in zip(group, found, strict=True) if there is None]
    return frozenset(staying)


def _grouped(target: Target, requests: Sequence[StoredRequest]) -> dict[Place, list[StoredRequest]]:
    groups: dict[Place, list[StoredRequest]] = {}
    for request in requests:
        groups.setdefault(target(request.id), []).append(request)
    return groups
