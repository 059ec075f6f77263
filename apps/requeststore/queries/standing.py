"""How bizzes stand, from rows alone: no store is asked while a page is drawn."""

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
# Of a shard that is no more, everything is in its slices.
_ANY: Final = datetime.max.replace(tzinfo=UTC)


@dataclass(slots=True)
class Standing:
    """The books of one biz, and what its shards and its queue said last."""

    live: Counter[int] = field(default_factory=Counter)
    closed: Counter[int] = field(default_factory=Counter)
    expiring: Counter[str] = field(default_factory=Counter)
    shards: list[ShardReport] = field(default_factory=list)
    closed_until: dict[Shard, datetime | None] = field(default_factory=dict)
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
    for key, of_shard, start_at, counts in _closed(wanted, found, by_flag):
        # One that was closed after the reports were read is still in their live counts.
        until = found[key].closed_until.get(of_shard, _ANY)
        if until is not None and (start_at is None or start_at < until):
            found[key].closed.update(counts)
    for queue in QueueReport.objects.filter(**wanted):
        found[queue.project_id, queue.biz].queue = queue
    for row in Rebalance.objects.filter(**wanted, state=RebalanceState.RUNNING):
        found[row.project_id, row.biz].rebalance = row
    return dict(found)


def _closed(
    wanted: dict[str, Any], found: Mapping[Key, Standing], by_flag: bool
) -> Iterator[tuple[Key, Shard, datetime | None, dict[int, int]]]:
    """What slices hold: biz, shard, start, by flag; those of long ago together, without a start.

    One statement, so that all of it is of one moment.
    """
    slices = ClosedSlice.objects.filter(**wanted).order_by()
    if by_flag:
        each_one = slices.values_list(*_OF_SHARD, "start_at", "by_flag")
        for project, biz, node, database, collection, start_at, counts in each_one.iterator():
            yield (project, biz), (node, database, collection), start_at, _flags(counts)
        return
    # Only what was closed lately is looked at slice by slice.
    ends = [each for one in found.values() for each in one.closed_until.values()]
    since = min((each for each in ends if each is not None), default=_ANY)
    lately = Case(When(start_at__gte=since, then=F("start_at")), default=None)
    sums = slices.annotate(lately=lately).values_list(*_OF_SHARD, "lately")
    counted = sums.annotate(ended=Sum("processed"), over=Sum("expired"))
    for project, biz, node, database, collection, start_at, ended, over in counted:
        counts = {PROCESSED: ended, EXPIRED: over}
        yield (project, biz), (node, database, collection), start_at, counts


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
