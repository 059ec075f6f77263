"""Periodic maintenance of the ledger: fold counters, merge value pages, delete old items.

Every function works in short transactions, may run in several processes at once, and may be killed
and repeated at any point.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final

from django.db.models import QuerySet

from apps.routing.engine.fingerprints import joined
from apps.routing.models import CounterChange, RoutedItem, ValuePage
from apps.routing.queries import CountedEvent
from apps.routing.services.ledger import CounterKey, add_counts, lock_rows
from apps.runtime.services import in_short_transaction

# With fewer rows, a fold writes nearly as many rows as it deletes.
FEWEST_CHANGES: Final = 200
MOST_CHANGES: Final = 5000
# Size of a full page: a search reads every item of each page that matches.
PAGE_ITEMS: Final = 1000
MOST_PAGES: Final = 500
# Rows per DELETE statement, and statements per call.
CHUNK: Final = 1000
CHUNKS: Final = 50


@dataclass(frozen=True, slots=True)
class MaintenanceResult:
    """Numbers of rows that one maintenance run removed."""

    counter_changes: int
    pages: int
    # Ended items whose retention is over.
    forgotten: int

    def __bool__(self) -> bool:
        return bool(self.counter_changes or self.pages or self.forgotten)


def sweep_ledger(*, now: datetime, days: int) -> MaintenanceResult:
    """Sum counter changes, merge stored value blocks, delete items that ended ``days`` ago."""
    return MaintenanceResult(
        fold_counter_changes(), merge_pages(), delete_old_items(now=now, days=days)
    )


def fold_counter_changes() -> int:
    """Replace many changes of a counter by their sum; return how many rows were removed.

    It is one transaction, so a concurrent reader always sees the same total.
    """
    return in_short_transaction(_fold)


def _fold() -> int:
    rows = lock_rows(CounterChange.objects.order_by("id"), skip=True)
    changes = list(
        rows.values_list("id", "project_id", "inbound", "outbound", "what", "amount")[:MOST_CHANGES]
    )
    sums: Counter[CounterKey] = Counter()
    for _, project, inbound, outbound, counter, amount in changes:
        sums[project, inbound, outbound, counter] += amount
    if len(changes) < FEWEST_CHANGES or len(changes) < 2 * len(sums):
        return 0
    CounterChange.objects.filter(pk__in=[change[0] for change in changes]).delete()
    add_counts(sums)
    return len(changes) - sum(1 for amount in sums.values() if amount)


def merge_pages() -> int:
    """Merge small value pages; return how many pages were removed.

    A search scans all pages of its project. Items that arrive one by one create a page each, so
    without merging a search would scan as many pages as items.
    """
    return in_short_transaction(_merge)


def _merge() -> int:
    small = ValuePage.objects.filter(item_count__lt=PAGE_ITEMS // 2).order_by("project", "id")
    gone = 0
    group: list[Any] = []
    size = 0
    for page in lock_rows(small, skip=True)[:MOST_PAGES]:
        fits = not group or (
            page.project_id == group[0].project_id and size + page.item_count <= PAGE_ITEMS
        )
        if not fits:
            gone += _merge_group(group)
            group, size = [], 0
        group.append(page)
        size += page.item_count
    return gone + (_merge_group(group) if size >= PAGE_ITEMS // 2 or len(group) > 20 else 0)


def _merge_group(group: list[Any]) -> int:
    if len(group) < 2:
        return 0
    items = b"".join(dict.fromkeys(i for page in group for i in _packed_ids(bytes(page.items))))
    ValuePage.objects.create(
        project_id=group[0].project_id,
        at=max(page.at for page in group),
        items=items,
        item_count=len(items) // 8,
        fingerprints=joined(bytes(page.fingerprints) for page in group),
    )
    ValuePage.objects.filter(pk__in=[page.pk for page in group]).delete()
    return len(group) - 1


def _packed_ids(packed: bytes) -> list[bytes]:
    return [packed[at : at + 8] for at in range(0, len(packed), 8)]


def delete_old_items(*, now: datetime, days: int) -> int:
    """Delete items that ended more than ``days`` ago, at most 50,000 in one call; return how many.

    The counters of ended items keep them, and the counter of forgotten items grows by the same
    number. Open items are never deleted.
    """
    cutoff = now - timedelta(days=days)
    total = 0
    for _ in range(CHUNKS):
        gone = in_short_transaction(partial(_delete_old, cutoff))
        total += gone
        if gone < CHUNK:
            break
    in_short_transaction(partial(_delete_old_pages, cutoff, now))
    return total


def _delete_old(cutoff: datetime) -> int:
    rows = lock_rows(RoutedItem.objects.ended_before(cutoff).order_by("ended_at"), skip=True)
    ended = list(rows.values_list("id", "project_id", "inbound", "outbound")[:CHUNK])
    RoutedItem.objects.filter(pk__in=[item[0] for item in ended]).delete()
    add_counts(Counter((*item[1:], CountedEvent.FORGOTTEN.value) for item in ended))
    return len(ended)


def _delete_old_pages(cutoff: datetime, now: datetime) -> None:
    """Delete old value pages without remaining items.

    A page that still has one is dated ``now``, so that it is not checked again in every run.
    """
    for page in lock_rows(_old_pages(cutoff), skip=True)[:CHUNK]:
        ids = [int.from_bytes(packed, "little") for packed in _packed_ids(bytes(page.items))]
        if not RoutedItem.objects.filter(pk__in=ids).exists():
            page.delete()
        else:
            ValuePage.objects.filter(pk=page.pk).update(at=now)


def _old_pages(cutoff: datetime) -> QuerySet[ValuePage, Any]:
    return ValuePage.objects.filter(at__lt=cutoff).order_by("id")
