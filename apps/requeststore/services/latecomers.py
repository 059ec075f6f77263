"""Requests that were stored after the accounting of their time was closed.

Their producer was suspended between reading the clock and storing, for longer than the TTL. They
have expired, no consumer gets them, and they are counted before they are marked.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from django.db import transaction
from django.db.models import QuerySet

from apps.requeststore.engine.flags import EXPIRED, NEW
from apps.requeststore.models import ClosedSlice, ShardReport
from apps.requeststore.services.bindings import BoundBiz
from apps.requeststore.services.closed_slices import at_ms, by_flag_of, ms, shard_of
from apps.requeststore.services.shards import SLICE_SECONDS, slice_start
from apps.requeststore.stores.base import ShardCounts, StorageNode
from yardkit.failpoints import hit

_PAGE: Final = 1000


def count_late(bound: BoundBiz, row: ShardReport, node: StorageNode, now: int) -> int:
    """Add them to the closed slices of their time; return how many were added.

    Repeatable. A time of which requests may have been deleted already is not changed, so that its
    latecomers stay uncounted. Raises ``RequestStoreUnavailable``.
    """
    if row.closed_until is None:
        return 0
    # Requests of a time that has not expired may still be leased, after a change of the TTL.
    until = min(ms(row.closed_until), bound.settings.cutoff(now) + 1)
    oldest = node.oldest(shard_of(row), flag=NEW)
    if oldest is None or oldest >= until:
        return 0
    gone = now - bound.settings.delete_after_seconds * 1000
    starts = _starts(bound, row, node, until)
    added = sum(_add(row, node, start) for start in sorted(starts) if ms(start) > gone)
    hit("requests.after_late")
    return added


def _starts(bound: BoundBiz, row: ShardReport, node: StorageNode, until: int) -> set[datetime]:
    """Return the starts of the slices to which late requests belong."""
    starts, after = set[datetime](), None
    while page := node.page(
        shard_of(row), biz=bound.name, flag=NEW, until=until, after=after, limit=_PAGE
    ):
        starts |= {_slice_of(row, at_ms(request.ts)) for request in page}
        after = page[-1].ts, page[-1].id
    return starts


def _slice_of(row: ShardReport, at: datetime) -> datetime:
    last = _slices(row).filter(start_at__lte=at).order_by("-start_at").first()
    if last is not None and at < last.start_at + timedelta(seconds=last.seconds):
        return last.start_at
    return slice_start(at)


def _slices(row: ShardReport) -> QuerySet[ClosedSlice]:
    return ClosedSlice.objects.filter(
        node=row.node, database=row.database, collection=row.collection
    )


def _add(row: ShardReport, node: StorageNode, start: datetime) -> int:
    """Update one slice to the store's counts of its time."""
    old = _slices(row).filter(start_at=start).first()
    seconds = SLICE_SECONDS if old is None else old.seconds
    until = ms(start) + seconds * 1000
    flags = dict(node.count(shard_of(row), since=ms(start), until=until).by_flag)
    flags[EXPIRED] = flags.get(EXPIRED, 0) + flags.pop(NEW, 0)
    counts = ShardCounts(flags)
    before = 0 if old is None else old.processed + old.expired
    more = counts.total - before
    if more <= 0:
        return 0
    values = {"expired": counts.of(EXPIRED), "by_flag": by_flag_of(counts)}
    values["processed"] = counts.total - counts.of(EXPIRED)
    with transaction.atomic():
        ShardReport.objects.select_for_update().get(pk=row.pk)
        if old is None:
            _slices(row).get_or_create(
                node=row.node,
                database=row.database,
                collection=row.collection,
                start_at=start,
                defaults={
                    "project_id": row.project_id,
                    "biz": row.biz,
                    "seconds": seconds,
                    **values,
                },
            )
        else:
            _slices(row).filter(pk=old.pk, by_flag=old.by_flag).update(**values)
    return more
