"""Keeps the kinds of errors: since when there is each, when it was last seen, who ignores it."""

from __future__ import annotations

from collections import defaultdict
from datetime import datetime, timedelta
from typing import Final

from django.db import transaction

from apps.access.models import User
from apps.access.services import record
from apps.joblogs.engine.lines import Line
from apps.joblogs.models import SAMPLE_CHARACTERS, ErrorGroup
from apps.joblogs.queries import Owner
from apps.joblogs.states import GroupState

# Kinds of one job. Beyond it the texts differ in ways that nobody foresaw: their lines are found
# by search all the same, but no further kind is kept.
MOST_GROUPS: Final = 2000
# A kind that was not seen for so long is forgotten; seen again it is new.
FORGET_AFTER: Final = timedelta(days=180)
FORGET_AT_ONCE: Final = 2000

# Project, job (0: builds), fingerprint.
Kind = tuple[int, int, str]


class Sightings:
    """Errors by kind: of each the first and the last, with whose they are."""

    def __init__(self) -> None:
        self.first: dict[Kind, tuple[Line, Owner]] = {}
        self.last: dict[Kind, tuple[Line, Owner]] = {}

    def add(self, owner: Owner, line: Line) -> None:
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
    known = _known(seen)
    missing = sorted(kind for kind in seen.first if kind not in known)
    if missing:
        _add(missing, seen, now)
        # Another ingester may have been quicker with one of them.
        known = _known(seen)
    for kind in sorted(known):
        _move(known[kind], kind, seen)


def _known(seen: Sightings) -> dict[Kind, ErrorGroup]:
    rows = ErrorGroup.objects.filter(
        project__in={kind[0] for kind in seen.first},
        fingerprint__in={kind[2] for kind in seen.first},
    ).only("project_id", "job_id", "fingerprint", "first_at", "last_at")
    found = {(row.project_id, row.job_id or 0, row.fingerprint): row for row in rows}
    return {kind: row for kind, row in found.items() if kind in seen.first}


def _add(kinds: list[Kind], seen: Sightings, now: datetime) -> None:
    by_job: dict[tuple[int, int], list[Kind]] = defaultdict(list)
    for kind in kinds:
        by_job[kind[:2]].append(kind)
    for (project, job), added in by_job.items():
        held = ErrorGroup.objects.filter(project=project, job=job or None).count()
        rows = [_row(kind, seen, now) for kind in added[: max(0, MOST_GROUPS - held)]]
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


def _move(row: ErrorGroup, kind: Kind, seen: Sightings) -> None:
    (first, owner), (last, last_owner) = seen.first[kind], seen.last[kind]
    if first.at < row.first_at:
        ErrorGroup.objects.filter(pk=row.pk, first_at__gt=first.at).update(
            first_at=first.at,
            first_run=owner.run,
            first_image=owner.image,
            sample=first.text[:SAMPLE_CHARACTERS],
        )
    if last.at > row.last_at:
        ErrorGroup.objects.filter(pk=row.pk, last_at__lt=last.at).update(
            last_at=last.at, last_run=last_owner.run
        )


@transaction.atomic
def ignore_group(*, group: ErrorGroup, actor: User | None, now: datetime) -> bool:
    """Put a kind aside: it is counted and found, but asks for nobody. False: it was already."""
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
