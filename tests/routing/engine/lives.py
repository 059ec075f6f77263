"""Rule sets, ledgers and matchers for tests of an item's life."""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, datetime
from typing import Any

from apps.routing.engine.items import Item
from apps.routing.engine.life import KnownItem, Life, status_of
from apps.routing.engine.messages import Counters, message
from apps.routing.engine.outcomes import Action, Decision, TaskState
from apps.routing.engine.rules import Outbound, RuleSet

UUID = "0190-0000"
NOW = datetime(2021, 10, 22, 7, 12, 2, 145_000, tzinfo=UTC)


def outbound(name: str, **options: Any) -> Outbound:
    """An outbound of which nothing is special."""
    return Outbound(name=name, cls="redis_queue.RedisListOutbound", **options)


class Table:
    """A matcher: for each outbound the statuses it takes, "new" for an item without one."""

    def __init__(self, *takes: Collection[str]) -> None:
        self.takes = takes
        # Each item that it was asked about.
        self.seen: list[Item] = []

    def __call__(self, item: Item, skip: frozenset[int]) -> int | None:
        """The first that takes the item."""
        self.seen.append(item)
        status = status_of(item) or "new"
        for index, taken in enumerate(self.takes):
            if index not in skip and status in taken:
                return index
        return None


def life(
    outbounds: list[Outbound], *takes: Collection[str], full: Collection[str] = (), **rules: Any
) -> Life:
    """Decisions over these outbounds; 1000 and 1101 end an item well."""
    return life_by(Table(*takes), outbounds, full=full, **rules)


def life_by(
    table: Table, outbounds: list[Outbound], full: Collection[str] = (), **rules: Any
) -> Life:
    """The same, with a matcher at hand."""
    rules.setdefault("terminal_codes", (1000, "1101"))
    rule_set = RuleSet("ic", outbounds=tuple(outbounds), **rules)
    return Life(rule_set, table, lambda outbound: outbound.name in full)


def known(
    at: str, *counters: int, state: TaskState = TaskState.DISPATCHED, item: Item | None = None
) -> KnownItem:
    """What the ledger knows of an item that is at ``at``."""
    return KnownItem(UUID, state, at, Counters(*counters or (1, 0, 0)), item or {"a": 1})


def log(status: Any, **carried: Any) -> Item:
    """What a spider hands back."""
    return {"task_uuid": UUID, "task_result": status, **carried}


def after(decision: Decision) -> KnownItem:
    """The ledger once ``decision`` is written, and done if it was to send."""
    if decision.action is Action.DISPATCH:
        decision = decision.delivered(expects_result=True)
    return KnownItem(UUID, decision.state, decision.outbound, decision.counters, decision.item)


def told(outbound: Outbound, ledger: KnownItem) -> Item:
    """The message of the attempt that ``ledger`` knows."""
    return message(outbound, ledger.item, uuid=UUID, counters=ledger.counters, submit_time=NOW)
