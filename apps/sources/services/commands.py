"""Start, stop and marker of sources.

Collectors poll the rows twice a second; no message is needed.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from django.db import transaction
from django.db.models import Case, F, Value, When

from apps.access.models import User
from apps.access.services import label_of, record
from apps.sources.engine.progress import add_gap, untouched_by_seed_rule
from apps.sources.errors import BadMarker, NoSuchSource, SourceBusy, SourceDisabled
from apps.sources.models import SourceState
from apps.sources.queries import book
from apps.sources.states import BUSY, HELD, SourceActivity


class CommandOutcome(enum.StrEnum):
    """Result of a start or stop."""

    QUEUED = "queued"
    ALREADY = "already"
    STOPPING = "stopping"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class SourceCommand:
    """Result of a start or stop for one source."""

    name: str
    became: CommandOutcome


def start(
    *,
    project_id: int,
    names: Sequence[str] | None = None,
    actor: User | None,
    now: datetime,
    actor_label: str = "",
) -> list[SourceCommand]:
    """Start these sources, or every enabled one; sources that are active continue.

    A stopped or interrupted import resumes at its checkpoint.

    Raises NoSuchSource, or SourceDisabled for a named source; then none is started.
    """
    settings = book(project_id).sources
    if names is None:
        wanted = [name for name, source in settings.items() if source.enabled]
    else:
        wanted = list(dict.fromkeys(names))
        for name in wanted:
            if name not in settings:
                raise NoSuchSource(fields={"name": [name]})
            if not settings[name].enabled:
                raise SourceDisabled(fields={"name": [name]})
    with transaction.atomic():
        return [_start(project_id, name, actor, now, actor_label) for name in wanted]


def _start(
    project_id: int, name: str, actor: User | None, now: datetime, actor_label: str
) -> SourceCommand:
    state = state_row(project_id, name)
    mine = SourceState.objects.filter(pk=state.pk)
    by = label_of(actor, actor_label)
    mine.update(stopped_at=None, stopped_by="")
    queued = mine.filter(activity=SourceActivity.IDLE).update(
        activity=SourceActivity.QUEUED, asked_at=now, asked_by=by
    )
    # Withdraw a stop request that no process has seen yet.
    mine.filter(activity=SourceActivity.STOPPING).update(activity=SourceActivity.RUNNING)
    became = CommandOutcome.QUEUED if queued else CommandOutcome.ALREADY
    record(
        actor=actor,
        action="sources.start",
        obj=state,
        after={"became": became.value},
        actor_label=actor_label,
    )
    return SourceCommand(name, became)


def stop(
    *,
    project_id: int,
    names: Sequence[str] | None = None,
    actor: User | None,
    now: datetime,
    actor_label: str = "",
) -> list[SourceCommand]:
    """Stop these sources, or all, once the current batch is published.

    Cron does not start them until ``start``. Raises ``NoSuchSource``.
    """
    known = [*book(project_id).sources]
    rows = SourceState.objects.filter(project_id=project_id)
    known += rows.exclude(name__in=known).values_list("name", flat=True)
    wanted: Iterable[str] = known if names is None else dict.fromkeys(names)
    for name in wanted:
        if name not in known:
            raise NoSuchSource(fields={"name": [name]})
    with transaction.atomic():
        return [_stop(project_id, name, actor, now, actor_label) for name in wanted]


def _stop(
    project_id: int, name: str, actor: User | None, now: datetime, actor_label: str
) -> SourceCommand:
    state = state_row(project_id, name)
    mine = SourceState.objects.filter(pk=state.pk)
    activity = Case(
        When(activity__in=HELD, then=Value(SourceActivity.STOPPING.value)),
        default=Value(SourceActivity.IDLE.value),
    )
    mine.update(activity=activity, stopped_at=now, stopped_by=label_of(actor, actor_label))
    after = mine.values_list("activity", flat=True).get()
    became = CommandOutcome.STOPPING if after == SourceActivity.STOPPING else CommandOutcome.STOPPED
    record(
        actor=actor,
        action="sources.stop",
        obj=state,
        after={"became": became.value},
        actor_label=actor_label,
    )
    return SourceCommand(name, became)


@transaction.atomic
def set_marker(
    *,
    project_id: int,
    name: str,
    marker: int | None,
    actor: User | None,
    by_seed_rule: bool = False,
    actor_label: str = "",
) -> SourceState:
    """Set the marker, the offset at which the next import ends; None: import everything.

    For progress kept by another program. ``by_seed_rule``: it has read by the seed's rule, which
    leaves out the first ``marker % batch_size`` records; they are stored as a gap. The
    checkpoint becomes void.

    Raises NoSuchSource, BadMarker, and SourceBusy during an import.
    """
    settings = book(project_id).sources.get(name)
    if settings is None:
        raise NoSuchSource(fields={"name": [name]})
    if marker is not None and not 0 <= marker < 2**53:
        raise BadMarker
    state = SourceState.objects.select_for_update().get(pk=state_row(project_id, name).pk)
    if state.activity in BUSY:
        raise SourceBusy
    before = {"marker": state.marker}
    state.gaps = [] if marker is None else state.gaps
    if marker is not None and by_seed_rule:
        for gap in untouched_by_seed_rule(marker, settings.batch_size):
            state.gaps = add_gap(state.gaps, gap)
    state.marker, state.last_total, state.overlap, state.checkpoint = marker, None, [], None
    state.content = settings.content
    state.problem = ""
    # Increment the generation: a process that still believes to hold the lease writes nothing.
    state.generation = F("generation") + 1
    state.save(
        update_fields=[
            *("marker", "last_total", "overlap", "checkpoint", "content", "gaps", "problem"),
            *("generation", "updated_at"),
        ]
    )
    state.refresh_from_db()
    record(
        actor=actor,
        action="sources.set_marker",
        obj=state,
        before=before,
        after={"marker": marker, "by_seed_rule": by_seed_rule},
        actor_label=actor_label,
    )
    return state


def state_row(project_id: int, name: str) -> SourceState:
    """Return the row of a source; create it if it has none yet."""
    return SourceState.objects.get_or_create(project_id=project_id, name=name)[0]
