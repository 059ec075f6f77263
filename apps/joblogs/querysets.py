"""Named filters of log lines."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import Generic, Self

from apps.access.querysets import M_co, VisibleQuerySet


class LogStreamQuerySet(VisibleQuerySet[M_co], Generic[M_co]):
    """What is known of each execution's log."""

    project_path = "project"

    def silent_since(self, before: datetime) -> Self:
        """Those to which nothing was added since then."""
        return self.filter(updated_at__lt=before)


class LogLineQuerySet(VisibleQuerySet[M_co], Generic[M_co]):
    """Lines."""

    project_path = "project"

    def of(self, stream: str) -> Self:
        """The lines of ``run:7`` or ``build:3``, all its executions."""
        return self.filter(stream=stream)

    def matching(self, *, levels: Collection[str] = (), contains: str = "") -> Self:
        """Those of these levels whose text contains this."""
        rows = self.filter(level__in=levels) if levels else self.all()
        return rows.filter(text__icontains=contains) if contains else rows
