"""Leases on open items: each due item is claimed by one router at a time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from functools import partial
from operator import attrgetter
from typing import Final

from django.db.models import F, Q, Value
from django.db.models.functions import Concat

from apps.routing.engine.steps import MOST, StepKind, cut, read_steps, step, write_steps
from apps.routing.models import RoutedItem
from apps.routing.queries import LedgerEntry, entries
from apps.routing.querysets import RoutedItemQuerySet
from apps.routing.services.ledger import lock_rows
from apps.routing.states import ACTIVE, ItemState
from apps.runtime.services import in_short_transaction
from yardkit import failpoints

_LOOKED_AT: Final = ("state", "attempts", "due_at", "changed_at", "step_count")


def claim_due(
    *,
    now: datetime,
    lease_seconds: float,
    limit: int,
    projects: Iterable[int] | None = None,
    states: Iterable[ItemState] = ACTIVE,
) -> list[LedgerEntry]:
    """Claim open items that are due, the longest overdue first, and return their entries.

    An item is due when the lease of its router has expired, its wait as parked or retrying is over,
    or its result did not arrive in time. No other router can claim it for ``lease_seconds``. If an
    earlier lease has expired, the item gets the step "taken over".
    """
    rows = RoutedItem.objects.due(now).order_by("due_at", "id")
    if projects is not None:
        rows = rows.filter(project__in=list(projects))
    # One query per state: other states may have millions of due rows, which would be scanned.
    by_state = [rows.filter(state=state) for state in sorted(states)]
    return in_short_transaction(partial(_claim_due, by_state, limit, now, lease_seconds))


def claim_parked(
    *,
    project: int,
    outbound: str,
    now: datetime,
    lease_seconds: float,
    limit: int,
    not_by: int | None = None,
    due_only: bool = False,
) -> list[LedgerEntry]:
    """Claim items that are parked for an outbound which has room again, in order of arrival.

    Items that another router has claimed are skipped until that lease expires.

    Args:
        not_by: skip items that this version of the rules has already decided about.
        due_only: skip items whose wait is not over.
    """
    free = Q(due_at__lte=now)
    if not due_only:
        free |= Q(attempts=0)
    rows = RoutedItem.objects.parked(project, outbound).filter(free)
    if not_by is not None:
        rows = rows.exclude(rules_version=not_by)
    return in_short_transaction(partial(_claim, rows, limit, now, lease_seconds))


def reset_attempts(*, ids: Iterable[int]) -> None:
    """Reset the attempts of items that a failing store, not the items themselves, kept from ending.

    Otherwise an outage would use up their attempts and dead-letter them.
    """
    # Not 0: a parked item with 0 attempts counts as unclaimed, and would be retried without a wait.
    RoutedItem.objects.filter(pk__in=list(ids), attempts__gt=1).update(attempts=1)


def _claim_due(
    by_state: Sequence[RoutedItemQuerySet[RoutedItem]],
    limit: int,
    now: datetime,
    lease_seconds: float,
) -> list[LedgerEntry]:
    due = [row for rows in by_state for row in _unlocked(rows, limit)]
    due.sort(key=attrgetter("due_at", "pk"))
    return _lease(due[:limit], now, lease_seconds)


def _claim(
    rows: RoutedItemQuerySet[RoutedItem], limit: int, now: datetime, lease_seconds: float
) -> list[LedgerEntry]:
    return _lease(_unlocked(rows, limit), now, lease_seconds)


def _unlocked(rows: RoutedItemQuerySet[RoutedItem], limit: int) -> list[RoutedItem]:
    """Lock and return the first rows that no other transaction has locked."""
    return list(lock_rows(rows, skip=True).only(*_LOOKED_AT)[:limit])


def _lease(due: Sequence[RoutedItem], now: datetime, lease_seconds: float) -> list[LedgerEntry]:
    if not due:
        return []
    ids = [row.pk for row in due]
    _add_takeover_steps([row for row in due if _was_leased(row)], now)
    claimed = RoutedItem.objects.filter(pk__in=ids)
    claimed.update(
        generation=F("generation") + 1,
        attempts=F("attempts") + 1,
        due_at=now + timedelta(seconds=lease_seconds),
    )
    by_id = {entry.id: entry for entry in entries(claimed)}
    failpoints.hit("routing.claimed_before_commit")
    return [by_id[pk] for pk in ids]


def _was_leased(row: RoutedItem) -> bool:
    """Return whether another router held a lease on the item, and may have sent it."""
    if row.state == ItemState.PARKED:
        # Every move resets the attempts to 0, and every claim adds one.
        return row.attempts > 0
    # An item stored by a web process is due at once: it never had a lease.
    waited = row.due_at is not None and row.due_at > row.changed_at
    return waited and row.state in (ItemState.RECEIVED, ItemState.RETRYING)


def _add_takeover_steps(rows: Sequence[RoutedItem], now: datetime) -> None:
    taken_over = step(now, StepKind.TAKEN_OVER)
    short = [row.pk for row in rows if row.step_count < MOST]
    if short:
        RoutedItem.objects.filter(pk__in=short).update(
            steps=Concat(F("steps"), Value(write_steps([taken_over]))),
            step_count=F("step_count") + 1,
        )
    # Long histories are cut: an item that is claimed again and again must not grow forever.
    for pk in [row.pk for row in rows if row.step_count >= MOST]:
        row = RoutedItem.objects.only("steps").get(pk=pk)
        steps = cut([*read_steps(row.steps), taken_over])
        row.steps, row.step_count = write_steps(steps), len(steps)
        row.save(update_fields=["steps", "step_count"])
