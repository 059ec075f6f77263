"""Querysets of configurations, versions and reports, limited to what a user may see."""

from __future__ import annotations

from typing import Any, Generic, NoReturn

from apps.access.querysets import M_co, VisibleQuerySet
from apps.configcenter.errors import ImmutableHistory


class ConfigurationQuerySet(VisibleQuerySet[M_co], Generic[M_co]):
    project_path = "project"


class AppendOnlyQuerySet(VisibleQuerySet[M_co], Generic[M_co]):
    """Append-only queryset of versions and activations; the model guards single rows."""

    project_path = "configuration__project"

    def update(self, **kwargs: Any) -> NoReturn:
        """Raise ``ImmutableHistory``."""
        raise ImmutableHistory

    def delete(self) -> NoReturn:
        """Raise ``ImmutableHistory``."""
        raise ImmutableHistory

    def bulk_update(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Raise ``ImmutableHistory``."""
        raise ImmutableHistory


class RunningQuerySet(VisibleQuerySet[M_co], Generic[M_co]):
    """Reports of processes about the versions they run."""

    project_path = "configuration__project"
