"""States of error groups."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _


class GroupState(models.TextChoices):
    """Whether an error group needs attention."""

    OPEN = "open", _("open")
    IGNORED = "ignored", _("ignored")
