"""Project visibility of failed requests, series and queues."""

from __future__ import annotations

from typing import Generic

from apps.access.querysets import M_co, VisibleQuerySet


class FailedRequestQuerySet(VisibleQuerySet[M_co], Generic[M_co]):
    """Failed requests, filtered by their project."""

    project_path = "project"


class SeriesQuerySet(VisibleQuerySet[M_co], Generic[M_co]):
    """Series, filtered by their project."""

    project_path = "project"


class QueueStateQuerySet(VisibleQuerySet[M_co], Generic[M_co]):
    """Queues; those without a project are visible to users who see everything."""

    project_path = "project"
