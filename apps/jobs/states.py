"""The states of a run and the moves between them."""

from __future__ import annotations

from typing import Final

from django.db.models import TextChoices
from django.utils.translation import gettext_lazy as _


class RunState(TextChoices):
    """Where a run is. The last four are final."""

    QUEUED = "queued", _("queued")
    STARTING = "starting", _("starting")
    RUNNING = "running", _("running")
    PAUSING = "pausing", _("pausing")
    PAUSED = "paused", _("paused")
    RESUMING = "resuming", _("resuming")
    STOPPING = "stopping", _("stopping")
    EXITED = "exited", _("exited")
    FAILED = "failed", _("failed")
    LOST = "lost", _("lost")
    CANCELLED = "cancelled", _("cancelled")


S = RunState

FINAL: Final = frozenset({S.EXITED, S.FAILED, S.LOST, S.CANCELLED})
ACTIVE: Final = frozenset(S) - FINAL
# A host has a process or container for these.
ON_A_HOST: Final = ACTIVE - {S.QUEUED}

# From which states each state may be entered. A final state is never left.
MOVES: Final[dict[RunState, frozenset[RunState]]] = {
    S.QUEUED: frozenset(),
    S.STARTING: frozenset({S.QUEUED}),
    S.RUNNING: frozenset({S.STARTING, S.RESUMING, S.PAUSING}),
    S.PAUSING: frozenset({S.RUNNING}),
    S.PAUSED: frozenset({S.PAUSING}),
    S.RESUMING: frozenset({S.PAUSED}),
    S.STOPPING: frozenset(ON_A_HOST - {S.STOPPING}),
    S.EXITED: frozenset(ON_A_HOST),
    S.FAILED: frozenset(ON_A_HOST),
    S.LOST: frozenset(ON_A_HOST),
    S.CANCELLED: frozenset(ACTIVE),
}

# A person may ask these to stop.
STOPPABLE: Final = MOVES[S.STOPPING] | {S.QUEUED}

# How pages colour a state: the words are those of the admin theme's labels.
TONES: Final[dict[RunState, str]] = {
    S.QUEUED: "default",
    S.STARTING: "info",
    S.RUNNING: "info",
    S.PAUSING: "warning",
    S.PAUSED: "warning",
    S.RESUMING: "info",
    S.STOPPING: "warning",
    S.EXITED: "success",
    S.FAILED: "danger",
    S.LOST: "danger",
    S.CANCELLED: "warning",
}


def may_move(from_state: str, to_state: RunState) -> bool:
    """Whether a run in ``from_state`` may enter ``to_state``."""
    return from_state in MOVES[to_state]
