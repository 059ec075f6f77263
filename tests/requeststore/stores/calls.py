"""Short words for what tests ask of a storage node."""

from __future__ import annotations

import os
from collections.abc import Sequence

from apps.requeststore.stores.base import (
    Finish,
    GiveBack,
    NewRequest,
    QueueEntry,
    Shard,
    StorageNode,
    StoredRequest,
    Take,
)

# Several test processes may share one server, and each drops its databases at the end; the
# children of one share its own.
PREFIX = os.environ.setdefault("CRAWLYARD_TEST_SHARDS", f"cytest{os.getpid()}")
SHARD = Shard(f"{PREFIX}_news", "requests_000")
NOW = 1_800_000_000_000
MINUTE = 60_000
DAY = 24 * 60 * MINUTE
# Everything older has expired.
CUTOFF = NOW - 7 * DAY
DEADLINE = NOW + 5 * MINUTE


def new(id_: int, ts: int = 0, data: bytes = b"", biz: str = "news") -> NewRequest:
    """``ts``: 0 for one that comes after the id."""
    return NewRequest(id_, biz, ts or NOW + id_, data or b"d%d" % id_)


def store(node: StorageNode, *ids: int, ts: int = 0, shard: Shard = SHARD) -> list[bool]:
    """Make the shard and put them in."""
    node.ensure(shard, delete_after_seconds=8 * 86_400)
    return node.insert(shard, [new(one, ts) for one in ids], by="web", now=NOW)


def take(
    node: StorageNode,
    *ids: int,
    ts: int = 0,
    owner: str = "w1",
    now: int = NOW,
    deadline: int = DEADLINE,
    cutoff: int = CUTOFF,
) -> list[Take]:
    """By their entries."""
    entries = [QueueEntry(one, "news", ts or NOW + one) for one in ids]
    return node.take(SHARD, entries, owner=owner, now=now, deadline=deadline, cutoff=cutoff)


def finish(
    node: StorageNode, *ids: int, tries: int = 1, flag: int = 1, owner: str = "w1", now: int = NOW
) -> list[str]:
    """The codes."""
    ends = [Finish(one, tries, flag, b'{"status":200}', "fine") for one in ids]
    return [str(one) for one in node.finish(SHARD, ends, owner=owner, now=now)]


def give_back(
    node: StorageNode, *ids: int, tries: int = 1, owner: str = "w1", now: int = NOW
) -> list[str]:
    """The codes."""
    ends = [GiveBack(one, tries, "no answer") for one in ids]
    return [str(one) for one in node.give_back(SHARD, ends, owner=owner, now=now)]


def reopen(node: StorageNode, *ids: int, flags: Sequence[int] = (1,)) -> list[bool]:
    """By somebody of the staff."""
    return node.reopen(SHARD, list(ids), flags=flags, by="ops", now=NOW, cutoff=CUTOFF)


def codes(takes: Sequence[Take]) -> list[str]:
    """Of takes."""
    return [str(one.code) for one in takes]


def one(node: StorageNode, id_: int) -> StoredRequest:
    """It is there."""
    (found,) = node.find(SHARD, [id_])
    assert found is not None
    return found


def story(node: StorageNode, id_: int) -> list[tuple[str, str]]:
    """What happened to it, and by whom."""
    return [(str(step.kind), step.by) for step in one(node, id_).steps]


def flags(node: StorageNode) -> dict[int, int]:
    """How many of each."""
    return dict(node.count(SHARD).by_flag)


def page_ids(node: StorageNode, **how: object) -> list[int]:
    """The ids of a page."""
    return [found.id for found in node.page(SHARD, biz="news", **how)]  # type: ignore[arg-type]  # a mix
