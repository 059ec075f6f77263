"""Factories of items in the ledger."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

from apps.projects.models import Project
from apps.routing.engine.steps import StepKind, step
from apps.routing.models import RoutedItem
from apps.routing.queries import LedgerEntry
from apps.routing.services import Arrival, ItemMove, move_items, receive_items
from apps.routing.states import FINAL, ItemState

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
_numbers = count(1)


def later(seconds: float) -> datetime:
    """Return a time this long after ``NOW``."""
    return NOW + timedelta(seconds=seconds)


def make_arrival(project: Project, **fields: Any) -> Arrival:
    """Return an arrival with a unique identity."""
    number = next(_numbers)
    item = {
        "company_name": f"宁乡县楚江冻库{number}",
        "credit_no": f"C{number}",
        "data_type": "change",
    }
    values = {"inbound": "logs", "item": item, "identity": f"logs/0/{number}"}
    return Arrival(project=project.pk, **(values | fields))


def arrive(project: Project, number: int = 1, **fields: Any) -> list[LedgerEntry]:
    """Store new items with a lease of one minute; return their entries."""
    arrivals = [make_arrival(project, **fields) for _ in range(number)]
    return [r.entry for r in receive_items(arrivals=arrivals, now=NOW, lease_seconds=60)]


def to(entry: LedgerEntry, state: ItemState, **fields: Any) -> ItemMove:
    """Return a move of an entry to a state."""
    values: dict[str, Any] = {"steps": (step(NOW, StepKind.ENDED),)}
    if state not in FINAL:
        values |= {"due_at": later(600), "outbound": "captcha"}
    return ItemMove(entry=entry, to=state, **(values | fields))


def moved(entry: LedgerEntry, state: ItemState, **fields: Any) -> LedgerEntry:
    """Move an entry, which must succeed; return its new entry."""
    return move_items(moves=[to(entry, state, **fields)], now=NOW).entries[entry.id]


def row_of(entry: LedgerEntry) -> RoutedItem:
    """Return the current row of an entry."""
    return RoutedItem.objects.get(pk=entry.id)
