from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from django.db.models import Max

from apps.configcenter.models import Configuration
from apps.sources.engine.progress import COMPLETE, EndReason
from apps.sources.engine.settings import Source, SourceCatalog, catalog_of
from apps.sources.errors import NoSuchSource
from apps.sources.models import Harvest, SourceState

KIND = "sources"


@dataclass(frozen=True, slots=True)
class SourceStatus:
    """Status of a source: its settings (None if the configuration has no such entry any more), its
    progress (None before its first start), and its newest import.
    """

    name: str
    settings: Source | None
    state: SourceState | None
    harvest: Harvest | None

    @property
    def next_run_at(self) -> datetime | None:
        """Next start by cron."""
        return self.state.next_run_at if self.state is not None else None


def book(project_id: int) -> SourceCatalog:
    """Return the active settings of a project; empty settings if none are active."""
    row = (
        Configuration.objects.filter(kind=KIND, project_id=project_id)
        .select_related("active")
        .first()
    )
    return catalog_of(row.active.data) if row and row.active else SourceCatalog()


def settings_of(project_id: int, name: str) -> Source:
    """Return the active settings of one source. Raises ``NoSuchSource``."""
    try:
        return book(project_id).sources[name]
    except KeyError:
        raise NoSuchSource from None


def statuses(project_id: int) -> list[SourceStatus]:
    """Return every source of the project by name, including removed ones. Four queries."""
    settings = book(project_id).sources
    states = {row.name: row for row in SourceState.objects.filter(project_id=project_id)}
    newest = (
        Harvest.objects.filter(project_id=project_id)
        .order_by()
        .values("source")
        .annotate(newest=Max("pk"))
        .values_list("newest", flat=True)
    )
    harvests = {row.source: row for row in Harvest.objects.filter(pk__in=list(newest))}
    return [
        SourceStatus(name, settings.get(name), states.get(name), harvests.get(name))
        for name in sorted({*settings, *states})
    ]


def status(project_id: int, name: str) -> SourceStatus:
    """Return the status of one source. Raises ``NoSuchSource``."""
    state = SourceState.objects.filter(project_id=project_id, name=name).first()
    settings = book(project_id).sources.get(name)
    if state is None and settings is None:
        raise NoSuchSource
    harvest = Harvest.objects.filter(project_id=project_id, source=name).first()
    return SourceStatus(name, settings, state, harvest)


def progress_of(harvest: Harvest) -> float | None:
    """Return the progress of an import from 0 to 1; None while its range is unknown."""
    if harvest.reason and EndReason(harvest.reason) in COMPLETE:
        return 1.0
    if harvest.start_offset is None or harvest.end_offset is None or harvest.next_offset is None:
        return None
    span = harvest.start_offset - harvest.end_offset
    done = harvest.start_offset - harvest.next_offset
    return min(1.0, max(0.0, done / span)) if span > 0 else 0.0
