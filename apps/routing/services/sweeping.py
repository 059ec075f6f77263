"""What is done behind the hot path, in small bites: fold counters, merge pages, forget old items.

Each of these may run in several processes at once, be killed at any line and be called again.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final

from django.db.models import QuerySet

from apps.routing.engine.fingerprints import joined
from apps.routing.models import RoutedItem, Tally, ValuePage
from apps.routing.queries import Counted
from apps.routing.services.writing import Key, locked, tally
from apps.runtime.services import in_short_transaction

# Below this a fold is not worth its writes.
FEWEST_TALLIES: Final = 200
MOST_TALLIES: Final = 5000
# A page of so many items is full; a search reads all items of a page that it finds.
PAGE_ITEMS: Final = 1000
MOST_PAGES: Final = 500
# One statement deletes at most so many rows, and one call so many statements.
CHUNK: Final = 1000
CHUNKS: Final = 50


@dataclass(frozen=True, slots=True)
class Swept:
    """What one sweep did."""

    tallies: int
    pages: int
    forgotten: int

    def __bool__(self) -> bool:
        return bool(self.tallies or self.pages or self.forgotten)


def sweep_ledger(*, now: datetime, days: int) -> Swept:
    """One round of all three; items are kept for ``days`` after their end."""
    return Swept(fold_tallies(), merge_pages(), forget_items(now=now, days=days))


def fold_tallies() -> int:
    """Put many changes of a count together into one; returns how many rows are gone.

    A reader sees either the many or the one.
    """
    return in_short_transaction(_fold)


def _fold() -> int:
    rows = locked(Tally.objects.order_by("id"), skip=True)
    found = list(
        rows.values_list("id", "project_id", "inbound", "outbound", "what", "amount")[:MOST_TALLIES]
    )
    sums: Counter[Key] = Counter()
    for _, project, inbound, outbound, what, amount in found:
        sums[project, inbound, outbound, what] += amount
    if len(found) < FEWEST_TALLIES or len(found) < 2 * len(sums):
        return 0
    Tally.objects.filter(pk__in=[row[0] for row in found]).delete()
    tally(sums)
    return len(found) - sum(1 for amount in sums.values() if amount)


def merge_pages() -> int:
    """Put pages of few items together; returns how many pages are gone.

    A search reads every page of its project: by one item each they would be as many as items.
    """
    return in_short_transaction(_merge)


def _merge() -> int:
    small = ValuePage.objects.filter(item_count__lt=PAGE_ITEMS // 2).order_by("project", "id")
    gone = 0
    group: list[Any] = []
    size = 0
    for page in locked(small, skip=True)[:MOST_PAGES]:
        fits = not group or (
            page.project_id == group[0].project_id and size + page.item_count <= PAGE_ITEMS
        )
        if not fits:
            gone += _put_together(group)
            group, size = [], 0
        group.append(page)
        size += page.item_count
    return gone + (_put_together(group) if size >= PAGE_ITEMS // 2 or len(group) > 20 else 0)


def _put_together(group: list[Any]) -> int:
    if len(group) < 2:
        return 0
    items = b"".join(dict.fromkeys(i for page in group for i in _eights(bytes(page.items))))
    ValuePage.objects.create(
        project_id=group[0].project_id,
        at=max(page.at for page in group),
        items=items,
        item_count=len(items) // 8,
        fingerprints=joined(bytes(page.fingerprints) for page in group),
    )
    ValuePage.objects.filter(pk__in=[page.pk for page in group]).delete()
    return len(group) - 1


def _eights(packed: bytes) -> list[bytes]:
    return [packed[at : at + 8] for at in range(0, len(packed), 8)]


def forget_items(*, now: datetime, days: int) -> int:
    """Delete items that ended more than ``days`` ago, at most 50,000 in one call; how many.

    The books keep them: they are counted as ended, and as forgotten. Open items are never
    forgotten, however old.
    """
    cutoff = now - timedelta(days=days)
    total = 0
    for _ in range(CHUNKS):
        gone = in_short_transaction(partial(_forget, cutoff))
        total += gone
        if gone < CHUNK:
            break
    in_short_transaction(partial(_forget_pages, cutoff, now))
    return total


def _forget(cutoff: datetime) -> int:
    rows = locked(RoutedItem.objects.ended_before(cutoff).order_by("ended_at"), skip=True)
    found = list(rows.values_list("id", "project_id", "inbound", "outbound")[:CHUNK])
    RoutedItem.objects.filter(pk__in=[row[0] for row in found]).delete()
    tally(Counter((*row[1:], Counted.FORGOTTEN.value) for row in found))
    return len(found)


def _forget_pages(cutoff: datetime, now: datetime) -> int:
    """Pages whose items are all gone; one of which an item is kept is looked at again later."""
    gone = 0
    for page in locked(_old_pages(cutoff), skip=True)[:CHUNK]:
        ids = [int.from_bytes(each, "little") for each in _eights(bytes(page.items))]
        if not RoutedItem.objects.filter(pk__in=ids).exists():
            page.delete()
            gone += 1
        else:
            ValuePage.objects.filter(pk=page.pk).update(at=now)
    return gone


def _old_pages(cutoff: datetime) -> QuerySet[ValuePage, Any]:
    return ValuePage.objects.filter(at__lt=cutoff).order_by("id")
