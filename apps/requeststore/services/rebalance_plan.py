"""Plan and progress of a re-balance."""

from __future__ import annotations

import msgspec
from django.conf import settings

from apps.requeststore.engine.biz import Biz, Epoch
from apps.requeststore.engine.placement import Placement, ShardPlace
from apps.requeststore.models import Rebalance, ShardReport
from apps.requeststore.services.store import BoundBiz
from apps.requeststore.stores.base import Shard
from apps.requeststore.stores.shard_move import Target


class RebalancePlan(msgspec.Struct, frozen=True):
    """Destination of the requests, fixed at the start."""

    database: str
    collection: str
    epoch: Epoch

    @classmethod
    def of(cls, biz: Biz) -> RebalancePlan:
        """Return the plan for the newest epoch of the biz."""
        return cls(biz.database, biz.collection, biz.epochs[-1])

    def spread(self, project_id: int, name: str) -> Placement:
        """Return the places of the epoch as if it were the only one."""
        biz = Biz(database=self.database, collection=self.collection, epochs=[self.epoch])
        return spread_of(project_id, name, biz)

    def target(self, project_id: int, name: str) -> Target:
        """Return the place of an ID."""
        spread, since = self.spread(project_id, name), self.epoch.since
        return lambda number: spread.place(number, since)


class Cursor(msgspec.Struct, kw_only=True):
    """Progress, as stored in the row.

    ``batch`` of ``sources[batch_at]`` is being moved; ``later``: (source, ID) of leased requests.
    ``again``: not all leased ones fitted into ``later``. ``held``: a worker has claimed the row.
    """

    plan: RebalancePlan
    sources: list[ShardPlace]
    ttl_seconds: int
    # Requests in all sources; -1 until counted.
    total: int = -1
    seen: int = 0
    at: int = 0
    after: tuple[int, int] | None = None
    # Batch size for this source, by the size of its requests; 0: not determined yet.
    limit: int = 0
    batch: list[int] = []
    batch_at: int = 0
    later: list[tuple[int, int]] = []
    again: bool = False
    expired: int = 0
    held: bool = False


def spread_of(project_id: int, name: str, biz: Biz) -> Placement:
    """Return all places under these settings."""
    prefix = settings.REQUESTS_PREFIX
    return Placement(prefix=prefix, project_id=project_id, name=name, biz=biz)


def cursor_of(row: Rebalance) -> Cursor:
    """Parse the cursor of a row."""
    return msgspec.convert(row.cursor, Cursor)


def sources_of(bound: BoundBiz) -> list[ShardPlace]:
    """Return the places of older epochs and former ones, which may hold misplaced requests."""
    biz, project, name = bound.settings, bound.project_id, bound.name
    newest = RebalancePlan.of(biz).spread(project, name)
    older: list[ShardPlace] = []
    if len(biz.epochs) > 1:
        before = msgspec.structs.replace(biz, epochs=biz.epochs[:-1])
        older = list(spread_of(project, name, before).places)
    known = ShardReport.objects.filter(project_id=project, biz=name).order_by("pk")
    former = [
        ShardPlace(node, Shard(database, collection))
        for node, database, collection in known.values_list("node", "database", "collection")
    ]
    places = frozenset(newest.places)
    return list(dict.fromkeys([*older, *(place for place in former if place not in places)]))
