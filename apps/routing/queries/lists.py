"""Lists of items for pages: by state, way and time of arrival, and by any value."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from apps.routing.engine.fingerprints import fingerprint, values_of
from apps.routing.models import RoutedItem, ValuePage
from apps.routing.querysets import RoutedItemQuerySet

# The clocks of the routers differ by no more, and none works longer on a batch.
_SLACK: Final = timedelta(minutes=5)
# A search reads the items of so many pages at most, of a thousand items each.
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
    """The items that fit, the newest first; for pages by ``id`` (``access.api.pagination``).

    Times are of arrival, ``until`` excluded. There is no index on them: ids grow with time, so
    the ends of the range are looked up among the ids, within some minutes, and compared exactly.
    """
    given = {"state": state, "inbound": inbound, "outbound": outbound}
    rows = among.filter(**{name: value for name, value in given.items() if value})
    if since is not None:
        rows = rows.filter(received_at__gte=since, id__gte=_id_at(since - _SLACK))
    if until is not None:
        rows = rows.filter(received_at__lt=until, id__lt=_id_at(until + _SLACK))
    return rows.defer("item", "steps").order_by("-id")


def _id_at(moment: datetime) -> int:
    """An id that those of earlier items are below, and those of later ones not."""
    items = RoutedItem.objects.order_by("id").values_list("id", "received_at")
    last = items.last()
    low, high = 0, 0 if last is None else int(last[0]) + 1
    while low < high:
        middle = (low + high) // 2
        # None: retention has deleted the last rows since they were read.
        found = items.filter(id__gte=middle).first()
        if found is not None and found[1] < moment:
            low = int(found[0]) + 1
        else:
            high = middle
    return low


@dataclass(frozen=True, slots=True)
class Found:
    """What a search for a value has found."""

    # The newest first.
    items: list[RoutedItem]
    # False: there may be more of them; a narrower question finds those.
    complete: bool


def find_by_value(
    among: RoutedItemQuerySet[RoutedItem],
    *,
    project: int,
    value: str,
    key: str = "",
    limit: int = 100,
) -> Found:
    """The items that hold this value, under ``key`` or under any, inside lists and dicts too.

    ``value`` is compared as text, whole and exactly: 7 finds 7 and "7". An item is found as soon
    as it is written, by the values that it came with and by those that it got since.
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
    found: list[int] = []
    for at in range(0, len(ids), _CHUNK):
        found.extend(_holding(ids[at : at + _CHUNK], value, key))
        if len(found) > limit:
            break
    rows = list(among.filter(project=project, pk__in=found[:limit]).order_by("-id"))
    return Found(rows, complete=len(matched) <= MOST_PAGES and len(found) <= limit)


def _holding(ids: Iterable[int], value: str, key: str) -> list[int]:
    """Those that really hold it: a fingerprint stands for more than one value."""
    rows = RoutedItem.objects.filter(pk__in=ids).order_by("-id").values_list("id", "item")
    return [
        pk
        for pk, text in rows
        if any(said == value and key in ("", name) for name, said in values_of(json.loads(text)))
    ]
