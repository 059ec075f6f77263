"""Named filters of counters and failures."""

from __future__ import annotations

from typing import Generic

from apps.access.querysets import M_co, VisibleQuerySet


class FailedRequestQuerySet(VisibleQuerySet[M_co], Generic[M_co]):
    """Requests that failed for good."""

    project_path = "project"
