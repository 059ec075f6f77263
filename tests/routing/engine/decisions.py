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
    """Return an outbound with default settings."""
    return Outbound(name=name, cls="redis_queue.RedisListOutbound", **options)


class StatusMatcher:
    """Matcher: the statuses that each outbound accepts, "new" for an item without one."""

    def __init__(self, *takes: Collection[str]) -> None:
        self.takes = takes
        # Each item that it was asked about.
        self.seen: list[Item] = []

    def __call__(self, item: Item, skip: frozenset[int]) -> int | None:
        """Return the first outbound that accepts the item."""
        self.seen.append(item)
        status = status_of(item) or "new"
        for index, taken in enumerate(self.takes):
            if index not in skip and status in taken:
                return index
        return None


def life(
    outbounds: list[Outbound], *takes: Collection[str], full: Collection[str] = (), **rules: Any
) -> Life:
    """Return the decision logic for these outbounds; 1000 and 1101 are success statuses."""
    return life_by(StatusMatcher(*takes), outbounds, full=full, **rules)


def life_by(
    table: StatusMatcher, outbounds: list[Outbound], full: Collection[str] = (), **rules: Any
) -> Life:
    """Return the decision logic with a given matcher."""
    rules.setdefault("terminal_codes", (1000, "1101"))
    rule_set = RuleSet("ic", outbounds=tuple(outbounds), **rules)
    return Life(rule_set, table, lambda outbound: outbound.name in full)


def known(
    at: str, *counters: int, state: TaskState = TaskState.DISPATCHED, item: Item | None = None
) -> KnownItem:
    """Return the ledger entry of an item at ``at``."""
    return KnownItem(UUID, state, at, Counters(*counters or (1, 0, 0)), item or {"a": 1})


def log(status: Any, **carried: Any) -> Item:
    """Return the result that a spider logs."""
    return {"task_uuid": UUID, "task_result": status, **carried}


def after(decision: Decision) -> KnownItem:
    """Return the ledger entry after ``decision``, with a dispatched item delivered."""
    if decision.action is Action.DISPATCH:
        decision = decision.delivered(expects_result=True)
    return KnownItem(UUID, decision.state, decision.outbound, decision.counters, decision.item)


def told(outbound: Outbound, ledger: KnownItem) -> Item:
    """Return the message of the attempt in ``ledger``."""
    return message(outbound, ledger.item, uuid=UUID, counters=ledger.counters, submit_time=NOW)
