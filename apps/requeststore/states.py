"""States of this app's rows; those of a request are its flags (``engine.flags``)."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _


class RebalanceState(models.TextChoices):
    """State of a re-balance; all but RUNNING are final."""

    RUNNING = "running", _("running")
    DONE = "done", _("done")
    CANCELLED = "cancelled", _("cancelled")
    FAILED = "failed", _("failed")


class ReextractionState(models.TextChoices):
    """State of a re-extraction; all but RUNNING are final."""

    RUNNING = "running", _("running")
    DONE = "done", _("done")
    CANCELLED = "cancelled", _("cancelled")
    FAILED = "failed", _("failed")
