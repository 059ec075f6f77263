"""Named filters of what the database keeps about logs."""

from __future__ import annotations

from datetime import datetime
from typing import Generic, Self

from apps.access.querysets import M_co, VisibleQuerySet
from apps.joblogs.states import GroupState


class LogPolicyQuerySet(VisibleQuerySet[M_co], Generic[M_co]):
    """How long lines are kept."""

    project_path = "project"


class ErrorGroupQuerySet(VisibleQuerySet[M_co], Generic[M_co]):
    """Kinds of errors."""

    project_path = "project"

    def open(self) -> Self:
        """Groups that are not ignored."""
        return self.filter(state=GroupState.OPEN)

    def seen_since(self, at: datetime) -> Self:
        """Those that happened again since then."""
        return self.filter(last_at__gte=at)
