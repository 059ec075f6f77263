"""Querysets limited to what a user may see, and to sources that wait for a collector."""

from __future__ import annotations

from datetime import datetime
from typing import Generic, Self

from django.db.models import Q

from apps.access.querysets import M_co, VisibleQuerySet
from apps.runtime.querysets import LeasedQuerySet
from apps.sources.states import HELD, SourceActivity


class CredentialQuerySet(VisibleQuerySet[M_co], Generic[M_co]):
    project_path = "project"


class SourceStateQuerySet(VisibleQuerySet[M_co], LeasedQuerySet[M_co], Generic[M_co]):  # type: ignore[override]  # as_manager
    """Progress rows of sources."""

    project_path = "project"

    def claimable(self, now: datetime, *, name: str, owner: str) -> Self:
        """Sources that are queued, or whose collector is dead.

        A collector with the same ``name`` but another ``owner`` is an earlier incarnation.
        """
        mine_before = Q(owner__startswith=f"{name} ") & ~Q(owner=owner)
        gone = Q(leased_until__isnull=True) | Q(leased_until__lte=now) | mine_before
        return self.filter(Q(activity=SourceActivity.QUEUED) | (Q(activity__in=HELD) & gone))


class HarvestQuerySet(VisibleQuerySet[M_co], Generic[M_co]):
    project_path = "project"


class RecordQueueQuerySet(VisibleQuerySet[M_co], Generic[M_co]):
    project_path = "project"
