"""Names of the page notifications of this app, and its signals."""

from __future__ import annotations

from typing import Final

from django.dispatch import Signal

# Payload: build, tag, state, step.
BUILD_CHANGED: Final = "build_changed"

# Arguments: project, now. Sent within the transaction. Receivers stop activities of the project, or
# refuse the deletion by raising a DomainError.
project_deleted: Final = Signal()
# Arguments: project, now. Receivers resume stopped activities.
project_restored: Final = Signal()
