"""Leases of sources: one collector at a time, fenced by a generation.

A collector whose lease has expired writes nothing more, and its last published records have the
same message ids as those of its successor.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from django.db import transaction
from django.db.models import Case, F, Q, QuerySet, Value, When

from apps.jobs.engine.cron import next_times, parse_cron
from apps.sources.engine.errors import SourceLeaseLost
from apps.sources.engine.settings import Source
from apps.sources.models import Harvest, SourceState
from apps.sources.querysets import SourceStateQuerySet
from apps.sources.services.commands import state_row
from apps.sources.states import HarvestState, Reason, SourceActivity

LEASE_SECONDS: Final = 15.0
LEASE: Final = timedelta(seconds=LEASE_SECONDS)


@dataclass(frozen=True, slots=True)
class SourceLease:
    """A lease of a source, under ``generation``."""

    pk: int
    project_id: int
    name: str
    generation: int
    asked_by: str
    # A user asked to stop it, but its collector died first.
    stopping: bool = False

    @property
    def row(self) -> SourceStateQuerySet[SourceState]:
        """Queryset of the row while the lease is held."""
        return SourceState.objects.held(self.pk, self.generation)


def claim(*, limit: int, collector: str, owner: str, now: datetime) -> list[SourceLease]:
    """Claim up to ``limit`` sources that wait for a collector or whose collector is dead.

    ``owner`` is ``collector`` with the incarnation of this process: leases of an earlier process of
    the same name are ignored.
    """
    rows = SourceState.objects.claimable(now, name=collector, owner=owner)
    leases = []
    for pk, seen in list(rows.order_by("asked_at").values_list("pk", "generation")[:limit]):
        generation = rows.claim(
            pk,
            seen,
            owner=owner,
            until=now + LEASE,
            activity=Case(
                When(activity=SourceActivity.QUEUED, then=Value(SourceActivity.RUNNING.value)),
                default=F("activity"),
            ),
        )
        if generation is not None:
            row = SourceState.objects.get(pk=pk)
            stopping = row.activity == SourceActivity.STOPPING
            leases.append(
                SourceLease(pk, row.project_id, row.name, generation, row.asked_by, stopping)
            )
    return leases


def renew(*, held: SourceLease, now: datetime, waiting_for: str) -> bool:
    """Renew the lease; return whether a stop was requested. Raises ``SourceLeaseLost``.

    ``waiting_for`` is shown on pages.
    """
    if not held.row.renew(until=now + LEASE, waiting_for=waiting_for[:300]):
        raise SourceLeaseLost("another collector has the source")
    return held.row.filter(activity=SourceActivity.STOPPING).exists()


def release(*, held: SourceLease) -> None:
    """Release the source so that another collector resumes it at once."""
    held.row.release(
        activity=Case(
            When(activity=SourceActivity.STOPPING, then=Value(SourceActivity.IDLE.value)),
            default=Value(SourceActivity.QUEUED.value),
        ),
        waiting_for="",
    )


@transaction.atomic
def abandon(*, held: SourceLease, reason: Reason, now: datetime) -> None:
    """End the lease of a source that was stopped, disabled or removed.

    The checkpoint stays.
    """
    row = held.row.select_for_update().first()
    if row is None:
        return
    held.row.release(activity=SourceActivity.IDLE, waiting_for="")
    open_ones = Harvest.objects.filter(
        project_id=held.project_id, source=held.name, state=HarvestState.RUNNING
    )
    open_ones.update(
        state=HarvestState.STOPPED, reason=reason, ended_at=now, checkpoint=row.checkpoint
    )


# --- automatic starts -----------------------------------------------------------------------------


def queue_auto_start(*, project_id: int, name: str, collector: str, now: datetime) -> bool:
    """Queue the source when its collector starts, unless a user stopped it."""
    state = state_row(project_id, name)
    return bool(_queue(SourceState.objects.filter(pk=state.pk), f"auto_start {collector}", now))


def queue_due(*, project_id: int, name: str, source: Source, now: datetime) -> bool:
    """Queue the source if it is due; only the first of several collectors succeeds.

    A time missed while no collector ran is made up for once.
    """
    schedule = f"{source.cron} {source.time_zone}" if source.cron else ""
    state = SourceState.objects.filter(project_id=project_id, name=name).first()
    if state is None:
        if not schedule:
            return False
        state = state_row(project_id, name)
    mine = SourceState.objects.filter(pk=state.pk, schedule=state.schedule)
    if state.schedule != schedule:
        mine.update(schedule=schedule, next_run_at=_next(source, now))
        return False
    if state.next_run_at is None or state.next_run_at > now:
        return False
    with transaction.atomic():
        won = mine.filter(next_run_at=state.next_run_at).update(next_run_at=_next(source, now))
        return bool(won and _queue(mine, "cron", now))


def _queue(rows: QuerySet[SourceState], by: str, now: datetime) -> int:
    idle = rows.filter(Q(activity=SourceActivity.IDLE), stopped_at__isnull=True)
    return idle.update(activity=SourceActivity.QUEUED, asked_at=now, asked_by=by[:150])


def _next(source: Source, now: datetime) -> datetime | None:
    if not source.cron:
        return None
    return next(iter(next_times(parse_cron(source.cron), source.time_zone, now, 1)), None)
