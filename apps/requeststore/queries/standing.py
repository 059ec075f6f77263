"""How bizzes stand, from rows alone: no store is asked while a page is drawn."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from django.db.models import Max, QuerySet, Sum

from apps.requeststore.engine.flags import EXPIRED, MOVING, NEW, PROCESSED, TAKEN
from apps.requeststore.models import ClosedSlice, QueueReport, Rebalance, ShardReport
from apps.requeststore.states import RebalanceState

Key = tuple[int, str]


@dataclass(slots=True)
class Standing:
    """The books of one biz, and what its shards and its queue said last."""

    live: Counter[int] = field(default_factory=Counter)
    closed: Counter[int] = field(default_factory=Counter)
    expiring: Counter[str] = field(default_factory=Counter)
    shards: list[ShardReport] = field(default_factory=list)
    closed_until: dict[tuple[str, str, str], datetime | None] = field(default_factory=dict)
    queue: QueueReport | None = None
    rebalance: Rebalance | None = None

    def of(self, flag: int) -> int:
        """All that ever had this flag at their end, or have it now."""
        return self.live[flag] + self.closed[flag]

    @property
    def stored(self) -> int:
        """All that were ever stored."""
        return self.live.total() + self.closed.total()

    @property
    def new(self) -> int:
        """Waiting for somebody."""
        return self.live[NEW]

    @property
    def taken(self) -> int:
        """In somebody's hands."""
        return self.live[TAKEN]

    @property
    def moving(self) -> int:
        """Between two shards."""
        return self.live[MOVING]

    @property
    def expired(self) -> int:
        """Whose time was over before anybody had processed them."""
        return self.of(EXPIRED)

    @property
    def ended(self) -> dict[int, int]:
        """Processed in some way: how many by flag, 1 first."""
        flags = sorted(flag for flag in {*self.live, *self.closed} if flag > NEW)
        return {flag: self.of(flag) for flag in flags if self.of(flag)}

    @property
    def processed(self) -> int:
        """All of those."""
        return sum(self.ended.values())

    @property
    def balanced(self) -> bool:
        """Every request is in exactly one place."""
        known = self.new + self.taken + self.moving + self.expired + self.processed
        return self.stored == known and min([*self.live.values(), 0]) >= 0

    @property
    def kept(self) -> int:
        """That lie in the store now, and in no closed slice."""
        return self.live.total()

    @property
    def size_bytes(self) -> int:
        """Of all shards."""
        return sum(each.size_bytes for each in self.shards)

    @property
    def oldest_new_at(self) -> datetime | None:
        """Since when the one waits that waits longest."""
        return min((each.oldest_new_at for each in self.shards if each.oldest_new_at), default=None)

    @property
    def reported_at(self) -> datetime | None:
        """How old this is: the oldest report."""
        return min((each.reported_at for each in self.shards), default=None)

    @property
    def problems(self) -> list[str]:
        """What shards and the queue complain of, each once."""
        told = [each.problem for each in self.shards]
        told.append("" if self.queue is None else self.queue.problem)
        return list(dict.fromkeys(each for each in told if each))


def standings(
    projects: Collection[int], biz: str | None = None, *, by_flag: bool = False
) -> dict[Key, Standing]:
    """Of every biz of these projects that has rows, or of one name. Four queries.

    ``by_flag``: what is in closed slices by each flag, and not only processed and expired.
    """
    found: defaultdict[Key, Standing] = defaultdict(Standing)
    wanted = {"project_id__in": projects} | ({} if biz is None else {"biz": biz})
    for report in ShardReport.objects.filter(**wanted):
        one = found[report.project_id, report.biz]
        one.shards.append(report)
        shard = report.node, report.database, report.collection
        one.closed_until[shard] = report.closed_until
        one.live.update(_flags(report.by_flag))
        one.expiring.update({str(span): int(number) for span, number in report.expiring.items()})
    slices = ClosedSlice.objects.filter(**wanted).order_by()
    closed = _closed_by_flag if by_flag else _closed_sums
    if not closed(slices, found):
        # A span was closed after the reports were read; told apart slice by slice, it does no harm.
        _closed_by_flag(slices, found)
    for queue in QueueReport.objects.filter(**wanted):
        found[queue.project_id, queue.biz].queue = queue
    for row in Rebalance.objects.filter(**wanted, state=RebalanceState.RUNNING):
        found[row.project_id, row.biz].rebalance = row
    return dict(found)


def _closed_by_flag(slices: QuerySet[ClosedSlice], found: Mapping[Key, Standing]) -> bool:
    for each in slices.iterator():
        one = found[each.project_id, each.biz]
        # What was closed after the reports were read is still in their live counts.
        until = one.closed_until.get((each.node, each.database, each.collection))
        if until is not None and each.start_at < until:
            one.closed.update(_flags(each.by_flag))
    return True


def _closed_sums(slices: QuerySet[ClosedSlice], found: Mapping[Key, Standing]) -> bool:
    """False, and nothing added, when some of it is in the live counts as well."""
    sums = slices.values_list("project_id", "biz", "node", "database", "collection").annotate(
        ended=Sum("processed"), over=Sum("expired"), latest=Max("start_at")
    )
    rows = list(sums)
    for project, name, *shard, _ended, _over, latest in rows:
        until = found[project, name].closed_until.get((shard[0], shard[1], shard[2]))
        if until is None or latest >= until:
            return False
    for project, name, _node, _database, _collection, ended, over, _latest in rows:
        found[project, name].closed.update({PROCESSED: ended, EXPIRED: over})
    return True


def slices_around(projects: Collection[int], moment: datetime) -> list[ClosedSlice]:
    """The closed slices of these projects that hold this moment; at most 200 are looked at."""
    near = ClosedSlice.objects.filter(project_id__in=projects, start_at__lte=moment)
    return [
        each
        for each in near.order_by("-start_at")[:200]
        if (moment - each.start_at).total_seconds() < each.seconds
    ]


def _flags(counts: dict[str, int]) -> dict[int, int]:
    return {int(flag): int(number) for flag, number in counts.items()}
