"""Writes of an import: begin, batches, end. All are fenced by the generation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec
from django.db import transaction
from django.db.models import F

from apps.sources.engine.errors import SourceLeaseLost
from apps.sources.engine.harvester import HarvestResult
from apps.sources.engine.progress import Checkpoint, EndReason, Gap, HarvestCounts, Marker, add_gap
from apps.sources.engine.settings import Source
from apps.sources.models import Harvest, SourceState
from apps.sources.services.leases import LEASE, SourceLease
from apps.sources.services.queues import claim_queue, note_published
from apps.sources.states import STATE_OF, HarvestState, Reason, SourceActivity

# Most remarks that a plan and an end can add.
_MOST_NOTES = 20


@dataclass(frozen=True, slots=True)
class ActiveHarvest:
    """A new or resumed import, and where it begins."""

    held: SourceLease
    harvest_id: int
    marker: Marker
    checkpoint: Checkpoint | None


@transaction.atomic
def begin(
    *, held: SourceLease, source: Source, collector: str, version: int, now: datetime
) -> ActiveHarvest:
    """Create an import; it resumes at the checkpoint, if there is one.

    An open import belongs to a dead collector and is resumed. Marker and checkpoint are void if the
    settings now identify other records. Raises ``SourceLeaseLost``.
    """
    state = held.row.select_for_update().first()
    if state is None:
        raise SourceLeaseLost("another collector has the source")
    open_ones = Harvest.objects.filter(
        project_id=held.project_id, source=held.name, state=HarvestState.RUNNING
    )
    open_ones.update(
        state=HarvestState.INTERRUPTED,
        reason=Reason.LOST,
        ended_at=now,
        checkpoint=state.checkpoint,
    )
    notes: list[dict[str, Any]] = []
    if state.content and state.content != source.content:
        notes.append({"code": "other_records"})
        state.marker = state.last_total = state.checkpoint = None
        state.overlap, state.gaps = [], []
    state.content, state.problem, state.waiting_for = source.content, "", ""
    state.save(
        update_fields=[
            *("marker", "last_total", "checkpoint", "overlap", "gaps", "content", "problem"),
            *("waiting_for", "updated_at"),
        ]
    )
    checkpoint = None
    if state.checkpoint is not None:
        checkpoint = msgspec.convert(state.checkpoint, Checkpoint)
    harvest = Harvest.objects.create(
        project_id=held.project_id,
        source=held.name,
        collector=collector[:200],
        asked_by=held.asked_by,
        resumed=checkpoint is not None,
        notes=notes,
        config_version=version,
        started_at=now,
        **_planned(checkpoint),
    )
    marker = Marker(start=state.marker, total=state.last_total, overlap=state.overlap)
    return ActiveHarvest(held, harvest.pk, marker, checkpoint)


@transaction.atomic
def plan(*, active: ActiveHarvest, checkpoint: Checkpoint, notes: list[dict[str, Any]]) -> None:
    """Store the plan. Raises ``SourceLeaseLost``."""
    _fenced(active, checkpoint=msgspec.to_builtins(checkpoint))
    mine = Harvest.objects.filter(pk=active.harvest_id)
    before = mine.values_list("notes", flat=True).get()
    mine.update(notes=[*before, *notes][:_MOST_NOTES], **_planned(checkpoint))


@transaction.atomic
def move(
    *,
    active: ActiveHarvest,
    checkpoint: Checkpoint,
    counts: HarvestCounts,
    gaps: Sequence[Gap],
    source: Source,
    now: datetime,
) -> None:
    """Store the checkpoint and the counts of a published batch. Raises ``SourceLeaseLost``."""
    _fenced(
        active, checkpoint=msgspec.to_builtins(checkpoint), leased_until=now + LEASE, waiting_for=""
    )
    mine = Harvest.objects.filter(pk=active.harvest_id)
    changes: dict[str, Any] = {
        name: F(name) + value for name, value in msgspec.to_builtins(counts).items() if value
    }
    if checkpoint.start or checkpoint.until:
        changes["next_offset"] = checkpoint.next
    else:
        changes["total"] = checkpoint.total
    mine.update(moved_at=now, **changes)
    if counts.published:
        queue = claim_queue(project_id=active.held.project_id, name=source.queue)
        note_published(queue=queue, count=counts.published, ttl_seconds=source.ttl_seconds, now=now)
    if gaps:
        _note_gaps(active, gaps)


@transaction.atomic
def finish(
    *, active: ActiveHarvest, ended: HarvestResult, now: datetime, problem: str = ""
) -> None:
    """End an import and release the source; a complete one moves the marker.

    An interrupted import is resumed by another collector, others by their next start, at the
    checkpoint. Raises ``SourceLeaseLost``.
    """
    reason = Reason(ended.why.value)
    state = STATE_OF[reason]
    row = active.held.row.select_for_update().values_list("checkpoint", "activity").first()
    if row is None:
        raise SourceLeaseLost("another collector has the source")
    checkpoint, activity = row
    changes: dict[str, Any] = {
        "owner": "",
        "leased_until": None,
        "waiting_for": "",
        "problem": (ended.error or problem)[:500],
        "activity": _activity_after(state, reason, activity),
    }
    if ended.marker is not None:
        changes |= {
            "marker": ended.marker.start,
            "last_total": ended.marker.total,
            "overlap": ended.marker.overlap,
            "checkpoint": None,
        }
    _fenced(active, **changes)
    mine = Harvest.objects.filter(pk=active.harvest_id)
    before = mine.values_list("notes", "total").get()
    notes = [*before[0], *(note for note in ended.notes if note not in before[0])]
    mine.update(
        state=state,
        reason=reason,
        ended_at=now,
        error=ended.error[:500],
        notes=notes[:_MOST_NOTES],
        checkpoint=None if ended.marker is not None else checkpoint,
        total=ended.total if ended.total is not None else before[1],
    )


def _activity_after(state: HarvestState, reason: Reason, activity: str) -> SourceActivity:
    """Next activity of the source; a user may have changed it meanwhile."""
    if activity == SourceActivity.STOPPING:
        return SourceActivity.IDLE
    # A stop that was withdrawn after it had been executed.
    started_again = reason is Reason.MANUAL
    again = state is HarvestState.INTERRUPTED or started_again
    return SourceActivity.QUEUED if again else SourceActivity.IDLE


def _fenced(active: ActiveHarvest, **changes: Any) -> None:
    if not active.held.row.update(**changes):
        raise SourceLeaseLost("another collector has the source")


def _note_gaps(active: ActiveHarvest, gaps: Sequence[Gap]) -> None:
    for model, pk in ((SourceState, active.held.pk), (Harvest, active.harvest_id)):
        row: Any = model.objects.filter(pk=pk)
        noted = row.values_list("gaps", flat=True).get()
        for gap in gaps:
            noted = add_gap(noted, gap)
        row.update(gaps=noted)


def _planned(at: Checkpoint | None) -> dict[str, Any]:
    if at is None:
        return {}
    return {
        "first": at.first,
        "total": at.total,
        "start_offset": at.start,
        "end_offset": at.end,
        "next_offset": at.next,
    }


def end_reason(source: Source | None, at_start: Source, *, stopping: bool) -> EndReason | None:
    """Return why an import should end after its batch, from requests made meanwhile."""
    if stopping:
        return EndReason.MANUAL
    if source is None or not source.enabled:
        return EndReason.SWITCHED_OFF
    return EndReason.CHANGED if source.content != at_start.content else None
