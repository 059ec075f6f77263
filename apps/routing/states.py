"""States of a routed item, and the allowed transitions."""

from __future__ import annotations

from typing import Final

from django.db.models import TextChoices
from django.utils.translation import gettext_lazy as _

from apps.routing.engine import outcomes


class ItemState(TextChoices):
    """State of an item: the engine's states with labels. The last six are final."""

    RECEIVED = outcomes.TaskState.RECEIVED.value, _("received")
    PARKED = outcomes.TaskState.PARKED.value, _("parked")
    DISPATCHED = outcomes.TaskState.DISPATCHED.value, _("dispatched")
    RETRYING = outcomes.TaskState.RETRYING.value, _("retrying")
    SUCCEEDED = outcomes.TaskState.SUCCEEDED.value, _("succeeded")
    FAILED = outcomes.TaskState.FAILED.value, _("failed")
    EXPIRED = outcomes.TaskState.EXPIRED.value, _("expired")
    REJECTED = outcomes.TaskState.REJECTED.value, _("rejected")
    CANCELLED = outcomes.TaskState.CANCELLED.value, _("cancelled")
    DEAD = outcomes.TaskState.DEAD.value, _("dead")


S = ItemState

FINAL: Final = frozenset(S(state.value) for state in outcomes.FINAL)
ACTIVE: Final = frozenset(S) - FINAL

# For each state, the states from which it may be entered. A final state is never left.
MOVES: Final[dict[ItemState, frozenset[ItemState]]] = {
    S.RECEIVED: frozenset(),
    # From parked to parked: for another outbound, when the first one was removed from the rules.
    S.PARKED: frozenset(ACTIVE),
    S.DISPATCHED: frozenset({S.RECEIVED, S.PARKED, S.RETRYING}),
    # From any open state: a result may arrive before the ledger says that the item was sent.
    S.RETRYING: frozenset(ACTIVE),
    S.SUCCEEDED: frozenset(ACTIVE),
    S.FAILED: frozenset(ACTIVE),
    S.EXPIRED: frozenset({S.DISPATCHED}),
    S.REJECTED: frozenset({S.RECEIVED, S.PARKED}),
    S.CANCELLED: frozenset(ACTIVE),
    S.DEAD: frozenset(ACTIVE),
}

# Colour of each state on pages, as a label variant of the admin theme.
TONES: Final[dict[ItemState, str]] = {
    S.RECEIVED: "default",
    S.PARKED: "warning",
    S.DISPATCHED: "info",
    S.RETRYING: "warning",
    S.SUCCEEDED: "success",
    S.FAILED: "danger",
    S.EXPIRED: "danger",
    S.REJECTED: "danger",
    S.CANCELLED: "warning",
    S.DEAD: "danger",
}


def may_move(from_state: str, to_state: ItemState) -> bool:
    """Return whether the transition from ``from_state`` to ``to_state`` is allowed."""
    return from_state in MOVES[to_state]
