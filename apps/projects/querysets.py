"""Which projects a person sees."""

from __future__ import annotations

from typing import Generic

from apps.access.querysets import M_co, VisibleQuerySet


class ProjectQuerySet(VisibleQuerySet[M_co], Generic[M_co]):
    """Projects are their own project."""

    project_path = "pk"
