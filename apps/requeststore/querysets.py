"""Visibility of this app's rows: by project."""

from __future__ import annotations

from typing import Generic

from apps.access.querysets import M_co, VisibleQuerySet
from apps.runtime.querysets import LeasedQuerySet


class OfBizQuerySet(VisibleQuerySet[M_co], Generic[M_co]):
    """Rows of a biz in a project."""

    project_path = "project"


class ReextractionQuerySet(OfBizQuerySet[M_co], LeasedQuerySet[M_co], Generic[M_co]):  # type: ignore[override]  # as_manager
    """Re-extractions; leased by the worker that reads the pages."""
