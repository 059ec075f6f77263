"""Query sets of projects, deliveries, builds and images."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Generic, Self

from apps.access.querysets import LivingManager, M_co, VisibleQuerySet
from apps.projects.states import BUILD_ACTIVE, BuildState


class ProjectQuerySet(VisibleQuerySet[M_co], Generic[M_co]):
    """Query set of projects; for visibility a project belongs to itself."""

    project_path = "pk"


ProjectManager = LivingManager.from_queryset(ProjectQuerySet)


class DeliveryQuerySet(VisibleQuerySet[M_co], Generic[M_co]):
    """Query set of webhook deliveries."""

    project_path = "project"


class BuildQuerySet(VisibleQuerySet[M_co], Generic[M_co]):
    """Query set of builds."""

    project_path = "project"

    def active(self) -> Self:
        """Filter builds that have not ended."""
        return self.filter(state__in=BUILD_ACTIVE)

    def stale(self, *, now: datetime, lease_seconds: float) -> Self:
        """Filter builds whose worker has sent no heartbeat for ``lease_seconds``."""
        return self.filter(
            state__in=(BuildState.RUNNING, BuildState.CANCELLING),
            beat_at__lt=now - timedelta(seconds=lease_seconds),
        )


class ImageQuerySet(VisibleQuerySet[M_co], Generic[M_co]):
    """Query set of images."""

    project_path = "project"

    def available(self) -> Self:
        """Filter images that jobs may use."""
        return self.filter(removed_at__isnull=True)
