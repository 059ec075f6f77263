"""Querysets of datasets and what belongs to them, limited to visible projects."""

from __future__ import annotations

from datetime import datetime
from typing import Generic, Self

from django.db.models import F, Q

from apps.access.querysets import M_co, VisibleQuerySet
from apps.access.states import Role
from apps.datasets.states import DeliveryState, Kind
from apps.runtime.querysets import LeasedQuerySet


class DatasetQuerySet(VisibleQuerySet[M_co], LeasedQuerySet[M_co], Generic[M_co]):  # type: ignore[override]  # as_manager
    """Datasets visible to a user; leased for compaction and retention."""

    project_path = "project"

    def of_items(self) -> Self:
        """Datasets that people see, without those of requests and pages."""
        return self.filter(kind=Kind.ITEMS)

    def visible_to(self, user: object, at_least: Role = Role.VIEWER) -> Self:
        """Datasets of items in projects where ``user`` has the role or a higher one."""
        return super().visible_to(user, at_least).of_items()


class OfDatasetQuerySet(VisibleQuerySet[M_co], Generic[M_co]):
    """Rows that belong to a dataset."""

    project_path = "dataset__project"

    def of_items(self) -> Self:
        """Rows of datasets that people see, without those of requests and pages."""
        return self.filter(dataset__kind=Kind.ITEMS)


class DeliveryQuerySet(OfDatasetQuerySet[M_co], LeasedQuerySet[M_co], Generic[M_co]):  # type: ignore[override]  # as_manager
    """Deliveries visible to a user; leased by the process that delivers."""

    def due(self, now: datetime) -> Self:
        """Deliveries with work whose next attempt is due and that no process holds."""
        return (
            self.filter(next_try_at__lte=now, leased_until__lte=now)
            .exclude(state=DeliveryState.PAUSED)
            .filter(Q(dataset__last_batch__gt=F("position")) | Q(offset__gt=0) | Q(retry_to__gt=0))
        )
