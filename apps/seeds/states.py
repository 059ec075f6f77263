"""States and kinds of operations and resources."""

from __future__ import annotations

from typing import Final

from django.db.models import TextChoices
from django.utils.translation import gettext_lazy as _
from django.utils.translation import pgettext_lazy


class OperationKind(TextChoices):
    """Kinds of long operations."""

    REOPEN_FAILED = "reopen_failed", _("reopen failed seeds")
    DROP = "drop", _("drop a segment")
    WIPE = "wipe", _("wipe the URL queue")
    MOVE = "move", _("move seeds to other segments")
    IMPORT = "import", _("import seeds")


class OperationState(TextChoices):
    """State of an operation. The last three are final."""

    WAITING = "waiting", _("waiting")
    RUNNING = "running", _("running")
    DONE = "done", pgettext_lazy("operation", "done")
    FAILED = "failed", _("failed")
    CANCELLED = "cancelled", _("cancelled")


ACTIVE_OPERATIONS: Final = (OperationState.WAITING, OperationState.RUNNING)


class ResourceState(TextChoices):
    """State of a resource."""

    FREE = "free", pgettext_lazy("resource", "free")
    LEASED = "leased", pgettext_lazy("resource", "leased")
    BANNED = "banned", pgettext_lazy("resource", "banned")
    DISABLED = "disabled", pgettext_lazy("resource", "disabled")
