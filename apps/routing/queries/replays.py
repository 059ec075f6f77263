"""Replay of stored items under a draft of the rules, to compare before activating it.

Each item is decided about twice as if it had just arrived: under the rules of ``base`` and under
those of ``draft``. Compared are the inbound's conditions, the chosen outbound and the message.

Limits: the stored item is used, with the changes made by converters and by results. Converters are
not run again, every queue is assumed to have room, and nothing is written.
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final
from uuid import UUID

from apps.routing.engine.explanations import NO_UUID
from apps.routing.engine.items import Item, ItemError, read_item
from apps.routing.engine.life import Life
from apps.routing.engine.messages import message
from apps.routing.engine.outcomes import Action, Decision, TaskState
from apps.routing.engine.rules import Outbound
from apps.routing.engine.track import Track
from apps.routing.models import RoutedItem
from apps.routing.queries.lists import list_items
from apps.routing.querysets import RoutedItemQuerySet
from apps.routing.states import ItemState

MOST_ITEMS: Final = 5_000
# Bounds of one replay: an item may have 1 MiB, and selectors may be slow.
MOST_CHARACTERS: Final = 64 * 1024 * 1024
MOST_SECONDS: Final = 20.0
# Limit of differences that are listed; all of them are counted.
MOST_ROWS: Final = 500
_CHUNK: Final = 200
_ANY_TIME: Final = datetime(2000, 1, 1, tzinfo=UTC)


class RouteKind(StrEnum):
    """Possible outcomes for an item under a set of rules; the values are part of the REST API."""

    # Sent to an outbound.
    SENT = "sent"
    # No outbound accepts it.
    REJECTED = "rejected"
    # It was routed as often as the rules allow.
    ROUTING_LIMITS = "routing_limits"
    # No selector of its inbound accepts it.
    FILTERED = "filtered"
    # Its inbound is disabled, or missing from the rules.
    INBOUND_DISABLED = "inbound_disabled"
    INBOUND_GONE = "inbound_gone"


@dataclass(frozen=True, slots=True, order=True)
class Route:
    """Outcome for an item under a set of rules, with the outbound if it is sent."""

    fate: RouteKind
    outbound: str = ""

    @property
    def taken(self) -> bool:
        """Return whether the item is sent to an outbound."""
        return self.fate is RouteKind.SENT


class RouteDifference(StrEnum):
    """Kind of difference between the two outcomes of an item, the most important first."""

    NEWLY_REJECTED = "newly_rejected"
    NEWLY_TAKEN = "newly_taken"
    # Another outbound, or rejected for another reason.
    MOVED = "moved"
    # The same outbound, but another message or another target.
    MESSAGE = "message"
    NONE = "none"


# Sort order of differences.
ORDER: Final = {difference: number for number, difference in enumerate(RouteDifference)}


@dataclass(frozen=True, slots=True)
class ReplayedItem:
    """An item whose outcome differs."""

    task_uuid: UUID
    received_at: datetime
    inbound: str
    # Its state in the ledger.
    state: str
    before: Route
    after: Route
    difference: RouteDifference


@dataclass(frozen=True, slots=True)
class ReplayGroup:
    """Number of items with the same pair of outcomes."""

    before: Route
    after: Route
    difference: RouteDifference
    count: int


@dataclass(slots=True)
class Replay:
    """Result of a replay; ``base`` and ``draft`` are numbers of versions."""

    base: int
    draft: int
    # Number of replayed items.
    items: int = 0
    # Number of malformed messages, which cannot be replayed.
    unreadable: int = 0
    groups: list[ReplayGroup] = field(default_factory=list)
    # Items with differences: by ``ORDER``, then the newest first; at most ``MOST_ROWS``.
    rows: list[ReplayedItem] = field(default_factory=list)
    # Inbounds whose converters differ between the versions; converters are not replayed.
    converters_differ: list[str] = field(default_factory=list)
    seconds: float = 0.0
    # Whether a limit of time or size ended it early.
    stopped: bool = False

    @property
    def different(self) -> int:
        """Return the number of items whose outcomes differ."""
        return sum(
            group.count for group in self.groups if group.difference is not RouteDifference.NONE
        )

    def count(self, difference: RouteDifference) -> int:
        """Return the number of items with this kind of difference."""
        return sum(group.count for group in self.groups if group.difference is difference)


def replay(
    *,
    project: int,
    draft: Track,
    base: Track,
    limit: int = 1_000,
    seconds: float = MOST_SECONDS,
    **filters: Any,
) -> Replay:
    """Replay the last ``limit`` (at most ``MOST_ITEMS``) items of a project under two versions.

    Ends early after ``seconds``. ``filters`` are those of ``list_items``: state, inbound, outbound,
    since, until.
    """
    began = time.perf_counter()
    result = Replay(base.version, draft.version)
    base_rules, draft_rules = _Rules(base), _Rules(draft)
    compare = _MessageComparison(base, draft)
    counted: Counter[tuple[Route, Route, RouteDifference]] = Counter()
    rows: list[ReplayedItem] = []
    inbounds: set[str] = set()
    characters = 0
    among = RoutedItem.objects.filter(project=project).exclude(state=ItemState.DEAD)
    for task_uuid, received_at, inbound, state, text in _last(among, limit, filters):
        characters += len(text)
        if characters > MOST_CHARACTERS or time.perf_counter() - began > seconds:
            result.stopped = True
            break
        try:
            item = read_item(text)
        except ItemError:
            result.unreadable += 1
            continue
        result.items += 1
        inbounds.add(inbound)
        is_known = inbound in base.entrances or inbound in draft.entrances
        before, was = base_rules.route(item, inbound if is_known else "")
        after, will_be = draft_rules.route(item, inbound if is_known else "")
        difference = _difference(before, after)
        if difference is RouteDifference.NONE and compare.differ(was, will_be):
            difference = RouteDifference.MESSAGE
        counted[before, after, difference] += 1
        if difference is not RouteDifference.NONE:
            rows.append(
                ReplayedItem(task_uuid, received_at, inbound, state, before, after, difference)
            )
    rows.sort(key=lambda row: ORDER[row.difference])
    result.rows = rows[:MOST_ROWS]
    result.groups = sorted(
        (ReplayGroup(*key, count) for key, count in counted.items()),
        key=lambda group: (ORDER[group.difference], -group.count, group.before, group.after),
    )
    result.converters_differ = sorted(
        name for name in inbounds if _converters(base, name) != _converters(draft, name)
    )
    result.seconds = time.perf_counter() - began
    return result


def _last(among: RoutedItemQuerySet[RoutedItem], limit: int, filters: dict[str, Any]) -> Any:
    rows = list_items(among, **filters).values_list(
        "task_uuid", "received_at", "inbound", "state", "item"
    )
    return rows[: max(0, min(limit, MOST_ITEMS))].iterator(chunk_size=_CHUNK)


class _Rules:
    """One version of the rules, which decides about many items."""

    def __init__(self, track: Track) -> None:
        self._life: Life = track.life()
        self._entrances = track.entrances

    def route(self, item: Item, inbound: str) -> tuple[Route, Decision | None]:
        """Return the outcome and the decision for an item; "" skips the inbound's conditions."""
        if inbound:
            entrance = self._entrances.get(inbound)
            if entrance is None:
                return Route(RouteKind.INBOUND_GONE), None
            if entrance.rule.disable:
                return Route(RouteKind.INBOUND_DISABLED), None
            if not entrance.accepts(item):
                return Route(RouteKind.FILTERED), None
        decision = self._life.decide(item, None)
        if decision.action is Action.DISPATCH:
            return Route(RouteKind.SENT, decision.outbound), decision
        limits = decision.state is not TaskState.REJECTED
        return Route(RouteKind.ROUTING_LIMITS if limits else RouteKind.REJECTED), decision


class _MessageComparison:
    """Compares the messages of outbounds that both versions have."""

    def __init__(self, base: Track, draft: Track) -> None:
        # Changed outbounds by name: before, after, and whether the target differs.
        self._changed: dict[str, tuple[Outbound, Outbound, bool]] = {}
        for name, after in draft.outbounds.items():
            before = base.outbounds.get(name)
            if before is None or _sends(before) == _sends(after):
                continue
            elsewhere = (before.cls, before.init) != (after.cls, after.init)
            self._changed[name] = before, after, elsewhere

    def differ(self, was: Decision | None, will_be: Decision | None) -> bool:
        """Return whether two decisions for the same outbound differ in message or target."""
        if was is None or will_be is None or was.outbound not in self._changed:
            return False
        before, after, elsewhere = self._changed[was.outbound]
        return elsewhere or self._message(before, was) != self._message(after, will_be)

    @staticmethod
    def _message(outbound: Outbound, decision: Decision) -> Item:
        return message(
            outbound, decision.item, uuid=NO_UUID, counters=decision.counters, submit_time=_ANY_TIME
        )


def _sends(outbound: Outbound) -> Outbound:
    """Return the rule without the fields that do not affect its messages."""
    return replace(outbound, selector=(), disable=False, note="", place="")


def _difference(before: Route, after: Route) -> RouteDifference:
    if before == after:
        return RouteDifference.NONE
    if before.taken != after.taken:
        return RouteDifference.NEWLY_REJECTED if before.taken else RouteDifference.NEWLY_TAKEN
    return RouteDifference.MOVED


def _converters(track: Track, inbound: str) -> Any:
    entrance = track.entrances.get(inbound)
    return None if entrance is None else entrance.rule.convert
