"""JSON of sources, for REST and for the seed-compatible paths."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from apps.sources.errors import NoSuchSource, SourceDisabled
from apps.sources.models import Harvest, SourceState
from apps.sources.queries import SourceStatus, progress_of
from apps.sources.states import SourceActivity


@contextmanager
def named_by(field: str) -> Iterator[None]:
    """Report an error about a source under the name of the request's own parameter."""
    try:
        yield
    except (NoSuchSource, SourceDisabled) as error:
        error.fields = {field: [f"{name}: {error}" for name in error.fields.pop("name", ())]}
        raise


def source_shown(status: SourceStatus) -> dict[str, Any]:
    """Return the status of a source; its settings contain no secrets."""
    settings, state, harvest = status.settings, status.state, status.harvest
    return {
        "name": status.name,
        "description": settings.description if settings is not None else "",
        "kind": settings.kind.value if settings is not None else None,
        "task_id": settings.task_id if settings is not None else "",
        "configured": settings is not None,
        "enabled": settings is not None and settings.enabled,
        "auto_start": settings is not None and settings.auto_start,
        "cron": settings.cron if settings is not None else "",
        "queue": settings.queue if settings is not None else None,
        "activity": (state.activity if state is not None else SourceActivity.IDLE.value),
        "waiting_for": state.waiting_for if state is not None else "",
        "problem": state.problem if state is not None else "",
        "last_start_offset": state.marker if state is not None else None,
        "last_total": state.last_total if state is not None else None,
        "never_read": state.gaps if state is not None else [],
        "stopped_at": state.stopped_at if state is not None else None,
        "stopped_by": state.stopped_by if state is not None else "",
        "next_run_at": status.next_run_at,
        "collector": _collector(state),
        "harvest": None if harvest is None else harvest_shown(harvest),
    }


def harvest_shown(harvest: Harvest) -> dict[str, Any]:
    """Return progress and record counts of an import."""
    return {
        "id": harvest.pk,
        "state": harvest.state,
        "reason": harvest.reason,
        "resumed": harvest.resumed,
        "first": harvest.first,
        "total": harvest.total,
        "start_offset": harvest.start_offset,
        "end_offset": harvest.end_offset,
        "next_offset": harvest.next_offset,
        "progress": progress_of(harvest),
        "batches": harvest.batches,
        **harvest.counts,
        "bad_dates": harvest.bad_dates,
        "error": harvest.error,
        "started_at": harvest.started_at,
        "ended_at": harvest.ended_at,
    }


def _collector(state: SourceState | None) -> str:
    return state.owner if state is not None and state.activity != SourceActivity.IDLE else ""
