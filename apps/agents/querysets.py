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
        """Select agents heard of within the last 11 s."""
        return self.filter(heartbeat_at__gt=now - ALIVE_FOR)

    def silent(self, now: datetime) -> Self:
        """Select agents that are not alive."""
        since = now - ALIVE_FOR
        return self.filter(models.Q(heartbeat_at__lte=since) | models.Q(heartbeat_at__isnull=True))

    def in_service(self) -> Self:
        """Select agents that are not disabled."""
        return self.exclude(mode=AgentMode.DISABLED)

    def without_sample_of(self, minute: datetime) -> Self:
        """Select agents without a sample of this minute."""
        unsampled = models.Q(sampled_at__isnull=True) | models.Q(sampled_at__lt=minute)
        return self.filter(unsampled)


class AllocationQuerySet(VisibleQuerySet[M_co], Generic[M_co]):
    project_path = "project"

    def open(self) -> Self:
        """Select allocations that are not released."""
        return self.filter(released_at__isnull=True)
