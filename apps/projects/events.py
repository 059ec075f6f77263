"""Names of the notifications for pages, and the signals of this app."""

from __future__ import annotations

from typing import Final

from django.dispatch import Signal

# payload: build, tag, state, step
BUILD_CHANGED: Final = "build_changed"

# project, now: sent within the transaction. Receivers stop what is active in the project, or
# refuse the deletion by raising a DomainError.
project_deleted: Final = Signal()
# project, now: receivers resume what was stopped.
project_restored: Final = Signal()
