"""Named filters of jobs and runs."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Generic, Self

from apps.access.querysets import M_co, VisibleQuerySet
from apps.jobs.states import ACTIVE, FINAL, ON_A_HOST, RunState


class JobQuerySet(VisibleQuerySet[M_co], Generic[M_co]):
    """Jobs."""

    project_path = "project"


class RunQuerySet(VisibleQuerySet[M_co], Generic[M_co]):
    """Runs."""

    project_path = "job__project"

    def active(self) -> Self:
        """Not ended yet."""
        return self.filter(state__in=ACTIVE)

    def ended(self) -> Self:
        """In a final state."""
        return self.filter(state__in=FINAL)

    def waiting(self) -> Self:
        """Nobody has taken these yet, oldest first."""
        return self.filter(state=RunState.QUEUED).order_by("id")

    def on_host(self, host: str) -> Self:
        """What ``host`` must have a process for."""
        return self.filter(host=host, state__in=ON_A_HOST)

    def stale(self, *, now: datetime, lease_seconds: float) -> Self:
        """On a host that has not said for ``lease_seconds`` that it still watches them."""
        return self.filter(
            state__in=ON_A_HOST, watched_at__lt=now - timedelta(seconds=lease_seconds)
        )
