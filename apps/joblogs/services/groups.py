"""Error groups: first and last seen, counts, ignored or open."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

from django.db import connection, transaction
from django.db.models import Count, Q

from apps.access.models import User
from apps.access.services import record
from apps.joblogs.engine.lines import LogLine
from apps.joblogs.models import SAMPLE_CHARACTERS, ErrorGroup
from apps.joblogs.queries import Owner
from apps.joblogs.states import GroupState

# Most groups of one job. Beyond it, no further group is created; the lines are still found by
# search.
MOST_GROUPS: Final = 2000
# A group not seen for this time is deleted; seen again, it is a new one.
FORGET_AFTER: Final = timedelta(days=180)
FORGET_AT_ONCE: Final = 2000

_SEEN_LATER: Final = (
    "UPDATE joblogs_errorgroup SET last_at = %s, last_run_id = %s WHERE id = %s AND last_at < %s"
)

# Project, job (0: builds), fingerprint.
Kind = tuple[int, int, str]
# Columns of ``_SEEN_LATER``: last seen, in which run, key, first seen.
_Later = tuple[Any, int | None, int, Any]


class Sightings:
    """Errors by kind: of each the first and the last, with whose they are."""

    def __init__(self) -> None:
        self.first: dict[Kind, tuple[LogLine, Owner]] = {}
        self.last: dict[Kind, tuple[LogLine, Owner]] = {}

    def add(self, owner: Owner, line: LogLine) -> None:
        """One error."""
        kind = (owner.project, owner.job, line.fingerprint)
        first, last = self.first.get(kind), self.last.get(kind)
        if first is None or line.micros < first[0].micros:
            self.first[kind] = line, owner
        if last is None or line.micros >= last[0].micros:
            self.last[kind] = line, owner


def note_errors(seen: Sightings, *, now: datetime) -> None:
    """Add kinds that are new, and move first and last of the others; in the caller's transaction.

    The same again changes nothing, in whatever order it comes.
    """
    if not seen.first:
        return
    known = _known(seen.first)
    missing = sorted(kind for kind in seen.first if kind not in known)
    if missing:
        _add(missing, seen, now)
        # Another ingester may have been quicker with one of them.
        known |= _known(missing)
    _move(known, seen)


class _Known(NamedTuple):
    """Key columns of a stored group."""

    pk: int
    first_at: datetime
    last_at: datetime


def _known(kinds: Collection[Kind]) -> dict[Kind, _Known]:
    rows = ErrorGroup.objects.filter(
        _of_jobs(kinds), fingerprint__in={kind[2] for kind in kinds}
    ).values_list("project_id", "job_id", "fingerprint", "pk", "first_at", "last_at")
    found = {
        (project, job or 0, fingerprint): _Known(pk, first_at, last_at)
        for project, job, fingerprint, pk, first_at, last_at in rows
    }
    return {kind: found[kind] for kind in kinds if kind in found}


def _of_jobs(kinds: Iterable[Kind]) -> Q:
    """Rows of the same jobs, and of builds of the same projects; as their two indexes begin."""
    condition = Q()
    jobs = {job for _project, job, _fingerprint in kinds if job}
    if jobs:
        condition |= Q(job__in=jobs)
    projects = {project for project, job, _fingerprint in kinds if not job}
    if projects:
        condition |= Q(job=None, project__in=projects)
    return condition


def _add(kinds: list[Kind], seen: Sightings, now: datetime) -> None:
    held = {
        (project, job or 0): count
        for project, job, count in ErrorGroup.objects.filter(_of_jobs(kinds))
        .order_by()
        .values_list("project_id", "job_id")
        .annotate(count=Count("pk"))
    }
    rows = []
    for kind in kinds:
        count = held.get(kind[:2], 0)
        if count < MOST_GROUPS:
            held[kind[:2]] = count + 1
            rows.append(_row(kind, seen, now))
    ErrorGroup.objects.bulk_create(rows, ignore_conflicts=True)


def _row(kind: Kind, seen: Sightings, now: datetime) -> ErrorGroup:
    (first, owner), (last, last_owner) = seen.first[kind], seen.last[kind]
    return ErrorGroup(
        project_id=kind[0],
        job_id=kind[1] or None,
        fingerprint=kind[2],
        level=first.level,
        source=first.source,
        sample=first.text[:SAMPLE_CHARACTERS],
        first_at=first.at,
        first_run_id=owner.run,
        first_image_id=owner.image,
        last_at=last.at,
        last_run_id=last_owner.run,
        noted_at=now,
    )


def _move(known: Mapping[Kind, _Known], seen: Sightings) -> None:
    """Row after row in the same order, so that two of these do not wait for each other."""
    later: list[_Later] = []
    for kind in sorted(known):
        row = known[kind]
        (first, owner), (last, last_owner) = seen.first[kind], seen.last[kind]
        if first.at < row.first_at:
            # Rows earlier in the lock order are locked first.
            _see_later(later)
            later = []
            ErrorGroup.objects.filter(pk=row.pk, first_at__gt=first.at).update(
                first_at=first.at,
                first_run=owner.run,
                first_image=owner.image,
                sample=first.text[:SAMPLE_CHARACTERS],
            )
        if last.at > row.last_at:
            at = connection.ops.adapt_datetimefield_value(last.at)
            later.append((at, last_owner.run, row.pk, at))
    _see_later(later)


def _see_later(rows: list[_Later]) -> None:
    """All at once: a portion of lines moves every kind of it; one by one it would cost a tenth."""
    if rows:
        with connection.cursor() as cursor:
            cursor.executemany(_SEEN_LATER, rows)


@transaction.atomic
def ignore_group(*, group: ErrorGroup, actor: User | None, now: datetime) -> bool:
    """Ignore an error group: it is still counted, but needs no attention. False if it was."""
    changed = ErrorGroup.objects.filter(pk=group.pk, state=GroupState.OPEN).update(
        state=GroupState.IGNORED, ignored_by=actor, ignored_at=now
    )
    if changed:
        _record(group, actor, "joblogs.ignore_error", GroupState.OPEN, GroupState.IGNORED)
    return bool(changed)


@transaction.atomic
def watch_group(*, group: ErrorGroup, actor: User | None) -> bool:
    """Have a kind that was put aside among the others again. False: it is."""
    changed = ErrorGroup.objects.filter(pk=group.pk, state=GroupState.IGNORED).update(
        state=GroupState.OPEN, ignored_by=None, ignored_at=None
    )
    if changed:
        _record(group, actor, "joblogs.watch_error", GroupState.IGNORED, GroupState.OPEN)
    return bool(changed)


def forget_groups(*, now: datetime) -> int:
    """Delete kinds that were not seen for long, of one call a bounded number."""
    old = ErrorGroup.objects.filter(last_at__lt=now - FORGET_AFTER).order_by("last_at")
    doomed = list(old.values_list("pk", flat=True)[:FORGET_AT_ONCE])
    return ErrorGroup.objects.filter(pk__in=doomed).delete()[0] if doomed else 0


def _record(
    group: ErrorGroup, actor: User | None, action: str, before: GroupState, after: GroupState
) -> None:
    record(
        actor=actor,
        action=action,
        obj=group,
        before={"state": before.value},
        after={"state": after.value},
    )
