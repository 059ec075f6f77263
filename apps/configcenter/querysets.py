"""Which configurations, versions and reports a person sees."""

from __future__ import annotations

from typing import Any, Generic, NoReturn

from apps.access.querysets import M_co, VisibleQuerySet
from apps.configcenter.errors import HistoryIsFixed


class ConfigurationQuerySet(VisibleQuerySet[M_co], Generic[M_co]):
    """Configurations: one a kind and project."""

    project_path = "project"


class FixedQuerySet(VisibleQuerySet[M_co], Generic[M_co]):
    """Versions and activations are only added; single rows are guarded by their model."""

    project_path = "configuration__project"

    def update(self, **kwargs: Any) -> NoReturn:
        """Refused."""
        raise HistoryIsFixed

    def delete(self) -> NoReturn:
        """Refused."""
        raise HistoryIsFixed

    def bulk_update(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Refused."""
        raise HistoryIsFixed


class RunningQuerySet(VisibleQuerySet[M_co], Generic[M_co]):
    """What processes run."""

    project_path = "configuration__project"
