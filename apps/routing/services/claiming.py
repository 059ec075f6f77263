"""Claims: open items that somebody must look at go to one router at a time."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from functools import partial

from django.db.models import F, Q

from apps.routing.models import RoutedItem
from apps.routing.queries import Entry, entries
from apps.routing.querysets import RoutedItemQuerySet
from apps.routing.services.writing import in_short_transaction, locked
from apps.routing.states import ACTIVE, ItemState
from yardkit import failpoints


def claim_due(
    *,
    now: datetime,
    lease_seconds: float,
    limit: int,
    projects: Iterable[int] | None = None,
    states: Iterable[ItemState] = ACTIVE,
) -> list[Entry]:
    """Take over open items that somebody must look at, those that wait longest first.

    That is: received by a router that has gone, parked or retrying long enough, dispatched
    without a result in time. Nobody else gets them for ``lease_seconds``.
    """
    rows = RoutedItem.objects.due(now).filter(state__in=list(states))
    if projects is not None:
        rows = rows.filter(project__in=list(projects))
    claim = partial(_claim, rows.order_by("due_at", "id"), limit, now, lease_seconds)
    return in_short_transaction(claim)


def claim_parked(
    *, project: int, outbound: str, now: datetime, lease_seconds: float, limit: int
) -> list[Entry]:
    """Take over items that are parked for this outbound, those that came first first.

    For an outbound that has room again; what another router has taken and not moved yet is left
    to it.
    """
    free = Q(attempts=0) | Q(due_at__lte=now)
    rows = RoutedItem.objects.parked(project, outbound).filter(free)
    return in_short_transaction(partial(_claim, rows, limit, now, lease_seconds))


def _claim(
    rows: RoutedItemQuerySet[RoutedItem], limit: int, now: datetime, lease_seconds: float
) -> list[Entry]:
    ids = list(locked(rows, skip=True).values_list("id", flat=True)[:limit])
    if not ids:
        return []
    claimed = RoutedItem.objects.filter(pk__in=ids)
    claimed.update(
        generation=F("generation") + 1,
        attempts=F("attempts") + 1,
        due_at=now + timedelta(seconds=lease_seconds),
    )
    standing = {entry.id: entry for entry in entries(claimed)}
    failpoints.hit("routing.claimed_before_commit")
    return [standing[pk] for pk in ids]
