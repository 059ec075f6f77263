"""Which projects, deliveries, builds and images a person sees."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Generic, Self

from apps.access.querysets import LivingManager, M_co, VisibleQuerySet
from apps.projects.states import BUILD_ACTIVE, BuildState


class ProjectQuerySet(VisibleQuerySet[M_co], Generic[M_co]):
    """Projects are their own project."""

    project_path = "pk"


ProjectManager = LivingManager.from_queryset(ProjectQuerySet)


class DeliveryQuerySet(VisibleQuerySet[M_co], Generic[M_co]):
    """Webhook deliveries."""

    project_path = "project"


class BuildQuerySet(VisibleQuerySet[M_co], Generic[M_co]):
    """Builds."""

    project_path = "project"

    def active(self) -> Self:
        """Not ended yet."""
        return self.filter(state__in=BUILD_ACTIVE)

    def stale(self, *, now: datetime, lease_seconds: float) -> Self:
        """Of a worker that has not said for ``lease_seconds`` that it is at it."""
        return self.filter(
            state__in=(BuildState.RUNNING, BuildState.CANCELLING),
            beat_at__lt=now - timedelta(seconds=lease_seconds),
        )


class ImageQuerySet(VisibleQuerySet[M_co], Generic[M_co]):
    """Images."""

    project_path = "project"

    def available(self) -> Self:
        """Those that a job may choose."""
        return self.filter(removed_at__isnull=True)
