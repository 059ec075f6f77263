"""Whose frontiers, and what hangs on them."""

from __future__ import annotations

from typing import Generic

from apps.access.querysets import M_co, VisibleQuerySet


class FrontierQuerySet(VisibleQuerySet[M_co], Generic[M_co]):
    """Frontiers."""

    project_path = "project"


class OfFrontierQuerySet(VisibleQuerySet[M_co], Generic[M_co]):
    """What belongs to a frontier."""

    project_path = "frontier__project"
