"""States of an item, and the decisions about it with their reasons.

Texts are in English for logs, and are translated when they are displayed. ``TEXTS[reason]`` has
the placeholders ``outbound`` and ``status``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from apps.routing.engine.items import Item
from apps.routing.engine.messages import Counters


class State(StrEnum):
    """State of an item; the last six are final."""

    RECEIVED = "received"
    PARKED = "parked"
    # Sent; the result is pending.
    DISPATCHED = "dispatched"
    RETRYING = "retrying"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    EXPIRED = "expired"
    REJECTED = "rejected"
    CANCELLED = "cancelled"
    # Malformed: it cannot be routed at all.
    DEAD = "dead"


FINAL: Final = frozenset(
    {State.SUCCEEDED, State.FAILED, State.EXPIRED, State.REJECTED, State.CANCELLED, State.DEAD}
)
ACTIVE: Final = frozenset(State) - FINAL


class Action(StrEnum):
    """Action that follows from a decision."""

    # Send the item to the outbound, then call Decision.delivered.
    DISPATCH = "dispatch"
    # Park the item until the outbound has capacity, then call Life.offer.
    HOLD = "hold"
    # Do nothing until the result arrives.
    WAIT = "wait"
    END = "end"
    # Only count the item.
    IGNORE = "ignore"


class Reason(StrEnum):
    """Reason of a decision; ``TEXTS`` has the text of each."""

    MATCHED = "matched"
    RETRY = "retry"
    FAILBACK = "failback"
    ROUTED_AGAIN = "routed_again"
    OUTBOUND_GONE = "outbound_gone"
    OUTBOUND_DISABLED = "outbound_disabled"
    NEXT = "next"
    ROOM = "room"
    QUEUE_FULL = "queue_full"
    SENT = "sent"
    TERMINAL = "terminal"
    DELIVERED = "delivered"
    NO_RULE = "no_rule"
    RETRY_LIMITS = "retry_limits"
    NO_FAILBACK = "no_failback"
    ROUTING_LIMITS = "routing_limits"
    OVERFLOW = "overflow"
    NO_RESULT = "no_result"
    LATE_RESULT = "late_result"
    STALE_RESULT = "stale_result"
    NOT_WAITING = "not_waiting"
    NOT_PARKED = "not_parked"
    REFUSED = "refused"
    TARGET_AWAY = "target_away"
    RATE_LIMIT = "rate_limit"
    IN_LINE = "in_line"
    POSTPONED = "postponed"
    POISON = "poison"


TEXTS: Final[Mapping[Reason, str]] = {
    Reason.MATCHED: "A rule of %(outbound)s takes it.",
    Reason.RETRY: "It is sent to %(outbound)s once more.",
    Reason.FAILBACK: "It goes to the failback %(outbound)s.",
    Reason.ROUTED_AGAIN: (
        "Status %(status)s asks for no retry; by the rules it goes to %(outbound)s."
    ),
    Reason.OUTBOUND_GONE: "Its outbound is gone; by the rules it goes to %(outbound)s.",
    Reason.OUTBOUND_DISABLED: "Its outbound is disabled; it is for %(outbound)s now.",
    Reason.NEXT: "The queue before is full; %(outbound)s takes it as well.",
    Reason.ROOM: "The queue of %(outbound)s has room for it.",
    Reason.QUEUE_FULL: "The queue of %(outbound)s is full; it waits for room.",
    Reason.SENT: "It was sent to %(outbound)s, whose result is waited for.",
    Reason.TERMINAL: "Status %(status)s ends it well.",
    Reason.DELIVERED: "It was delivered to %(outbound)s, which sends no result.",
    Reason.NO_RULE: "No rule takes it.",
    Reason.RETRY_LIMITS: "It failed with status %(status)s, and %(outbound)s has no retry left.",
    Reason.NO_FAILBACK: "Status %(status)s asks for a failback, and %(outbound)s has none.",
    Reason.ROUTING_LIMITS: "It was routed as often as an item may be.",
    Reason.OVERFLOW: "The queue of %(outbound)s is full, and its rule says to fail then.",
    Reason.NO_RESULT: "No result came in time, and %(outbound)s has no retry left.",
    Reason.LATE_RESULT: "A result with status %(status)s came after its end.",
    Reason.STALE_RESULT: "Status %(status)s is of an earlier attempt; another is on its way.",
    Reason.NOT_WAITING: "It waits for no result.",
    Reason.NOT_PARKED: "It is not parked.",
    Reason.REFUSED: "%(outbound)s does not take it.",
    Reason.TARGET_AWAY: "The target of %(outbound)s cannot be reached; it waits until it can.",
    Reason.RATE_LIMIT: "%(outbound)s has sent as much as it may for now; it waits for its turn.",
    Reason.IN_LINE: "Others wait for %(outbound)s already; it waits behind them.",
    Reason.POSTPONED: "The router had no time left to send it to %(outbound)s; it waits.",
    Reason.POISON: "It can never be routed.",
}


# Not frozen: one is created for each item, and creating a frozen one takes three times as long.
@dataclass(slots=True)
class Decision:
    """Next action for an item, and the values to store in the ledger."""

    action: Action
    # Stored before the action is carried out; for IGNORE the unchanged current state.
    state: State
    reason: Reason
    # Outbound that the item is sent to, parked for or ended at; "" if it had none.
    outbound: str
    counters: Counters
    # Item that rules are evaluated on and that the message is built from.
    item: Item
    is_new: bool = False
    # For a new item: the task_uuid that it carried, of the item that it was derived from.
    origin: str | None = None
    # ``task_result`` as text.
    status: str = ""

    @property
    def text(self) -> str:
        """Human-readable reason."""
        return TEXTS[self.reason] % {"outbound": self.outbound, "status": self.status}

    def delivered(self, *, expects_result: bool) -> Decision:
        """Return the decision that follows a successful DISPATCH: WAIT for a result, or END."""
        if expects_result:
            return replace(self, action=Action.WAIT, state=State.DISPATCHED, reason=Reason.SENT)
        return replace(self, action=Action.END, state=State.SUCCEEDED, reason=Reason.DELIVERED)
