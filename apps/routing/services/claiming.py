"""Claims: open items that somebody must look at go to one router at a time."""

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
from apps.routing.queries import Entry, entries
from apps.routing.querysets import RoutedItemQuerySet
from apps.routing.services.writing import locked
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
) -> list[Entry]:
    """Take over open items that somebody must look at, those that wait longest first.

    That is: received by a router that has gone, parked or retrying long enough, dispatched
    without a result in time. Nobody else gets them for ``lease_seconds``. What somebody had in
    hand until now has a step that says so.
    """
    rows = RoutedItem.objects.due(now).order_by("due_at", "id")
    if projects is not None:
        rows = rows.filter(project__in=list(projects))
    # One by one: what is due in other states may be so many that nobody can pass over it.
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
) -> list[Entry]:
    """Take over items that are parked for this outbound, those that came first first.

    For an outbound that has room again; what another router has taken and not moved yet is left
    to it. ``not_by`` passes over those that this version of the rules was asked about, ``due_only``
    over those that still wait.
    """
    free = Q(due_at__lte=now)
    if not due_only:
        free |= Q(attempts=0)
    rows = RoutedItem.objects.parked(project, outbound).filter(free)
    if not_by is not None:
        rows = rows.exclude(rules_version=not_by)
    return in_short_transaction(partial(_claim, rows, limit, now, lease_seconds))


def spare_items(*, ids: Iterable[int]) -> None:
    """Whoever has these could not end them, through no fault of theirs: it was no attempt."""
    # Not 0: one that is parked is free then, and its lease is the wait for the next try.
    RoutedItem.objects.filter(pk__in=list(ids), attempts__gt=1).update(attempts=1)


def _claim_due(
    by_state: Sequence[RoutedItemQuerySet[RoutedItem]],
    limit: int,
    now: datetime,
    lease_seconds: float,
) -> list[Entry]:
    found = [row for rows in by_state for row in _free(rows, limit)]
    found.sort(key=attrgetter("due_at", "pk"))
    return _taken(found[:limit], now, lease_seconds)


def _claim(
    rows: RoutedItemQuerySet[RoutedItem], limit: int, now: datetime, lease_seconds: float
) -> list[Entry]:
    return _taken(_free(rows, limit), now, lease_seconds)


def _free(rows: RoutedItemQuerySet[RoutedItem], limit: int) -> list[RoutedItem]:
    """The first of these that nobody else is about to claim."""
    return list(locked(rows, skip=True).only(*_LOOKED_AT)[:limit])


def _taken(found: Sequence[RoutedItem], now: datetime, lease_seconds: float) -> list[Entry]:
    if not found:
        return []
    ids = [row.pk for row in found]
    _tell_of_takeover([row for row in found if _was_in_hand(row)], now)
    claimed = RoutedItem.objects.filter(pk__in=ids)
    claimed.update(
        generation=F("generation") + 1,
        attempts=F("attempts") + 1,
        due_at=now + timedelta(seconds=lease_seconds),
    )
    standing = {entry.id: entry for entry in entries(claimed)}
    failpoints.hit("routing.claimed_before_commit")
    return [standing[pk] for pk in ids]


def _was_in_hand(row: RoutedItem) -> bool:
    """Whether somebody had it for a while, and may have sent it."""
    if row.state == ItemState.PARKED:
        # A move begins its attempts anew.
        return row.attempts > 0
    # What the web has stored was due at once, and nobody's yet.
    waited = row.due_at is not None and row.due_at > row.changed_at
    return waited and row.state in (ItemState.RECEIVED, ItemState.RETRYING)


def _tell_of_takeover(had: Sequence[RoutedItem], now: datetime) -> None:
    told = step(now, StepKind.TAKEN_OVER)
    short = [row.pk for row in had if row.step_count < MOST]
    if short:
        RoutedItem.objects.filter(pk__in=short).update(
            steps=Concat(F("steps"), Value(write_steps([told]))), step_count=F("step_count") + 1
        )
    # What nobody ever comes to an end with does not grow for ever.
    for pk in [row.pk for row in had if row.step_count >= MOST]:
        row = RoutedItem.objects.only("steps").get(pk=pk)
        steps = cut([*read_steps(row.steps), told])
        row.steps, row.step_count = write_steps(steps), len(steps)
        row.save(update_fields=["steps", "step_count"])
