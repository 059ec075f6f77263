"""Whose credentials, sources and harvests, and which sources wait for a collector."""

from __future__ import annotations

from datetime import datetime
from typing import Generic, Self

from django.db.models import Q

from apps.access.querysets import M_co, VisibleQuerySet
from apps.sources.states import HELD, SourceActivity


class CredentialQuerySet(VisibleQuerySet[M_co], Generic[M_co]):
    """Credentials."""

    project_path = "project"


class SourceStateQuerySet(VisibleQuerySet[M_co], Generic[M_co]):
    """How far sources were read."""

    project_path = "project"

    def claimable(self, now: datetime, *, name: str, owner: str) -> Self:
        """Queued, or held by a collector that is gone.

        A collector of the same ``name`` but another ``owner`` is an earlier start of the same one.
        """
        mine_before = Q(owner__startswith=f"{name} ") & ~Q(owner=owner)
        gone = Q(leased_until__isnull=True) | Q(leased_until__lte=now) | mine_before
        return self.filter(
            Q(activity=SourceActivity.QUEUED) | (Q(activity__in=HELD) & gone),
        )


class HarvestQuerySet(VisibleQuerySet[M_co], Generic[M_co]):
    """Harvests."""

    project_path = "project"


class RecordQueueQuerySet(VisibleQuerySet[M_co], Generic[M_co]):
    """Queues of records."""

    project_path = "project"
