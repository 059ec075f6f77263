"""States of sources and imports, and reasons of their end."""

from __future__ import annotations

from typing import Final

from django.db.models import TextChoices
from django.utils.translation import pgettext_lazy


class SourceActivity(TextChoices):
    """Activity of a source; ``STOPPING`` lasts until the current batch is done."""

    IDLE = "idle", pgettext_lazy("source", "idle")
    QUEUED = "queued", pgettext_lazy("source", "waiting for a collector")
    RUNNING = "running", pgettext_lazy("source", "importing")
    STOPPING = "stopping", pgettext_lazy("source", "stopping")


BUSY: Final = (SourceActivity.QUEUED, SourceActivity.RUNNING, SourceActivity.STOPPING)
HELD: Final = (SourceActivity.RUNNING, SourceActivity.STOPPING)


class HarvestState(TextChoices):
    """State of an import; all but the first are final."""

    RUNNING = "running", pgettext_lazy("harvest", "running")
    COMPLETED = "completed", pgettext_lazy("harvest", "completed")
    # Its collector ended; another one resumes it.
    INTERRUPTED = "interrupted", pgettext_lazy("harvest", "interrupted")
    STOPPED = "stopped", pgettext_lazy("harvest", "stopped")
    FAILED = "failed", pgettext_lazy("harvest", "failed")


class Reason(TextChoices):
    """Why an import ended."""

    END = "end", pgettext_lazy("harvest", "all new records read")
    EXPIRED = "expired", pgettext_lazy("harvest", "the remaining records are too old")
    MANUAL = "manual", pgettext_lazy("harvest", "stopped by a user")
    NOTHING = "nothing", pgettext_lazy("harvest", "the source has no records")
    SHRUNK = "shrunk", pgettext_lazy("harvest", "the source has fewer records than before")
    SWITCHED_OFF = "switched_off", pgettext_lazy("harvest", "the source was disabled")
    CHANGED = "changed", pgettext_lazy("harvest", "the settings now select other records")
    ERROR = "error", pgettext_lazy("harvest", "error")
    SHUTDOWN = "shutdown", pgettext_lazy("harvest", "the collector was stopped")
    LOST = "lost", pgettext_lazy("harvest", "its collector stopped responding")


STATE_OF: Final = {
    Reason.END: HarvestState.COMPLETED,
    Reason.EXPIRED: HarvestState.COMPLETED,
    Reason.NOTHING: HarvestState.COMPLETED,
    Reason.SHRUNK: HarvestState.COMPLETED,
    Reason.MANUAL: HarvestState.STOPPED,
    Reason.SWITCHED_OFF: HarvestState.STOPPED,
    Reason.CHANGED: HarvestState.STOPPED,
    Reason.ERROR: HarvestState.FAILED,
    Reason.SHUTDOWN: HarvestState.INTERRUPTED,
    Reason.LOST: HarvestState.INTERRUPTED,
}
