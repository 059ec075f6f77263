"""States of the rows of this app, and which of them are final."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _


class DaemonState(models.TextChoices):
    """What a process last said of itself; a killed one never says that it has stopped."""

    STARTING = "starting", _("starting")
    RUNNING = "running", _("running")
    FAILING = "failing", _("failing")
    STOPPING = "stopping", _("stopping")
    STOPPED = "stopped", _("stopped")
    FAILED = "failed", _("failed")


class DeadLetterState(models.TextChoices):
    """A dead letter waits for a person, who sends it back or drops it."""

    HELD = "held", _("held")
    REQUEUED = "requeued", _("requeued")
    DROPPED = "dropped", _("dropped")


# A process in one of these is expected to send heartbeats.
DAEMON_ACTIVE = frozenset(
    {DaemonState.STARTING, DaemonState.RUNNING, DaemonState.FAILING, DaemonState.STOPPING}
)
DAEMON_FINAL = frozenset({DaemonState.STOPPED, DaemonState.FAILED})
DEAD_LETTER_FINAL = frozenset({DeadLetterState.REQUEUED, DeadLetterState.DROPPED})
