"""Accounting of bizzes from reports, without querying stores."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from django.db.models import Case, F, Sum, When

from apps.requeststore.engine.flags import EXPIRED, MOVING, NEW, PROCESSED, TAKEN
from apps.requeststore.models import ClosedSlice, QueueReport, Rebalance, ShardReport
from apps.requeststore.states import RebalanceState

Key = tuple[int, str]
# node, database, collection
Shard = tuple[str, str, str]
_OF_SHARD: Final = ("project_id", "biz", "node", "database", "collection")
# A deleted shard has all of its requests in closed slices.
_ANY: Final = datetime.max.replace(tzinfo=UTC)


@dataclass(slots=True)
class BizAccounting:
    """Accounting of one biz, with the latest reports of its shards and queue."""

    live: Counter[int] = field(default_factory=Counter)
    closed: Counter[int] = field(default_factory=Counter)
    expiring: Counter[str] = field(default_factory=Counter)
    shards: list[ShardReport] = field(default_factory=list)
    closed_until: dict[Shard, datetime | None] = field(default_factory=dict)
    queue: QueueReport | None = None
    rebalance: Rebalance | None = None

    def of(self, flag: int) -> int:
        """Return how many requests have, or ended with, this flag."""
        return self.live[flag] + self.closed[flag]

    @property
    def stored(self) -> int:
        """Return the number of requests ever stored."""
        return self.live.total() + self.closed.total()

    @property
    def new(self) -> int:
        """Return the number of waiting requests."""
        return self.live[NEW]

    @property
    def taken(self) -> int:
        """Return the number of leased requests."""
        return self.live[TAKEN]

    @property
    def moving(self) -> int:
        """Return the number of requests being moved between shards."""
        return self.live[MOVING]

    @property
    def expired(self) -> int:
        """Return the number of requests that expired unprocessed."""
        return self.of(EXPIRED)

    @property
    def ended(self) -> dict[int, int]:
        """Return the processed requests by final flag, 1 first."""
        flags = sorted(flag for flag in {*self.live, *self.closed} if flag > NEW)
        return {flag: self.of(flag) for flag in flags if self.of(flag)}

    @property
    def processed(self) -> int:
        """Return the number of processed requests, whatever their flag."""
        return sum(self.ended.values())

    @property
    def balanced(self) -> bool:
        """Return whether every stored request is in exactly one state."""
        known = self.new + self.taken + self.moving + self.expired + self.processed
        return self.stored == known and min([*self.live.values(), 0]) >= 0

    @property
    def kept(self) -> int:
        """Return the number of requests in the store that belong to no closed slice."""
        return self.live.total()

    @property
    def size_bytes(self) -> int:
        """Return the size of all shards."""
        return sum(shard.size_bytes for shard in self.shards)

    @property
    def oldest_new_at(self) -> datetime | None:
        """Return when the oldest waiting request was stored."""
        return min(
            (shard.oldest_new_at for shard in self.shards if shard.oldest_new_at), default=None
        )

    @property
    def reported_at(self) -> datetime | None:
        """Return the time of the oldest report."""
        return min((shard.reported_at for shard in self.shards), default=None)

    @property
    def problems(self) -> list[str]:
        """Return the problems of shards and queue, without duplicates."""
        shard_problems = [shard.problem for shard in self.shards]
        shard_problems.append("" if self.queue is None else self.queue.problem)
        return list(dict.fromkeys(problem for problem in shard_problems if problem))


def standings(
    projects: Collection[int], biz: str | None = None, *, by_flag: bool = False
) -> dict[Key, BizAccounting]:
    """Return the accounting of every biz of these projects, or of one name. Four queries.

    ``by_flag``: split closed slices by flag, not only into processed and expired.
    """
    accounting: defaultdict[Key, BizAccounting] = defaultdict(BizAccounting)
    wanted = {"project_id__in": projects} | ({} if biz is None else {"biz": biz})
    for report in ShardReport.objects.filter(**wanted):
        standing = accounting[report.project_id, report.biz]
        standing.shards.append(report)
        shard = report.node, report.database, report.collection
        standing.closed_until[shard] = report.closed_until
        standing.live.update(_flags(report.by_flag))
        standing.expiring.update(
            {str(span): int(number) for span, number in report.expiring.items()}
        )
    for key, of_shard, start_at, counts in _closed(wanted, accounting, by_flag):
        # A slice closed after the reports were read is still in their live counts.
        until = accounting[key].closed_until.get(of_shard, _ANY)
        if until is not None and (start_at is None or start_at < until):
            accounting[key].closed.update(counts)
    for queue in QueueReport.objects.filter(**wanted):
        accounting[queue.project_id, queue.biz].queue = queue
    for row in Rebalance.objects.filter(**wanted, state=RebalanceState.RUNNING):
        accounting[row.project_id, row.biz].rebalance = row
    return dict(accounting)


def _closed(
    wanted: dict[str, Any], found: Mapping[Key, BizAccounting], by_flag: bool
) -> Iterator[tuple[Key, Shard, datetime | None, dict[int, int]]]:
    """Return the contents of closed slices: biz, shard, start, by flag; old ones summed, without a
    start.

    One statement, so that all of it is of one moment.
    """
    slices = ClosedSlice.objects.filter(**wanted).order_by()
    if by_flag:
        each_one = slices.values_list(*_OF_SHARD, "start_at", "by_flag")
        for project, biz, node, database, collection, start_at, counts in each_one.iterator():
            yield (project, biz), (node, database, collection), start_at, _flags(counts)
        return
    # Only recent slices are read one by one.
    ends = [
        closed_at for standing in found.values() for closed_at in standing.closed_until.values()
    ]
    since = min((end for end in ends if end is not None), default=_ANY)
    lately = Case(When(start_at__gte=since, then=F("start_at")), default=None)
    sums = slices.annotate(lately=lately).values_list(*_OF_SHARD, "lately")
    counted = sums.annotate(ended=Sum("processed"), over=Sum("expired"))
    for project, biz, node, database, collection, start_at, ended, over in counted:
        counts = {PROCESSED: ended, EXPIRED: over}
        yield (project, biz), (node, database, collection), start_at, counts


def slices_around(projects: Collection[int], moment: datetime) -> list[ClosedSlice]:
    """Return the closed slices of these projects that contain this moment; at most 200 are
    read.
    """
    near = ClosedSlice.objects.filter(project_id__in=projects, start_at__lte=moment)
    return [
        closed
        for closed in near.order_by("-start_at")[:200]
        if (moment - closed.start_at).total_seconds() < closed.seconds
    ]


def _flags(counts: dict[str, int]) -> dict[int, int]:
    return {int(flag): int(number) for flag, number in counts.items()}
