"""Querysets of frontiers, their rows, pools and resources, limited to visible projects."""

from __future__ import annotations

from datetime import datetime
from typing import Generic, Self

from django.db.models import Count, Q

from apps.access.querysets import M_co, VisibleQuerySet
from apps.runtime.querysets import LeasedQuerySet
from apps.seeds.states import ResourceState


class FrontierQuerySet(VisibleQuerySet[M_co], Generic[M_co]):
    """Frontiers visible to a user."""

    project_path = "project"


class OfFrontierQuerySet(VisibleQuerySet[M_co], Generic[M_co]):
    """Rows that belong to a frontier."""

    project_path = "frontier__project"


class ResourcePoolQuerySet(VisibleQuerySet[M_co], Generic[M_co]):
    """Resource pools visible to a user."""

    project_path = "project"

    def with_counts(self, now: datetime) -> Self:
        """Annotate the number of resources by state: ``total``, ``at_hand``, ``leased``,
        ``cooling``, ...
        """
        free = Q(resources__state=ResourceState.FREE)
        return self.annotate(
            total=Count("resources"),
            at_hand=Count("resources", filter=free & Q(resources__available_at__lte=now)),
            cooling=Count("resources", filter=free & Q(resources__available_at__gt=now)),
            **{
                state.value: Count("resources", filter=Q(resources__state=state))
                for state in (ResourceState.LEASED, ResourceState.BANNED, ResourceState.DISABLED)
            },
        )


class ResourceQuerySet(VisibleQuerySet[M_co], LeasedQuerySet[M_co], Generic[M_co]):  # type: ignore[override]  # as_manager
    """Resources, each leased by one caller at a time; ``lease`` is the fencing token."""

    project_path = "pool__project"
    lease_generation = "lease"
    lease_owner = "leased_by"

    def overdue(self, now: datetime) -> Self:
        """Leased resources whose lease has expired."""
        return self.filter(state=ResourceState.LEASED).expired(now)

    def cooling(self, now: datetime) -> Self:
        """Free resources that are cooling down."""
        return self.filter(state=ResourceState.FREE, available_at__gt=now)

    def at_hand(self, now: datetime) -> Self:
        """Free resources that can be leased now."""
        return self.filter(state=ResourceState.FREE, available_at__lte=now)
