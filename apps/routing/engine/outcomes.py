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


class TaskState(StrEnum):
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


ACTIVE: Final = frozenset(
    {TaskState.RECEIVED, TaskState.PARKED, TaskState.DISPATCHED, TaskState.RETRYING}
)
FINAL: Final = frozenset(TaskState) - ACTIVE


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


# Marks texts for translation, without an import of Django in the engine.
_ = str

TEXTS: Final[Mapping[Reason, str]] = {
    Reason.MATCHED: _("The task matches a condition of %(outbound)s."),
    Reason.RETRY: _("The task is sent to %(outbound)s again."),
    Reason.FAILBACK: _("The task goes to the failback %(outbound)s."),
    Reason.ROUTED_AGAIN: _(
        "Status %(status)s is not retried; the rules route the task to %(outbound)s."
    ),
    Reason.OUTBOUND_GONE: _(
        "The outbound of the task was removed; the rules route the task to %(outbound)s."
    ),
    Reason.OUTBOUND_DISABLED: _(
        "The outbound of the task is disabled; the task is now for %(outbound)s."
    ),
    Reason.NEXT: _("The queue of an earlier outbound is full; the task also matches %(outbound)s."),
    Reason.ROOM: _("The queue of %(outbound)s has room."),
    Reason.QUEUE_FULL: _("The queue of %(outbound)s is full; the task waits for room."),
    Reason.SENT: _("The task was sent to %(outbound)s and waits for the result."),
    Reason.TERMINAL: _("Status %(status)s ends the task successfully."),
    Reason.DELIVERED: _("The task was delivered to %(outbound)s, which returns no result."),
    Reason.NO_RULE: _("No rule matches the task."),
    Reason.RETRY_LIMITS: _(
        "The task failed with status %(status)s, and no retries are left at %(outbound)s."
    ),
    Reason.NO_FAILBACK: _("Status %(status)s requires a failback, but %(outbound)s has none."),
    Reason.ROUTING_LIMITS: _("The task reached the maximum number of routings."),
    Reason.OVERFLOW: _("The queue of %(outbound)s is full, and its overflow policy is fail."),
    Reason.NO_RESULT: _("No result arrived in time, and no retries are left at %(outbound)s."),
    Reason.LATE_RESULT: _("A result with status %(status)s arrived after the task had ended."),
    Reason.STALE_RESULT: _(
        "Status %(status)s belongs to an earlier attempt; another attempt is in progress."
    ),
    Reason.NOT_WAITING: _("The task is not waiting for a result."),
    Reason.NOT_PARKED: _("The task is not parked."),
    Reason.REFUSED: _("%(outbound)s rejected the task."),
    Reason.TARGET_AWAY: _(
        "The target of %(outbound)s is unreachable; the task waits until it is reachable again."
    ),
    Reason.RATE_LIMIT: _("The rate limit of %(outbound)s is reached; the task waits for its turn."),
    Reason.IN_LINE: _("Other tasks already wait for %(outbound)s; this task waits behind them."),
    Reason.POSTPONED: _(
        "The router had no time left to send the task to %(outbound)s; the task waits."
    ),
    Reason.POISON: _("The task is malformed and cannot be routed."),
}


# Not frozen: one is created for each item, and creating a frozen one takes three times as long.
@dataclass(slots=True)
class Decision:
    """Next action for an item, and the values to store in the ledger."""

    action: Action
    # Stored before the action is carried out; for IGNORE the unchanged current state.
    state: TaskState
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
            return replace(self, action=Action.WAIT, state=TaskState.DISPATCHED, reason=Reason.SENT)
        return replace(self, action=Action.END, state=TaskState.SUCCEEDED, reason=Reason.DELIVERED)
