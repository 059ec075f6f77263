"""Named filters of agents and allocations."""

from __future__ import annotations

from datetime import datetime
from typing import Generic, Self

from django.db import models

from apps.access.querysets import M_co, VisibleQuerySet
from apps.agents.states import ALIVE_FOR, AgentMode


class AgentQuerySet(models.QuerySet[M_co], Generic[M_co]):
    """Agents. They serve every project, so they have no project of their own."""

    def alive(self, now: datetime) -> Self:
        """Heard of within the last 11 s."""
        return self.filter(heartbeat_at__gt=now - ALIVE_FOR)

    def silent(self, now: datetime) -> Self:
        """All others."""
        since = now - ALIVE_FOR
        return self.filter(models.Q(heartbeat_at__lte=since) | models.Q(heartbeat_at__isnull=True))

    def in_service(self) -> Self:
        """Those that may be sent requests: not disabled."""
        return self.exclude(mode=AgentMode.DISABLED)

    def without_sample_of(self, minute: datetime) -> Self:
        """Not sampled in this minute yet."""
        unsampled = models.Q(sampled_at__isnull=True) | models.Q(sampled_at__lt=minute)
        return self.filter(unsampled)


class AllocationQuerySet(VisibleQuerySet[M_co], Generic[M_co]):
    """Which agents serve whom."""

    project_path = "project"

    def open(self) -> Self:
        """Not released yet."""
        return self.filter(released_at__isnull=True)
