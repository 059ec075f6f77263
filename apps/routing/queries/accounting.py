"""Accounting of all items that ever arrived, from counters written with every move."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from django.db.models import Count, F, Sum, Value

from apps.routing.models import CounterChange, RoutedItem
from apps.routing.querysets import IN_FLIGHT
from apps.routing.states import FINAL, ItemState


class CountedEvent(StrEnum):
    """Events that are counted besides the states; these counters only grow."""

    ARRIVED = "arrived"
    # An inbound delivered a known item again.
    REDELIVERED = "redelivered"
    # A result arrived after its item had ended.
    LATE_RESULT = "late_result"
    # An ended item was deleted by retention.
    FORGOTTEN = "forgotten"
    # No selector of the inbound accepted the message, so it did not become an item.
    FILTERED = "filtered"
    # An inbound delivered the result of an item.
    RESULT = "result"


@dataclass(frozen=True, slots=True)
class ItemAccounting:
    """Numbers of items by state, with the invariant received = final + in flight + parked."""

    received: int = 0
    # By state, including deleted items.
    final: dict[str, int] = field(default_factory=dict)
    in_flight: dict[str, int] = field(default_factory=dict)
    parked: int = 0
    redelivered: int = 0
    late_results: int = 0
    forgotten: int = 0
    # Messages that did not become items: not accepted, or results.
    filtered: int = 0
    results: int = 0

    @property
    def accounted(self) -> int:
        """Return the right side of the invariant: final + in flight + parked."""
        return sum(self.final.values()) + sum(self.in_flight.values()) + self.parked

    @property
    def balanced(self) -> bool:
        """Return whether the invariant holds: every item is in exactly one state."""
        return self.received == self.accounted


def item_accounting(project: int) -> ItemAccounting:
    """Return the accounting of a project.

    It is consistent at one moment, because each move and its counters share a transaction.
    """
    rows = (
        CounterChange.objects.filter(project=project)
        .values_list("what")
        .annotate(total=Sum("amount"))
    )
    return _accounting(dict(rows))


@dataclass(frozen=True, slots=True)
class OutboundCounts:
    """Numbers of items whose current or last outbound is this one; "" for items without one."""

    outbound: str
    by_state: dict[str, int]


def outbound_counts(project: int) -> list[OutboundCounts]:
    """Return the numbers of items per state for each outbound. Reads counters only."""
    counts: dict[str, dict[str, int]] = {}
    rows = (
        CounterChange.objects.filter(project=project, what__in=ItemState.values)
        .values_list("outbound", "what")
        .annotate(total=Sum("amount"))
    )
    for outbound, counter, total in rows:
        if total:
            counts.setdefault(outbound, {})[counter] = total
    return [OutboundCounts(name, counts[name]) for name in sorted(counts)]


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """Counters of a project compared with the stored items."""

    books: ItemAccounting
    # Stored items by state; deleted ones are missing here.
    rows: dict[str, int]

    @property
    def holds(self) -> bool:
        """Return whether counters and stored items agree, and the invariant holds."""
        counted = {**self.books.in_flight, ItemState.PARKED.value: self.books.parked}
        kept = sum(self.books.final.values()) - self.books.forgotten
        return (
            self.books.balanced
            and all(self.rows.get(state, 0) == number for state, number in counted.items())
            and sum(self.rows.get(state, 0) for state in FINAL) == kept
        )


def reconcile_items(project: int) -> Reconciliation:
    """Compare the counters with the stored items, in one statement and so at one moment.

    Slow: it reads all items of the project.
    """
    counters = (
        CounterChange.objects.filter(project=project)
        .annotate(kind=Value("counter"))
        .values_list("kind", "what")
        .annotate(total=Sum("amount"))
    )
    rows = (
        RoutedItem.objects.filter(project=project)
        .order_by()
        .annotate(kind=Value("rows"), what=F("state"))
        .values_list("kind", "what")
        .annotate(total=Count("id"))
    )
    counted: dict[str, dict[str, Any]] = {"counter": {}, "rows": {}}
    for kind, counter, total in counters.union(rows, all=True):
        counted[kind][counter] = total
    return Reconciliation(_accounting(counted["counter"]), counted["rows"])


def _accounting(totals: dict[str, int]) -> ItemAccounting:
    return ItemAccounting(
        received=totals.get(CountedEvent.ARRIVED, 0),
        final={state.value: totals.get(state, 0) for state in ItemState if state in FINAL},
        in_flight={state.value: totals.get(state, 0) for state in ItemState if state in IN_FLIGHT},
        parked=totals.get(ItemState.PARKED, 0),
        redelivered=totals.get(CountedEvent.REDELIVERED, 0),
        late_results=totals.get(CountedEvent.LATE_RESULT, 0),
        forgotten=totals.get(CountedEvent.FORGOTTEN, 0),
        filtered=totals.get(CountedEvent.FILTERED, 0),
        results=totals.get(CountedEvent.RESULT, 0),
    )
