"""What other rules would do with the items that really came: asked before they are activated.

The ledger keeps an item as it was last decided about: its converters have been applied, and what
results brought back is in it. So this is what is replayed: each item as it is kept now, once under
the rules of ``base`` and once under those of ``draft``, as if it came in new. The conditions of its
inbound and the choice of an outbound are compared; converters are not run again, queues are taken
to have room, and nothing is written.
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
from apps.routing.engine.items import Item, NoItem, read_item
from apps.routing.engine.life import Life
from apps.routing.engine.messages import message
from apps.routing.engine.outcomes import Action, Decision, State
from apps.routing.engine.rules import Outbound
from apps.routing.engine.track import Track
from apps.routing.models import RoutedItem
from apps.routing.queries.lists import list_items
from apps.routing.querysets import RoutedItemQuerySet
from apps.routing.states import ItemState

MOST_ITEMS: Final = 5_000
# Items may be as long as 1 MiB each, and rules as slow as they are written.
MOST_CHARACTERS: Final = 64 * 1024 * 1024
MOST_SECONDS: Final = 20.0
# Differences that are kept one by one; all of them are counted.
MOST_ROWS: Final = 500
_CHUNK: Final = 200
_ANY_TIME: Final = datetime(2000, 1, 1, tzinfo=UTC)


class Fate(StrEnum):
    """What rules do with an item that comes in."""

    # An outbound gets it.
    SENT = "sent"
    # No outbound takes it.
    REJECTED = "rejected"
    # It has been routed as often as these rules allow.
    ROUTING_LIMITS = "routing_limits"
    # Its inbound does not want it.
    FILTERED = "filtered"
    # Its inbound is switched off, or is not among these rules.
    INBOUND_DISABLED = "inbound_disabled"
    INBOUND_GONE = "inbound_gone"


@dataclass(frozen=True, slots=True, order=True)
class Choice:
    """A fate, and the outbound of one that is sent."""

    fate: Fate
    outbound: str = ""

    @property
    def taken(self) -> bool:
        """Whether an outbound gets it."""
        return self.fate is Fate.SENT


class Difference(StrEnum):
    """What is different about an item."""

    NEWLY_REJECTED = "newly_rejected"
    NEWLY_TAKEN = "newly_taken"
    # Another outbound, or another reason why there is none.
    MOVED = "moved"
    # The same outbound, which sends something else or sends it elsewhere.
    MESSAGE = "message"
    NONE = "none"


# The first is what a person must see first.
ORDER: Final = {each: number for number, each in enumerate(Difference)}


@dataclass(frozen=True, slots=True)
class Row:
    """One item that would fare otherwise."""

    task_uuid: UUID
    received_at: datetime
    inbound: str
    # As the ledger has it.
    state: str
    before: Choice
    after: Choice
    difference: Difference


@dataclass(frozen=True, slots=True)
class Group:
    """How many items go one way before and another after."""

    before: Choice
    after: Choice
    difference: Difference
    count: int


@dataclass(slots=True)
class Replay:
    """What would change."""

    base: int
    draft: int
    # Items that were asked about.
    items: int = 0
    # Items of the ledger that are none: poison, kept as it came.
    unreadable: int = 0
    groups: list[Group] = field(default_factory=list)
    # Differences, the gravest first and then the newest; see MOST_ROWS.
    rows: list[Row] = field(default_factory=list)
    # Inbounds among those of the items whose converters differ: these were not run again.
    converters_differ: list[str] = field(default_factory=list)
    seconds: float = 0.0
    # It was stopped before all items that were asked for were read.
    stopped: bool = False

    @property
    def different(self) -> int:
        """Items that would fare otherwise."""
        return sum(each.count for each in self.groups if each.difference is not Difference.NONE)

    def count(self, difference: Difference) -> int:
        """Items that differ in this way."""
        return sum(each.count for each in self.groups if each.difference is difference)


def replay(
    *,
    project: int,
    draft: Track,
    base: Track,
    limit: int = 1_000,
    seconds: float = MOST_SECONDS,
    **filters: Any,
) -> Replay:
    """Ask two tracks about the last ``limit`` (at most ``MOST_ITEMS``) items of a project.

    ``filters`` are those of ``list_items``: state, inbound, outbound, since, until.
    """
    began = time.perf_counter()
    found = Replay(base.version, draft.version)
    one, other = _Rules(base), _Rules(draft)
    compare = _Messages(base, draft)
    counted: Counter[tuple[Choice, Choice, Difference]] = Counter()
    rows: list[Row] = []
    inbounds: set[str] = set()
    characters = 0
    among = RoutedItem.objects.filter(project=project).exclude(state=ItemState.DEAD)
    for task_uuid, received_at, inbound, state, text in _last(among, limit, filters):
        characters += len(text)
        if characters > MOST_CHARACTERS or time.perf_counter() - began > seconds:
            found.stopped = True
            break
        try:
            item = read_item(text)
        except NoItem:
            found.unreadable += 1
            continue
        found.items += 1
        inbounds.add(inbound)
        strange = inbound not in base.entrances and inbound not in draft.entrances
        before, was = one.choice(item, "" if strange else inbound)
        after, will_be = other.choice(item, "" if strange else inbound)
        difference = _difference(before, after)
        if difference is Difference.NONE and compare.differ(was, will_be):
            difference = Difference.MESSAGE
        counted[before, after, difference] += 1
        if difference is not Difference.NONE:
            rows.append(Row(task_uuid, received_at, inbound, state, before, after, difference))
    rows.sort(key=lambda row: ORDER[row.difference])
    found.rows = rows[:MOST_ROWS]
    found.groups = sorted(
        (Group(*key, count) for key, count in counted.items()),
        key=lambda group: (ORDER[group.difference], -group.count, group.before, group.after),
    )
    found.converters_differ = sorted(
        name for name in inbounds if _converters(base, name) != _converters(draft, name)
    )
    found.seconds = time.perf_counter() - began
    return found


def _last(among: RoutedItemQuerySet[RoutedItem], limit: int, filters: dict[str, Any]) -> Any:
    rows = list_items(among, **filters).values_list(
        "task_uuid", "received_at", "inbound", "state", "item"
    )
    return rows[: max(0, min(limit, MOST_ITEMS))].iterator(chunk_size=_CHUNK)


class _Rules:
    """One of the two, asked about many items."""

    def __init__(self, track: Track) -> None:
        self._life: Life = track.life()
        self._entrances = track.entrances

    def choice(self, item: Item, inbound: str) -> tuple[Choice, Decision | None]:
        """What becomes of an item that comes in here; "" asks no inbound."""
        if inbound:
            entrance = self._entrances.get(inbound)
            if entrance is None:
                return Choice(Fate.INBOUND_GONE), None
            if entrance.rule.disable:
                return Choice(Fate.INBOUND_DISABLED), None
            if not entrance.accepts(item):
                return Choice(Fate.FILTERED), None
        decision = self._life.decide(item, None)
        if decision.action is Action.DISPATCH:
            return Choice(Fate.SENT, decision.outbound), decision
        limits = decision.state is not State.REJECTED
        return Choice(Fate.ROUTING_LIMITS if limits else Fate.REJECTED), decision


class _Messages:
    """Tells whether an outbound of both would send an item otherwise."""

    def __init__(self, base: Track, draft: Track) -> None:
        # Of those that are not the same; whether another target is meant.
        self._changed: dict[str, tuple[Outbound, Outbound, bool]] = {}
        for name, after in draft.outbounds.items():
            before = base.outbounds.get(name)
            if before is None or _sends(before) == _sends(after):
                continue
            elsewhere = (before.cls, before.init) != (after.cls, after.init)
            self._changed[name] = before, after, elsewhere

    def differ(self, was: Decision | None, will_be: Decision | None) -> bool:
        """Whether two decisions for one outbound send something else, or elsewhere."""
        if was is None or will_be is None or was.outbound not in self._changed:
            return False
        before, after, elsewhere = self._changed[was.outbound]
        return elsewhere or self._message(before, was) != self._message(after, will_be)

    @staticmethod
    def _message(outbound: Outbound, decision: Decision) -> Item:
        return message(
            outbound,
            decision.item,
            uuid=NO_UUID,
            counters=decision.counters,
            submit_time=_ANY_TIME,
        )


def _sends(outbound: Outbound) -> Outbound:
    """The rule without what says nothing of its messages."""
    return replace(outbound, selector=(), disable=False, note="", place="")


def _difference(before: Choice, after: Choice) -> Difference:
    if before == after:
        return Difference.NONE
    if before.taken != after.taken:
        return Difference.NEWLY_REJECTED if before.taken else Difference.NEWLY_TAKEN
    return Difference.MOVED


def _converters(track: Track, inbound: str) -> Any:
    entrance = track.entrances.get(inbound)
    return None if entrance is None else entrance.rule.convert
