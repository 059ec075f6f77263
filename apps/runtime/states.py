"""States of daemons and dead letters."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _


class DaemonState(models.TextChoices):
    """State that a process last reported; a killed process never reports STOPPED."""

    STARTING = "starting", _("starting")
    RUNNING = "running", _("running")
    FAILING = "failing", _("failing")
    STOPPING = "stopping", _("stopping")
    STOPPED = "stopped", _("stopped")
    FAILED = "failed", _("failed")


class DeadLetterState(models.TextChoices):
    """State of a dead letter: waiting for a decision, requeued or dropped."""

    HELD = "held", _("held")
    REQUEUED = "requeued", _("requeued")
    DROPPED = "dropped", _("dropped")


# States in which a process is expected to send heartbeats.
DAEMON_ACTIVE = frozenset(
    {DaemonState.STARTING, DaemonState.RUNNING, DaemonState.FAILING, DaemonState.STOPPING}
)
DAEMON_FINAL = frozenset({DaemonState.STOPPED, DaemonState.FAILED})
DEAD_LETTER_FINAL = frozenset({DeadLetterState.REQUEUED, DeadLetterState.DROPPED})
