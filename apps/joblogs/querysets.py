"""Querysets of retention policies and error groups."""

from __future__ import annotations

from datetime import datetime
from typing import Generic, Self

from apps.access.querysets import M_co, VisibleQuerySet
from apps.joblogs.states import GroupState


class LogPolicyQuerySet(VisibleQuerySet[M_co], Generic[M_co]):
    """Retention policies visible to a user."""

    project_path = "project"


class ErrorGroupQuerySet(VisibleQuerySet[M_co], Generic[M_co]):
    """Error groups visible to a user."""

    project_path = "project"

    def open(self) -> Self:
        """Groups that are not ignored."""
        return self.filter(state=GroupState.OPEN)

    def seen_since(self, at: datetime) -> Self:
        """Groups with an occurrence since ``at``."""
        return self.filter(last_at__gte=at)
