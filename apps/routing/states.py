"""The states of a routed item and the moves between them."""

from __future__ import annotations

from typing import Final

from django.db.models import TextChoices
from django.utils.translation import gettext_lazy as _


class ItemState(TextChoices):
    """Where a routed item is. The last six are final."""

    RECEIVED = "received", _("received")
    PARKED = "parked", _("parked")
    DISPATCHED = "dispatched", _("dispatched")
    RETRYING = "retrying", _("retrying")
    SUCCEEDED = "succeeded", _("succeeded")
    FAILED = "failed", _("failed")
    EXPIRED = "expired", _("expired")
    REJECTED = "rejected", _("rejected")
    CANCELLED = "cancelled", _("cancelled")
    DEAD = "dead", _("dead")


S = ItemState

FINAL: Final = frozenset({S.SUCCEEDED, S.FAILED, S.EXPIRED, S.REJECTED, S.CANCELLED, S.DEAD})
# Not ended; a parked item is counted apart from those in flight.
OPEN: Final = frozenset(S) - FINAL
IN_FLIGHT: Final = OPEN - {S.PARKED}
# What a person may want to look at, edit and submit again.
RESUBMITTABLE: Final = FINAL - {S.SUCCEEDED}

# From which states each state may be entered. A final state is never left.
MOVES: Final[dict[ItemState, frozenset[ItemState]]] = {
    S.RECEIVED: frozenset(),
    # From parked: it was offered again, and its outbound is still full or away.
    S.PARKED: OPEN,
    # From dispatched: no result came in time, or one came that sends it out again at once.
    S.DISPATCHED: OPEN,
    S.RETRYING: OPEN - {S.RECEIVED},
    # From received: its result was quicker than the note that it had been dispatched.
    S.SUCCEEDED: OPEN,
    S.FAILED: OPEN,
    S.EXPIRED: OPEN,
    S.REJECTED: OPEN,
    S.CANCELLED: OPEN,
    S.DEAD: OPEN,
}

# How pages colour a state: the words are those of the admin theme's labels.
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
    """Whether an item in ``from_state`` may enter ``to_state``."""
    return from_state in MOVES[to_state]
