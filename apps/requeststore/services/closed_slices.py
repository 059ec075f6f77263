"""Closes the accounting of ended requests, before a store may delete them.

A span of 10 minutes of ``ts`` is closed once all of its requests have ended or expired, for all
shards of the biz together, so that a request which moves between shards is counted once. The
transaction that writes the slices also advances ``ShardReport.closed_until``, guarded by its old
value: two workers, or a killed one, count nothing twice and omit nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from django.db import transaction

from apps.requeststore.engine.flags import EXPIRED, is_final, is_own
from apps.requeststore.models import ClosedSlice, ShardReport
from apps.requeststore.services.bindings import BoundBiz
from apps.requeststore.services.shards import SLICE_SECONDS, slice_start
from apps.requeststore.stores.base import Shard, ShardCounts, StorageNode
from yardkit.failpoints import hit

# Margin after the last request of a span has expired: clocks differ, and marking takes time.
GRACE_SECONDS: Final = 60
# Spans closed per biz in one round.
MOST_SPANS: Final = 50
# Age from which slices are merged into days.
FOLD_AFTER: Final = timedelta(days=2)
DAY_SECONDS: Final = 24 * 3600

NodeNamed = Callable[[str], StorageNode]


class _ConcurrentUpdate(Exception):
    """Another worker has closed this span."""


def ms(at: datetime) -> int:
    """Convert a time to Unix ms."""
    return round(at.timestamp() * 1000)


def at_ms(moment: int) -> datetime:
    """Convert Unix ms to a time."""
    return datetime.fromtimestamp(moment / 1000, UTC)


def shard_of(row: ShardReport) -> Shard:
    """Return the shard of a report."""
    return Shard(row.database, row.collection)


def close_spans(
    bound: BoundBiz,
    rows: Sequence[ShardReport],
    away: Sequence[ShardReport],
    node: NodeNamed,
    now: int,
) -> int:
    """Close every span that can be closed, up to a limit; return the number of slices written.

    Args:
        rows: shards that answer; updated in place.
        away: unreachable shards. They delay closing by half of the retention at most.

    Raises ``RequestStoreUnavailable``; spans closed before that stay closed.
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
        except _ConcurrentUpdate:
            break
    return written


def _next_span(
    group: Sequence[ShardReport], node: NodeNamed, base: datetime, end: datetime
) -> tuple[dict[int, ShardCounts], datetime] | None:
    """Return the counts and end of the next span from ``base`` on: an empty stretch, or one span.

    None: a request in the span has not ended.
    """
    slice_ = timedelta(seconds=SLICE_SECONDS)
    until = end
    counts = _count(group, node, base, until)
    while any(count.total for count in counts.values()) and until - base > slice_:
        until = max(slice_start(base + (until - base) / 2), base + slice_)
        counts = _count(group, node, base, until)
    if not any(count.total for count in counts.values()):
        return {}, until
    flags = {flag for count in counts.values() for flag, number in count.by_flag.items() if number}
    # Twice, to see a request that moved between two shards during the first count.
    if not all(map(is_final, flags)) or _count(group, node, base, until) != counts:
        return None
    return counts, until


def _count(
    group: Iterable[ShardReport], node: NodeNamed, since: datetime, until: datetime
) -> dict[int, ShardCounts]:
    return {
        row.pk: node(row.node).count(shard_of(row), since=ms(since), until=ms(until))
        for row in group
    }


def _write(
    group: Sequence[ShardReport],
    counts: Mapping[int, ShardCounts],
    node: NodeNamed,
    base: datetime,
    until: datetime,
) -> int:
    """Write slices, limits and live counts in one transaction. Raises ``_ConcurrentUpdate``."""
    # Before the transaction: no lock is held while a store is queried.
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
                raise _ConcurrentUpdate
        ClosedSlice.objects.bulk_create(slices)
        hit("requests.in_close")
    for row in group:
        row.closed_until, row.by_flag = until, left[row.pk]
    hit("requests.after_close")
    return len(slices)


def _slice(row: ShardReport, counts: ShardCounts, base: datetime, until: datetime) -> ClosedSlice:
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
    row: ShardReport, counts: ShardCounts | None, node: NodeNamed, until: datetime
) -> dict[str, int]:
    """Return the counts that belong to no slice."""
    if counts is None or not counts.total:
        return dict(row.by_flag)
    live = node(row.node).count(shard_of(row), since=ms(until))
    return by_flag_of(live)


def by_flag_of(counts: ShardCounts) -> dict[str, int]:
    """Return counts in the format of the rows."""
    return {str(flag): number for flag, number in counts.by_flag.items() if number}


def fold_slices(bound: BoundBiz, now: datetime, *, limit: int = 20) -> int:
    """Merge old slices of a shard into whole days; return how many days."""
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
    """Merge one day of the shard of ``first``; False while it is open or locked by a worker."""
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
    for piece in slices:
        for flag, number in piece.by_flag.items():
            total[flag] = total.get(flag, 0) + number
    ClosedSlice.objects.filter(pk__in=[piece.pk for piece in slices]).delete()
    hit("requests.in_fold")
    ClosedSlice.objects.create(
        project_id=first.project_id,
        biz=first.biz,
        **shard,
        start_at=day,
        seconds=DAY_SECONDS,
        processed=sum(piece.processed for piece in slices),
        expired=sum(piece.expired for piece in slices),
        by_flag=total,
    )
    return True


def _day(at: datetime) -> datetime:
    return at.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
