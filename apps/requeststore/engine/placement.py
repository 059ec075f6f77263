"""Mapping from biz and ID to node, database, collection and queue.

``Placement(...).place(id, ts)`` is where a request is stored, ``.candidates(id)`` where it may be
found.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from apps.requeststore.engine.biz import Balance, Biz, Epoch
from apps.requeststore.engine.shard import Shard
from yardkit.snowflake import decode

_MASK: Final = (1 << 64) - 1


class ShardPlace(msgspec.Struct, frozen=True, order=True):
    """Shard on a storage node."""

    node: str
    shard: Shard


def database_of(prefix: str, project_id: int, name: str, biz: Biz) -> str:
    """Return ``crawlyard_p7_news``: a database belongs to one project."""
    return f"{prefix}_p{project_id}_{biz.database or name}"


def collection_of(biz: Biz, split: int) -> str:
    """Return ``requests_003``."""
    return f"{biz.collection}_{split:03d}"


def queue_of(project_id: int, name: str, biz: Biz) -> str:
    """Return ``p7.news``; adapters add their prefix."""
    return f"p{project_id}.{biz.queue or name}"


def split_of(number: int, epoch: Epoch) -> int:
    """Return the split of an ID under this epoch: ``id mod n``, or its consistent hash."""
    if epoch.balance is Balance.MODULO:
        return number % epoch.splits
    return _jump(_mixed(number), epoch.splits)


class Placement:
    """Places of one biz. Immutable and thread-safe."""

    def __init__(self, *, prefix: str, project_id: int, name: str, biz: Biz) -> None:
        self._biz = biz
        self._database = database_of(prefix, project_id, name, biz)
        self._since = [epoch.since for epoch in biz.epochs]
        self._by_epoch = [self._places_of(epoch) for epoch in biz.epochs]
        # Newest epoch first: most look-ups are for recent requests.
        self.places: tuple[ShardPlace, ...] = tuple(
            dict.fromkeys(place for places in reversed(self._by_epoch) for place in places)
        )

    def place(self, number: int, ts: int) -> ShardPlace:
        """Return the place of a request stored at ``ts`` (ms): by the last epoch that had begun,
        or the first one for earlier times.
        """
        index = max(bisect_right(self._since, ts), 1) - 1
        return self._by_epoch[index][split_of(number, self._biz.epochs[index])]

    def group(self, pairs: Iterable[tuple[int, int]]) -> dict[ShardPlace, list[int]]:
        """Group positions of (ID, ts) pairs by place, in their order."""
        groups: dict[ShardPlace, list[int]] = {}
        for position, (number, ts) in enumerate(pairs):
            groups.setdefault(self.place(number, ts), []).append(position)
        return groups

    def candidates(
        self, number: int, ts: int | None = None, former: Sequence[ShardPlace] = ()
    ) -> list[ShardPlace]:
        """Return every place where the request may be, the likeliest first.

        Without ``ts`` the time in the ID is used. Then follow its places under other epochs (after
        a re-balance, or from a producer that did not know a new epoch), all others, and ``former``
        places that no epoch names any more.
        """
        first = self.place(number, time_of(number) if ts is None else ts)
        return list(dict.fromkeys([first, *self.by_epochs(number), *self.places, *former]))

    def by_epochs(self, number: int) -> list[ShardPlace]:
        """Return the places of an ID under each epoch, newest epoch first, without duplicates."""
        pairs = zip(reversed(self._biz.epochs), reversed(self._by_epoch), strict=True)
        shards = [places[split_of(number, epoch)] for epoch, places in pairs]
        return list(dict.fromkeys(shards))

    def _places_of(self, epoch: Epoch) -> list[ShardPlace]:
        return [
            ShardPlace(
                epoch.nodes[split % len(epoch.nodes)],
                Shard(self._database, collection_of(self._biz, split)),
            )
            for split in range(epoch.splits)
        ]


def time_of(number: int) -> int:
    """Return the Unix ms in a Snowflake ID; meaningless for other IDs."""
    return round(decode(number)[0].timestamp() * 1000)


def _jump(key: int, buckets: int) -> int:
    """Jump consistent hash (Lamping and Veach): more buckets move keys to new buckets only."""
    bucket, step = -1, 0
    while step < buckets:
        bucket = step
        key = (key * 2862933555777941757 + 1) & _MASK
        step = int((bucket + 1) * ((1 << 31) / ((key >> 33) + 1)))
    return bucket


def _mixed(number: int) -> int:
    """Scatter consecutive IDs (finalizer of SplitMix64)."""
    key = (number + 0x9E3779B97F4A7C15) & _MASK
    key = ((key ^ (key >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    key = ((key ^ (key >> 27)) * 0x94D049BB133111EB) & _MASK
    return key ^ (key >> 31)
