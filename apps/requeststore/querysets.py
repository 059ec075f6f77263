"""Visibility of this app's rows: by project."""

from __future__ import annotations

from typing import Generic

from apps.access.querysets import M_co, VisibleQuerySet


class OfBizQuerySet(VisibleQuerySet[M_co], Generic[M_co]):
    """Rows of a biz in a project."""

    project_path = "project"
