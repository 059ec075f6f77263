"""What pages are told of this app."""

from __future__ import annotations

from typing import Final

from django.dispatch import Signal

# payload: build, tag, state, step
BUILD_CHANGED: Final = "build_changed"

# project, now: sent within the transaction. Receivers stop what goes on there, or refuse it by
# raising a DomainError.
project_deleted: Final = Signal()
# project, now: what had been stopped may go on.
project_restored: Final = Signal()
