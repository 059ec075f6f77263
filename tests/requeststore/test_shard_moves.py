"""Moving requests between shards: each is somewhere at every moment, and once at the end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from apps.requeststore.engine.flags import EXPIRED, MOVING, NEW, PROCESSED, TAKEN
from apps.requeststore.engine.placement import ShardPlace
from apps.requeststore.stores.base import (
    Finish,
    HistoryStepKind,
    NewRequest,
    QueueEntry,
    Shard,
    StorageNode,
    StoredRequest,
)
from apps.requeststore.stores.factory import open_node
from apps.requeststore.stores.shard_move import MARGIN_MS, MoveResult, look, move

NOW = 1_800_000_000_000
DAY = 86_400_000
CUTOFF = NOW - 7 * DAY
OLD = ShardPlace("one", Shard("crawlyard_p1_news", "requests_000"))
# Odd ids go to another node.
EVEN, ODD = OLD, ShardPlace("two", Shard("crawlyard_p1_news", "requests_001"))


def target(number: int) -> ShardPlace:
    return ODD if number % 2 else EVEN


class Killed(Exception):
    """Stands for the end of the process."""


class Nodes:
    """Two nodes on disk."""

    def __init__(self, folder: Path) -> None:
        self.known: dict[str, StorageNode] = {
            name: open_node(name, f"sqlite://{folder}/{name}") for name in ("one", "two")
        }

    def __call__(self, name: str) -> StorageNode:
        return self.known[name]

    def find(self, ids: Sequence[int]) -> list[StoredRequest | None]:
        """As a lookup does: in the old place, then in the new one."""
        found = []
        for number in ids:
            (here,) = self("one").find(OLD.shard, [number])
            there = target(number)
            (moved,) = self(there.node).find(there.shard, [number])
            found.append(here or moved)
        return found


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    made = Nodes(tmp_path)
    for place in (OLD, ODD):
        made(place.node).ensure(place.shard, delete_after_seconds=8 * 86_400)
    yield made
    for node in made.known.values():
        node.close()


def store(nodes: Nodes, *ids: int, ts: int = NOW - 5000) -> None:
    new = [NewRequest(number, "news", ts, b"data %d" % number) for number in ids]
    nodes("one").insert(OLD.shard, new, by="test", now=ts)


def take(nodes: Nodes, *ids: int) -> None:
    entries = [QueueEntry(number, "news", NOW - 5000) for number in ids]
    nodes("one").take(OLD.shard, entries, owner="w", now=NOW, deadline=NOW + 60_000, cutoff=CUTOFF)


def moved(nodes: Nodes, *ids: int, now: int = NOW, cutoff: int = CUTOFF) -> MoveResult:
    return move(nodes, OLD, target, ids, by="test", now=now, cutoff=cutoff)


@pytest.mark.covers("S4.14")
def test_a_look_tells_what_belongs_elsewhere(nodes: Nodes) -> None:
    store(nodes, *range(1, 11))
    store(nodes, 101, 102, ts=CUTOFF + MARGIN_MS)
    take(nodes, 3)
    whole = look(nodes, OLD, target, biz="news", after=None, limit=100, cutoff=CUTOFF)
    assert sorted(whole.movable) == [1, 5, 7, 9]
    assert (whole.taken, whole.in_place, whole.expired, whole.after) == ([3], 6, 1, None)
    # Piece by piece the same.
    after, pieces = None, []
    for _ in range(4):
        one = look(nodes, OLD, target, biz="news", after=after, limit=4, cutoff=CUTOFF)
        pieces += one.movable
        after = one.after
        if after is None:
            break
    assert sorted(pieces) == [1, 5, 7, 9]


@pytest.mark.covers("S4.14")
def test_moved_requests_keep_everything_they_had(nodes: Nodes) -> None:
    store(nodes, 1, 3)
    take(nodes, 3)
    done = Finish(3, 1, PROCESSED, b'{"status": 200}')
    nodes("one").finish(OLD.shard, [done], owner="w", now=NOW)
    before = nodes("one").find(OLD.shard, [1, 3])
    assert moved(nodes, 1, 3) == MoveResult(2, [], 0)
    assert nodes("one").find(OLD.shard, [1, 3]) == [None, None]
    for old, new in zip(before, nodes("two").find(ODD.shard, [1, 3]), strict=True):
        assert old is not None
        assert new is not None
        assert new.steps[-1].kind == HistoryStepKind.MOVED
        assert new.steps[:-1] == old.steps
        for name in ("id", "biz", "ts", "flag", "data", "tries", "result", "finished_at"):
            assert getattr(new, name) == getattr(old, name)


@pytest.mark.covers("S4.14")
def test_what_is_taken_stays_until_it_is_given_back(nodes: Nodes) -> None:
    store(nodes, 1, 3)
    take(nodes, 3)
    assert moved(nodes, 1, 3) == MoveResult(1, [3], 0)
    (still,) = nodes("one").find(OLD.shard, [3])
    assert still is not None
    assert still.flag == TAKEN
    nodes("one").finish(OLD.shard, [Finish(3, 1, PROCESSED)], owner="w", now=NOW)
    assert moved(nodes, 3) == MoveResult(1, [], 0)


@pytest.mark.covers("S4.14")
@pytest.mark.parametrize("point", ["started", "received", "ended"])
def test_whoever_dies_in_a_move_loses_nothing(
    nodes: Nodes, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store(nodes, *range(1, 20))
    odd = tuple(range(1, 20, 2))

    def hit(name: str) -> None:
        if name == f"requeststore.move.{point}":
            raise Killed

    monkeypatch.setattr("apps.requeststore.stores.shard_move.failpoints.hit", hit)
    with pytest.raises(Killed):
        moved(nodes, *odd)
    assert all(nodes.find(odd))
    # Nobody can take what is between the places.
    (first,) = nodes("one").find(OLD.shard, [1])
    assert (first is None) == (point == "ended")
    if first is not None:
        assert first.flag == MOVING
    monkeypatch.undo()
    # Meanwhile somebody has processed one in its new place: it stays as it is.
    if point != "started":
        entry = QueueEntry(1, "news", NOW - 5000)
        nodes("two").take(
            ODD.shard, [entry], owner="w", now=NOW, deadline=NOW + 1000, cutoff=CUTOFF
        )
        nodes("two").finish(ODD.shard, [Finish(1, 1, PROCESSED)], owner="w", now=NOW)
    assert moved(nodes, *odd) == MoveResult(len(odd), [], 0)
    assert nodes("one").count(OLD.shard).by_flag == {NEW: 9}
    ended = 0 if point == "started" else 1
    counts = nodes("two").count(ODD.shard)
    assert (counts.total, counts.of(PROCESSED)) == (10, ended)


@pytest.mark.covers("S4.14")
def test_what_expired_on_its_way_goes_back_where_it_was(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The counts of its time may be closed in its new shard by then."""
    store(nodes, 1, 3)

    def hit(name: str) -> None:
        raise Killed

    monkeypatch.setattr("apps.requeststore.stores.shard_move.failpoints.hit", hit)
    with pytest.raises(Killed):
        moved(nodes, 1, 3)
    monkeypatch.undo()
    late = NOW + 7 * DAY
    assert moved(nodes, 1, 3, now=late, cutoff=late - 7 * DAY) == MoveResult(0, [], 2)
    assert nodes("one").count(OLD.shard).by_flag == {NEW: 2}
    swept = nodes("one").expire(OLD.shard, cutoff=NOW, limit=10, by="sweep", now=late)
    assert swept == 2
    assert nodes("one").count(OLD.shard).by_flag == {EXPIRED: 2}
    assert nodes("two").count(ODD.shard).total == 0
