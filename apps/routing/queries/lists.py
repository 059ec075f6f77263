"""Lists of items for pages: filtered by state, inbound, outbound, time, or any value."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from apps.routing.engine.fingerprints import fingerprint, values_of
from apps.routing.models import RoutedItem, ValuePage
from apps.routing.querysets import RoutedItemQuerySet

# Tolerance for clock differences between routers plus the duration of a batch.
_SLACK: Final = timedelta(minutes=5)
# Limit of value pages whose items a search reads; a page has up to a thousand items.
MOST_PAGES: Final = 200
_CHUNK: Final = 500


def list_items(
    among: RoutedItemQuerySet[RoutedItem],
    *,
    state: str = "",
    inbound: str = "",
    outbound: str = "",
    since: datetime | None = None,
    until: datetime | None = None,
) -> RoutedItemQuerySet[RoutedItem]:
    """Return the matching items, the newest first, for pagination by id.

    ``since`` (included) and ``until`` (excluded) are times of arrival. They have no index. Because
    ids grow with time, the range is narrowed to ids within some minutes first and then compared
    exactly.
    """
    given = {"state": state, "inbound": inbound, "outbound": outbound}
    rows = among.filter(**{name: value for name, value in given.items() if value})
    if since is not None:
        rows = rows.filter(received_at__gte=since, id__gte=_id_at(since - _SLACK))
    if until is not None:
        rows = rows.filter(received_at__lt=until, id__lt=_id_at(until + _SLACK))
    return rows.defer("item", "steps").order_by("-id")


def _id_at(moment: datetime) -> int:
    """Return the smallest id whose item arrived at ``moment`` or later, by binary search."""
    items = RoutedItem.objects.order_by("id").values_list("id", "received_at")
    last = items.last()
    low, high = 0, 0 if last is None else int(last[0]) + 1
    while low < high:
        middle = (low + high) // 2
        # None: retention has deleted the last rows since they were read.
        item = items.filter(id__gte=middle).first()
        if item is not None and item[1] < moment:
            low = int(item[0]) + 1
        else:
            high = middle
    return low


@dataclass(frozen=True, slots=True)
class SearchResult:
    """Result of a search for a value."""

    # Newest first.
    items: list[RoutedItem]
    # False: a limit was reached, and more items may match.
    complete: bool


def find_by_value(
    among: RoutedItemQuerySet[RoutedItem],
    *,
    project: int,
    value: str,
    key: str = "",
    limit: int = 100,
) -> SearchResult:
    """Search the items that hold a value, under ``key`` or any key, also in nested lists and dicts.

    ``value`` is compared as whole text, case-sensitively: 7 matches 7 and "7". An item can be found
    as soon as it is committed, by the values it arrived with and by values it got later.
    """
    pages = (
        ValuePage.objects.of(project)
        .holding(fingerprint(value))
        .order_by("-id")
        .values_list("items", flat=True)
    )
    matched = [bytes(packed) for packed in pages[: MOST_PAGES + 1]]
    ids = sorted(
        {
            int.from_bytes(packed[at : at + 8], "little")
            for packed in matched[:MOST_PAGES]
            for at in range(0, len(packed), 8)
        },
        reverse=True,
    )
    matching: list[int] = []
    for at in range(0, len(ids), _CHUNK):
        matching.extend(_holding(ids[at : at + _CHUNK], value, key))
        if len(matching) > limit:
            break
    rows = list(among.filter(project=project, pk__in=matching[:limit]).order_by("-id"))
    return SearchResult(rows, complete=len(matched) <= MOST_PAGES and len(matching) <= limit)


def _holding(ids: Iterable[int], value: str, key: str) -> list[int]:
    """Return the ids of items that hold the value, without false positives of fingerprints."""
    rows = RoutedItem.objects.filter(pk__in=ids).order_by("-id").values_list("id", "item")
    return [
        pk
        for pk, text in rows
        if any(
            text_value == value and key in ("", name)
            for name, text_value in values_of(json.loads(text))
        )
    ]
