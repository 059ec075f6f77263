"""Who sees which rows of this app: all of them belong to a project."""

from __future__ import annotations

from typing import Generic

from apps.access.querysets import M_co, VisibleQuerySet


class OfBizQuerySet(VisibleQuerySet[M_co], Generic[M_co]):
    """Rows about a biz of a project."""

    project_path = "project"
