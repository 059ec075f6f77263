"""Error groups: first and last occurrence, ignored or open."""

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

# Limit of groups per job. Beyond it no group is created; the lines are still found by search.
MOST_GROUPS: Final = 2000
# Groups without an occurrence for this time are deleted; a later one creates a new group.
FORGET_AFTER: Final = timedelta(days=180)
FORGET_AT_ONCE: Final = 2000

_SEEN_LATER: Final = (
    "UPDATE joblogs_errorgroup SET last_at = %s, last_run_id = %s WHERE id = %s AND last_at < %s"
)

# Key of a group: project, job (0: builds), fingerprint.
Kind = tuple[int, int, str]
# Columns of ``_SEEN_LATER``: last seen, in which run, key, first seen.
_Later = tuple[Any, int | None, int, Any]


class Sightings:
    """First and last occurrence of each error group in a batch, with its owner."""

    def __init__(self) -> None:
        self.first: dict[Kind, tuple[LogLine, Owner]] = {}
        self.last: dict[Kind, tuple[LogLine, Owner]] = {}

    def add(self, owner: Owner, line: LogLine) -> None:
        """Add one error."""
        kind = (owner.project, owner.job, line.fingerprint)
        first, last = self.first.get(kind), self.last.get(kind)
        if first is None or line.micros < first[0].micros:
            self.first[kind] = line, owner
        if last is None or line.micros >= last[0].micros:
            self.last[kind] = line, owner


def note_errors(seen: Sightings, *, now: datetime) -> None:
    """Create new groups, and update first and last occurrence of known ones; in the caller's
    transaction.

    Idempotent, and independent of the order of calls.
    """
    if not seen.first:
        return
    known = _known(seen.first)
    missing = sorted(kind for kind in seen.first if kind not in known)
    if missing:
        _add(missing, seen, now)
        # A concurrent ingester may have created one of them first.
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
    known = {
        (project, job or 0, fingerprint): _Known(pk, first_at, last_at)
        for project, job, fingerprint, pk, first_at, last_at in rows
    }
    return {kind: known[kind] for kind in kinds if kind in known}


def _of_jobs(kinds: Iterable[Kind]) -> Q:
    """Condition for rows of the same jobs, and of builds of the same projects; matches their two
    indexes.
    """
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
    """Update groups in a fixed order, so that concurrent updates do not deadlock."""
    later: list[_Later] = []
    for kind in sorted(known):
        row = known[kind]
        (first, owner), (last, last_owner) = seen.first[kind], seen.last[kind]
        if first.at < row.first_at:
            # Lock rows in order, those with smaller keys first.
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
    """Update the last occurrence of many groups in one statement: a batch updates each of its
    groups, and single statements would take ten percent of its time.
    """
    if rows:
        with connection.cursor() as cursor:
            cursor.executemany(_SEEN_LATER, rows)


@transaction.atomic
def ignore_group(*, group: ErrorGroup, actor: User | None, now: datetime) -> bool:
    """Ignore an error group: it is still counted, but needs no attention. False if already
    ignored.
    """
    changed = ErrorGroup.objects.filter(pk=group.pk, state=GroupState.OPEN).update(
        state=GroupState.IGNORED, ignored_by=actor, ignored_at=now
    )
    if changed:
        _record(group, actor, "joblogs.ignore_error", GroupState.OPEN, GroupState.IGNORED)
    return bool(changed)


@transaction.atomic
def watch_group(*, group: ErrorGroup, actor: User | None) -> bool:
    """Reopen an ignored error group. False if it is not ignored."""
    changed = ErrorGroup.objects.filter(pk=group.pk, state=GroupState.IGNORED).update(
        state=GroupState.OPEN, ignored_by=None, ignored_at=None
    )
    if changed:
        _record(group, actor, "joblogs.watch_error", GroupState.IGNORED, GroupState.OPEN)
    return bool(changed)


def forget_groups(*, now: datetime) -> int:
    """Delete groups without a recent occurrence; each call deletes a limited number."""
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
