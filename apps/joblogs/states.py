"""States of what is kept about logs."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _


class GroupState(models.TextChoices):
    """Whether a kind of error is worth a look."""

    OPEN = "open", _("open")
    IGNORED = "ignored", _("ignored")
