"""Closing the books of what has ended, before a store may delete it (seed S4.17, S4.22).

A span of 10 minutes of ``ts`` is closed when everything in it has expired or ended in time: once,
for all shards of the biz together, so that a request which moves between them is counted once.
``ShardReport.closed_until`` moves on in the transaction that writes the slices, guarded by what it
was; two workers, or one killed anywhere, count nothing twice and leave nothing out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from django.db import transaction

from apps.requeststore.engine.flags import EXPIRED, is_final, is_own
from apps.requeststore.models import ClosedSlice, ShardReport
from apps.requeststore.services.binding import BoundBiz
from apps.requeststore.services.shards import SLICE_SECONDS, slice_start
from apps.requeststore.stores.base import Counts, Shard, StorageNode
from yardkit.failpoints import hit

# After the last request of a span has expired: clocks differ, and marking takes a moment.
GRACE_SECONDS: Final = 60
# Of one biz in one round.
MOST_SPANS: Final = 50
# Slices this old are put together to days.
FOLD_AFTER: Final = timedelta(days=2)
DAY_SECONDS: Final = 24 * 3600

NodeNamed = Callable[[str], StorageNode]


class _Raced(Exception):
    """Another worker has closed this span meanwhile."""


def ms(at: datetime) -> int:
    """Milliseconds since 1970."""
    return round(at.timestamp() * 1000)


def at_ms(moment: int) -> datetime:
    """The other way round."""
    return datetime.fromtimestamp(moment / 1000, UTC)


def shard_of(row: ShardReport) -> Shard:
    """The shard of a row."""
    return Shard(row.database, row.collection)


def close_spans(
    bound: BoundBiz,
    rows: Sequence[ShardReport],
    away: Sequence[ShardReport],
    node: NodeNamed,
    now: int,
) -> int:
    """Close every span that can be closed, a bounded number; how many slices were written.

    ``rows`` are the shards that answer, ``away`` the others: those are waited for, but only half
    of the time after which a store deletes by itself. The rows are brought up to date.

    Raises ``StoreUnavailable``; what was closed is closed.
    """
    end = slice_start(at_ms(now - (bound.settings.ttl_seconds + GRACE_SECONDS) * 1000))
    patience = bound.settings.keep_seconds * 500
    for row in away:
        if row.closed_until is not None and now - ms(row.reported_at) < patience:
            end = min(end, row.closed_until)
    written = 0
    for _ in range(MOST_SPANS):
        known = [row for row in rows if row.closed_until is not None]
        base = min((row.closed_until for row in known if row.closed_until), default=end)
        if base >= end:
            break
        group = [row for row in known if row.closed_until == base]
        later = [row.closed_until for row in known if row.closed_until and row.closed_until > base]
        span = _next_span(group, node, base, min([end, *later]))
        if span is None:
            break
        counts, until = span
        try:
            written += _write(group, counts, node, base, until)
        except _Raced:
            break
    return written


def _next_span(
    group: Sequence[ShardReport], node: NodeNamed, base: datetime, end: datetime
) -> tuple[dict[int, Counts], datetime] | None:
    """What to close next, from ``base`` on: an empty stretch as long as one is seen, or one span.

    None: something in the span has not ended.
    """
    slice_ = timedelta(seconds=SLICE_SECONDS)
    until = end
    counts = _count(group, node, base, until)
    while any(each.total for each in counts.values()) and until - base > slice_:
        until = max(slice_start(base + (until - base) / 2), base + slice_)
        counts = _count(group, node, base, until)
    if not any(each.total for each in counts.values()):
        return {}, until
    flags = {flag for each in counts.values() for flag, number in each.by_flag.items() if number}
    # The second time: one that was on its way between two of them while they were asked.
    if not all(map(is_final, flags)) or _count(group, node, base, until) != counts:
        return None
    return counts, until


def _count(
    group: Iterable[ShardReport], node: NodeNamed, since: datetime, until: datetime
) -> dict[int, Counts]:
    return {
        row.pk: node(row.node).count(shard_of(row), since=ms(since), until=ms(until))
        for row in group
    }


def _write(
    group: Sequence[ShardReport],
    counts: Mapping[int, Counts],
    node: NodeNamed,
    base: datetime,
    until: datetime,
) -> int:
    """Slices, how far they go, and what is left, in one transaction. Raises ``_Raced``."""
    # Before it, so that no lock is held while a store is asked.
    left = {row.pk: _left(row, counts.get(row.pk), node, until) for row in group}
    slices = [
        _slice(row, counts[row.pk], base, until)
        for row in group
        if row.pk in counts and counts[row.pk].total
    ]
    hit("requests.before_close")
    with transaction.atomic():
        for row in sorted(group, key=lambda row: row.pk):
            moved = ShardReport.objects.filter(pk=row.pk, closed_until=base).update(
                closed_until=until, by_flag=left[row.pk]
            )
            if not moved:
                raise _Raced
        ClosedSlice.objects.bulk_create(slices)
        hit("requests.in_close")
    for row in group:
        row.closed_until, row.by_flag = until, left[row.pk]
    hit("requests.after_close")
    return len(slices)


def _slice(row: ShardReport, counts: Counts, base: datetime, until: datetime) -> ClosedSlice:
    return ClosedSlice(
        project_id=row.project_id,
        biz=row.biz,
        node=row.node,
        database=row.database,
        collection=row.collection,
        start_at=base,
        seconds=int((until - base).total_seconds()),
        processed=sum(number for flag, number in counts.by_flag.items() if is_own(flag)),
        expired=counts.of(EXPIRED),
        by_flag=by_flag_of(counts),
    )


def _left(
    row: ShardReport, counts: Counts | None, node: NodeNamed, until: datetime
) -> dict[str, int]:
    """What is in no slice by then; without any to be closed, what the report says."""
    if counts is None or not counts.total:
        return dict(row.by_flag)
    live = node(row.node).count(shard_of(row), since=ms(until))
    return by_flag_of(live)


def by_flag_of(counts: Counts) -> dict[str, int]:
    """As rows keep them."""
    return {str(flag): number for flag, number in counts.by_flag.items() if number}


def fold_slices(bound: BoundBiz, now: datetime, *, limit: int = 20) -> int:
    """Put old slices of a shard together to whole days; how many days."""
    folded = 0
    rows = ClosedSlice.objects.filter(
        project_id=bound.project_id,
        biz=bound.name,
        seconds__lt=DAY_SECONDS,
        start_at__lt=_day(now - FOLD_AFTER),
    )
    while folded < limit and (first := rows.order_by("start_at", "pk").first()) is not None:
        with transaction.atomic():
            if not _fold(first):
                break
        folded += 1
    return folded


def _fold(first: ClosedSlice) -> bool:
    """One day of the shard of ``first``, unless it is still open or another worker is at it."""
    day = _day(first.start_at)
    end = day + timedelta(days=1)
    shard = {"node": first.node, "database": first.database, "collection": first.collection}
    row = ShardReport.objects.select_for_update().filter(**shard).first()
    if row is None or row.closed_until is None or row.closed_until < end:
        return False
    slices = list(ClosedSlice.objects.filter(**shard, start_at__gte=day, start_at__lt=end))
    if not slices:
        return False
    total = dict[str, int]()
    for each in slices:
        for flag, number in each.by_flag.items():
            total[flag] = total.get(flag, 0) + number
    ClosedSlice.objects.filter(pk__in=[each.pk for each in slices]).delete()
    hit("requests.in_fold")
    ClosedSlice.objects.create(
        project_id=first.project_id,
        biz=first.biz,
        **shard,
        start_at=day,
        seconds=DAY_SECONDS,
        processed=sum(each.processed for each in slices),
        expired=sum(each.expired for each in slices),
        by_flag=total,
    )
    return True


def _day(at: datetime) -> datetime:
    return at.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
