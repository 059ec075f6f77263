"""Since when conditions are so: noted with every look, for rules that wait for a while.

A source may know no better than that something is so now. What it says of the time counts where
that is earlier; else the first look at which it was listed, without a pause since.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Final

from django.db import transaction

from apps.alerts.engine.events import Happening
from apps.alerts.models import LastingHappening

# Nobody looked for so long: nothing is known of the time between.
PAUSE: Final = timedelta(seconds=60)
REFRESH: Final = timedelta(seconds=15)
FORGET: Final = timedelta(days=1)
MAX_ID: Final = 300
A_STATEMENT: Final = 500

# (source, id of the happening)
LastingKey = tuple[str, str]
Begun = dict[LastingKey, datetime]


def key_of(source: str, happening: Happening) -> LastingKey:
    """What its time is kept by."""
    return source, happening.id[:MAX_ID]


def begun(listed: Mapping[str, Iterable[Happening]], *, now: datetime) -> Begun:
    """Since when each of these is so, by source; what was never noted since what it says."""
    rows = {(row.source, row.happening): row for row in _rows(listed)}
    return {
        key: _since(rows.get(key), each, now)
        for source, some in listed.items()
        for each in some
        for key in [key_of(source, each)]
    }


def note_lasting(
    listed: Mapping[str, Iterable[Happening]], *, now: datetime, hold: Callable[[], None]
) -> Begun:
    """The same, and written down; what these sources do not list any more is forgotten.

    Raises ``LeaseLost`` by ``hold``. Three statements at most when nothing has changed.
    """
    rows = {(row.source, row.happening): row for row in _rows(listed)}
    found: Begun = {}
    new: list[LastingHappening] = []
    anew: list[LastingHappening] = []
    kept: list[int] = []
    for source, some in listed.items():
        for each in some:
            key = key_of(source, each)
            if key in found:
                continue
            row = rows.pop(key, None)
            found[key] = _since(row, each, now)
            if row is None:
                new.append(
                    LastingHappening(source=source, happening=key[1], since=found[key], seen_at=now)
                )
            elif found[key] != row.since:
                row.since, row.seen_at = found[key], now
                anew.append(row)
            elif now - row.seen_at >= REFRESH:
                kept.append(row.pk)
    gone = [row.pk for row in rows.values()]
    if new or anew or kept or gone:
        with transaction.atomic():
            hold()
            _write(new, anew, kept, gone, now)
    return found


def prune_lasting(*, now: datetime) -> int:
    """Forget what was of rules that are gone; how many."""
    return LastingHappening.objects.filter(seen_at__lt=now - FORGET).delete()[0]


def _rows(listed: Mapping[str, object]) -> Iterable[LastingHappening]:
    return LastingHappening.objects.filter(source__in=list(listed)) if listed else ()


def _since(row: LastingHappening | None, happening: Happening, now: datetime) -> datetime:
    said = min(happening.at, now)
    if row is None or now - row.seen_at > PAUSE:
        return said
    return min(said, row.since)


def _write(
    new: list[LastingHappening],
    anew: list[LastingHappening],
    kept: list[int],
    gone: list[int],
    now: datetime,
) -> None:
    rows = LastingHappening.objects
    rows.bulk_create(new, ignore_conflicts=True, batch_size=A_STATEMENT)
    rows.bulk_update(anew, ["since", "seen_at"], batch_size=100)
    for start in range(0, len(kept), A_STATEMENT):
        rows.filter(pk__in=kept[start : start + A_STATEMENT]).update(seen_at=now)
    for start in range(0, len(gone), A_STATEMENT):
        rows.filter(pk__in=gone[start : start + A_STATEMENT]).delete()
