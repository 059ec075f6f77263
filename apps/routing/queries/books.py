"""The books: what became of all items that ever arrived, by counters that never lag."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from django.db.models import Count, F, Sum, Value

from apps.routing.models import RoutedItem, Tally
from apps.routing.querysets import IN_FLIGHT
from apps.routing.states import FINAL, ItemState


class Counted(StrEnum):
    """What is counted besides the states: none of them is ever taken back."""

    ARRIVED = "arrived"
    # The inbound brought an item again that was known.
    REDELIVERED = "redelivered"
    # A result came for an item that had ended.
    LATE_RESULT = "late_result"
    # An ended item is no longer kept.
    FORGOTTEN = "forgotten"
    # An inbound brought something that none of its selectors wants: no item of the router.
    FILTERED = "filtered"
    # It brought the result of an item.
    RESULT = "result"


@dataclass(frozen=True, slots=True)
class Books:
    """What became of all items that ever arrived: received = final + in flight + parked."""

    received: int = 0
    # By state; those that are no longer kept are counted in.
    final: dict[str, int] = field(default_factory=dict)
    in_flight: dict[str, int] = field(default_factory=dict)
    parked: int = 0
    redelivered: int = 0
    late_results: int = 0
    forgotten: int = 0
    # What inbounds brought beside new items: never wanted, and results of items.
    filtered: int = 0
    results: int = 0

    @property
    def accounted(self) -> int:
        """The right side."""
        return sum(self.final.values()) + sum(self.in_flight.values()) + self.parked

    @property
    def balanced(self) -> bool:
        """Whether every item stands in exactly one place."""
        return self.received == self.accounted


def books(project: int) -> Books:
    """The books of a project, of one moment: each change counts in its own transaction."""
    rows = Tally.objects.filter(project=project).values_list("what").annotate(total=Sum("amount"))
    return _books(dict(rows))


@dataclass(frozen=True, slots=True)
class OutboundCounts:
    """Items that stand at, or ended at, one outbound; "" are those that never came to one."""

    outbound: str
    by_state: dict[str, int]


def outbound_counts(project: int) -> list[OutboundCounts]:
    """How many items there are in each state, by outbound; reads counters, never items."""
    found: dict[str, dict[str, int]] = {}
    rows = (
        Tally.objects.filter(project=project, what__in=ItemState.values)
        .values_list("outbound", "what")
        .annotate(total=Sum("amount"))
    )
    for outbound, what, total in rows:
        if total:
            found.setdefault(outbound, {})[what] = total
    return [OutboundCounts(name, found[name]) for name in sorted(found)]


@dataclass(frozen=True, slots=True)
class Audit:
    """The counters beside a count of the rows themselves."""

    books: Books
    # Rows by state, whose forgotten ones are gone.
    rows: dict[str, int]

    @property
    def holds(self) -> bool:
        """Whether both say the same, and the books balance."""
        counted = {**self.books.in_flight, ItemState.PARKED.value: self.books.parked}
        still = sum(self.books.final.values()) - self.books.forgotten
        return (
            self.books.balanced
            and all(self.rows.get(state, 0) == number for state, number in counted.items())
            and sum(self.rows.get(state, 0) for state in FINAL) == still
        )


def audit_books(project: int) -> Audit:
    """Compare the counters with the rows, in one statement and so at one moment. Reads all rows."""
    counters = (
        Tally.objects.filter(project=project)
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
    for kind, what, total in counters.union(rows, all=True):
        counted[kind][what] = total
    return Audit(_books(counted["counter"]), counted["rows"])


def _books(totals: dict[str, int]) -> Books:
    return Books(
        received=totals.get(Counted.ARRIVED, 0),
        final={state.value: totals.get(state, 0) for state in ItemState if state in FINAL},
        in_flight={state.value: totals.get(state, 0) for state in ItemState if state in IN_FLIGHT},
        parked=totals.get(ItemState.PARKED, 0),
        redelivered=totals.get(Counted.REDELIVERED, 0),
        late_results=totals.get(Counted.LATE_RESULT, 0),
        forgotten=totals.get(Counted.FORGOTTEN, 0),
        filtered=totals.get(Counted.FILTERED, 0),
        results=totals.get(Counted.RESULT, 0),
    )
