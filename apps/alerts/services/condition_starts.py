"""Start times of conditions, recorded at every poll, for rules with ``for_seconds``.

A source may know only that a condition holds now. The start is the earlier of the source's own time
and the first poll since which it was listed without a gap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Final

from django.db import transaction

from apps.alerts.engine.events import Occurrence
from apps.alerts.models import OngoingCondition

# After a longer gap between polls the state in between is unknown, and counting restarts.
PAUSE: Final = timedelta(seconds=60)
REFRESH: Final = timedelta(seconds=15)
FORGET: Final = timedelta(days=1)
MAX_ID: Final = 300
A_STATEMENT: Final = 500

# (source, id of the happening)
ConditionKey = tuple[str, str]
ConditionStarts = dict[ConditionKey, datetime]


def key_of(source: str, happening: Occurrence) -> ConditionKey:
    """Return the key under which the start of an occurrence is stored."""
    return source, happening.id[:MAX_ID]


def starts_of(listed: Mapping[str, Iterable[Occurrence]], *, now: datetime) -> ConditionStarts:
    """Return the start of each condition without storing it, by source and ID."""
    rows = {(row.source, row.happening): row for row in _rows(listed)}
    return {
        key: _since(rows.get(key), condition, now)
        for source, some in listed.items()
        for condition in some
        for key in [key_of(source, condition)]
    }


def record_starts(
    listed: Mapping[str, Iterable[Occurrence]], *, now: datetime, hold: Callable[[], None]
) -> ConditionStarts:
    """Store and return the start of each condition; forget those no longer listed.

    Raises ``LeaseLost`` through ``hold``. At most three statements if nothing has changed.
    """
    rows = {(row.source, row.happening): row for row in _rows(listed)}
    starts: ConditionStarts = {}
    new: list[OngoingCondition] = []
    anew: list[OngoingCondition] = []
    kept: list[int] = []
    for source, some in listed.items():
        for condition in some:
            key = key_of(source, condition)
            if key in starts:
                continue
            row = rows.pop(key, None)
            starts[key] = _since(row, condition, now)
            if row is None:
                new.append(
                    OngoingCondition(
                        source=source, happening=key[1], since=starts[key], seen_at=now
                    )
                )
            elif starts[key] != row.since:
                row.since, row.seen_at = starts[key], now
                anew.append(row)
            elif now - row.seen_at >= REFRESH:
                kept.append(row.pk)
    gone = [row.pk for row in rows.values()]
    if new or anew or kept or gone:
        with transaction.atomic():
            hold()
            _write(new, anew, kept, gone, now)
    return starts


def prune_starts(*, now: datetime) -> int:
    """Delete starts whose rules no longer exist; return their number."""
    return OngoingCondition.objects.filter(seen_at__lt=now - FORGET).delete()[0]


def _rows(listed: Mapping[str, object]) -> Iterable[OngoingCondition]:
    return OngoingCondition.objects.filter(source__in=list(listed)) if listed else ()


def _since(row: OngoingCondition | None, happening: Occurrence, now: datetime) -> datetime:
    began = min(happening.at, now)
    if row is None or now - row.seen_at > PAUSE:
        return began
    return min(began, row.since)


def _write(
    new: list[OngoingCondition],
    anew: list[OngoingCondition],
    kept: list[int],
    gone: list[int],
    now: datetime,
) -> None:
    rows = OngoingCondition.objects
    rows.bulk_create(new, ignore_conflicts=True, batch_size=A_STATEMENT)
    rows.bulk_update(anew, ["since", "seen_at"], batch_size=100)
    for start in range(0, len(kept), A_STATEMENT):
        rows.filter(pk__in=kept[start : start + A_STATEMENT]).update(seen_at=now)
    for start in range(0, len(gone), A_STATEMENT):
        rows.filter(pk__in=gone[start : start + A_STATEMENT]).delete()
