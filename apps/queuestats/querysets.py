"""Named filters of failures and series."""

from __future__ import annotations

from typing import Generic

from apps.access.querysets import M_co, VisibleQuerySet


class FailedRequestQuerySet(VisibleQuerySet[M_co], Generic[M_co]):
    """Requests that failed for good."""

    project_path = "project"


class SeriesQuerySet(VisibleQuerySet[M_co], Generic[M_co]):
    """Quantities over time."""

    project_path = "project"


class QueueStateQuerySet(VisibleQuerySet[M_co], Generic[M_co]):
    """Queues; those of the platform, which belong to no project, are for who sees everything."""

    project_path = "project"
