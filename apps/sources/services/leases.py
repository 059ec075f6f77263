"""Who harvests a source: one collector at a time, by a lease with a generation.

Each write of a harvest names the generation it was given. A collector that slept through its lease
writes nothing more, and what it published last has the same message ids as what comes after it.
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
from apps.sources.services.commands import state_row
from apps.sources.states import HarvestState, Reason, SourceActivity

LEASE_SECONDS: Final = 15.0
LEASE: Final = timedelta(seconds=LEASE_SECONDS)


@dataclass(frozen=True, slots=True)
class SourceLease:
    """A source that this collector holds, under ``generation``."""

    pk: int
    project_id: int
    name: str
    generation: int
    asked_by: str
    # A person wants it to stop: its collector died before it had.
    stopping: bool = False

    @property
    def row(self) -> QuerySet[SourceState]:
        """The row, as long as it is held."""
        return SourceState.objects.filter(pk=self.pk, generation=self.generation)


def claim(*, limit: int, collector: str, owner: str, now: datetime) -> list[SourceLease]:
    """Take up to ``limit`` sources that wait for a collector, or whose collector is gone.

    ``owner`` is ``collector`` with the boot of this process: an earlier process of the same name is
    gone, whatever its lease says.
    """
    rows = SourceState.objects.claimable(now, name=collector, owner=owner).order_by("asked_at")
    found = []
    for pk, generation in list(rows.values_list("pk", "generation")[:limit]):
        taken = (
            SourceState.objects.claimable(now, name=collector, owner=owner)
            .filter(pk=pk, generation=generation)
            .update(
                activity=Case(
                    When(activity=SourceActivity.QUEUED, then=Value(SourceActivity.RUNNING.value)),
                    default=F("activity"),
                ),
                owner=owner,
                leased_until=now + LEASE,
                generation=generation + 1,
            )
        )
        if taken:
            row = SourceState.objects.get(pk=pk)
            stopping = row.activity == SourceActivity.STOPPING
            found.append(
                SourceLease(pk, row.project_id, row.name, generation + 1, row.asked_by, stopping)
            )
    return found


def renew(*, held: SourceLease, now: datetime, waiting_for: str) -> bool:
    """Prolong the lease; return whether a stop was requested. Raises ``SourceLeaseLost``.

    ``waiting_for`` is shown to people.
    """
    if not held.row.update(leased_until=now + LEASE, waiting_for=waiting_for[:300]):
        raise SourceLeaseLost("another collector has the source")
    return held.row.filter(activity=SourceActivity.STOPPING).exists()


def release(*, held: SourceLease) -> None:
    """Give the source back as it is, for the next collector to go on at once."""
    held.row.update(
        activity=Case(
            When(activity=SourceActivity.STOPPING, then=Value(SourceActivity.IDLE.value)),
            default=Value(SourceActivity.QUEUED.value),
        ),
        owner="",
        leased_until=None,
        waiting_for="",
    )


@transaction.atomic
def abandon(*, held: SourceLease, reason: Reason, now: datetime) -> None:
    """Let the source be: a person stopped it, it is switched off, or it has no settings any more.

    The checkpoint stays.
    """
    row = held.row.select_for_update().first()
    if row is None:
        return
    held.row.update(activity=SourceActivity.IDLE, owner="", leased_until=None, waiting_for="")
    open_ones = Harvest.objects.filter(
        project_id=held.project_id, source=held.name, state=HarvestState.RUNNING
    )
    open_ones.update(
        state=HarvestState.STOPPED, reason=reason, ended_at=now, checkpoint=row.checkpoint
    )


# --- what starts without a person ----------------------------------------------------------------


def queue_auto_start(*, project_id: int, name: str, collector: str, now: datetime) -> bool:
    """A collector has started (seed S0.26): harvest the source, unless a person stopped it."""
    state = state_row(project_id, name)
    return bool(_queue(SourceState.objects.filter(pk=state.pk), f"auto_start {collector}", now))


def queue_due(*, project_id: int, name: str, source: Source, now: datetime) -> bool:
    """Start the source if its time has come; whichever of several collectors sees it first does.

    A time that was missed while no collector ran is made up for once.
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
