"""Writes down what can be measured: every gauge as a series, every queue as a row."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from django.db import connection, transaction

from apps.projects.models import Project
from apps.queuestats.models import CounterMark, QueueState, Series, SeriesKind
from apps.queuestats.queries.measurements import Measurements, label_of, measure
from apps.queuestats.queries.series import SeriesKey
from apps.queuestats.services.series_readings import SeriesReading, add_readings, distribute
from apps.queuestats.services.upsert import Upsert
from yardkit import failpoints, metrics
from yardkit.protocol import SampleKind
from yardkit.queues import QueueReading

QUEUE_IN: Final = "queue.in"
QUEUE_OUT: Final = "queue.out"
# A queue that was not seen for so long is gone.
QUEUES_KEPT: Final = timedelta(minutes=10)
MARKS_KEPT: Final = timedelta(days=7)
# A difference over a longer time says nothing of the last seconds.
LONGEST_GAP: Final = 60.0
_MARKS: Final = Upsert(
    table="queuestats_countermark",
    columns={"key": "text", "value": "float8", "at": "timestamptz"},
    key=("key",),
    change="value = excluded.value, at = excluded.at",
)
_QUEUE_VALUES: Final = {
    "project_id": "bigint",
    **dict.fromkeys(("name", "engine", "address", "way"), "text"),
    **dict.fromkeys(("waiting", "taken", "readers"), "bigint"),
    "oldest_seconds": "float8",
    **dict.fromkeys(("in_total", "out_total"), "bigint"),
    **dict.fromkeys(("epoch", "problem"), "text"),
    "at": "timestamptz",
}
_QUEUES: Final = Upsert(
    table="queuestats_queuestate",
    columns={"key": "text", **_QUEUE_VALUES},
    key=("key",),
    change=", ".join(f"{name} = excluded.{name}" for name in _QUEUE_VALUES),
)


@dataclass(frozen=True, slots=True)
class SampleCounts:
    """How many series and queues were written."""

    series: int
    queues: int


def sample_gauges(*, now: datetime) -> SampleCounts:
    """Write all that can be measured now (seed S4.24), see docs/metrics.md.

    Asks every app and every server first, and waits for none of them longer than a few seconds.
    Then everything is written in one transaction. What cannot be read leaves a gap: a gap is
    never 0. For one process at a time; two at once measure more often, and count nothing twice.

    Raises:
        DatabaseError: the database is away; nothing is written.
    """
    # Without the database hardly anything can be read, and each would wait for it anew.
    connection.ensure_connection()
    found = measure()
    gauges = dict(found.gauges)
    gauges |= _absent(gauges)
    return _write(found, gauges, now)


@transaction.atomic
def _write(found: Measurements, gauges: Mapping[SeriesKey, float], now: datetime) -> SampleCounts:
    second = int(now.timestamp())
    readings: list[SeriesReading] = [
        (key, SampleKind.GAUGE, second, 1, value, 1, value)
        for key, value in gauges.items()
        if math.isfinite(value)
    ]
    readings += _counted(found.counters, now)
    readings += _queues(found.queues, now)
    add_readings(readings)
    failpoints.hit("queuestats.sampled")
    return SampleCounts(series=len(readings), queues=len(found.queues))


def _absent(gauges: Mapping[SeriesKey, float]) -> dict[SeriesKey, float]:
    """0 for what was there once and is not named any more, where that means none."""
    names = {each.name for each in metrics.described() if each.absent_is_zero and not each.failed}
    rows = Series.objects.filter(name__in=names, kind=SeriesKind.GAUGE)
    keys = (SeriesKey(*row) for row in rows.values_list("name", "project_id", "label"))
    return {key: 0.0 for key in keys if key not in gauges}


def _counted(counters: Mapping[SeriesKey, float], now: datetime) -> list[SeriesReading]:
    """What counters have risen by since the last sampling, spread over that time."""
    keys = {_mark(key): key for key in counters}
    marks = {row.key: row for row in CounterMark.objects.select_for_update().order_by("key")}
    readings: list[SeriesReading] = []
    fresh: list[tuple[str, float, datetime]] = []
    for mark, key in keys.items():
        was = marks.get(mark)
        if was is not None:
            if _is_outdated(was.at, now):
                continue
            readings += distribute(key, _risen(counters[key], was.value), was.at, now, LONGEST_GAP)
        if math.isfinite(counters[key]):
            fresh.append((mark, counters[key], now))
    _MARKS.write(fresh)
    CounterMark.objects.filter(at__lt=now - MARKS_KEPT).delete()
    return readings


def _is_outdated(written: datetime, now: datetime) -> bool:
    """Another process has written what it read later than we did: ours is old.

    As after a process was frozen for a while. Counted from an older number, what came since would
    be counted twice. Not for a clock that was far ahead: it would be believed for ever.
    """
    return now < written <= now + timedelta(seconds=LONGEST_GAP)


def _risen(value: float, was: float) -> float:
    """A counter that has fallen began anew, or lost a part of itself: it has not risen."""
    return max(0.0, value - was) if math.isfinite(value) else 0.0


def _mark(key: SeriesKey) -> str:
    return f"{key.name} {key.project or 0} {key.label}"


def _queues(readings: Iterable[QueueReading], now: datetime) -> list[SeriesReading]:
    """The rows of all queues, and what went in and out of them since the last sampling."""
    known = set(Project.objects.values_list("pk", flat=True))
    rows = {
        row.key: row
        for row in (
            _row(each, now) for each in readings if each.project is None or each.project in known
        )
    }
    before = {row.key: row for row in QueueState.objects.select_for_update().order_by("key")}
    flows: list[SeriesReading] = []
    fresh: list[QueueState] = []
    for key, row in rows.items():
        was = before.get(key)
        if was is not None and _is_outdated(was.at, now):
            continue
        fresh.append(row)
        if was is None or was.epoch != row.epoch:
            continue
        went_in, went_out = _flow(row, was)
        series = row.project_id, row.name
        flows += distribute(SeriesKey(QUEUE_IN, *series), went_in, was.at, now, LONGEST_GAP)
        flows += distribute(SeriesKey(QUEUE_OUT, *series), went_out, was.at, now, LONGEST_GAP)
    _QUEUES.write([[getattr(row, name) for name in _QUEUES.columns] for row in fresh])
    QueueState.objects.filter(at__lt=now - QUEUES_KEPT).delete()
    return flows


def _row(reading: QueueReading, now: datetime) -> QueueState:
    name = label_of([reading.name])
    return QueueState(
        key=f"{reading.project or 0} {name}",
        project_id=reading.project,
        name=name,
        engine=reading.engine[:20],
        address=reading.address[:200],
        way=reading.way,
        waiting=reading.waiting,
        taken=reading.taken,
        readers=reading.readers,
        oldest_seconds=reading.oldest_seconds,
        in_total=reading.in_total,
        out_total=reading.out_total,
        epoch=reading.epoch[:2000],
        problem=reading.problem.replace("\0", "")[:500],
        at=now,
    )


def _flow(row: QueueState, was: QueueState) -> tuple[float, float]:
    """How many went in and out meanwhile.

    Where only one side is counted, the other follows from what has become more or fewer.
    """
    grown = _held(row) - _held(was) if row.waiting is not None and was.waiting is not None else None
    went_in = _difference(row.in_total, was.in_total)
    went_out = _difference(row.out_total, was.out_total)
    if went_in is None and went_out is not None and grown is not None:
        went_in = went_out + grown
    elif went_out is None and went_in is not None and grown is not None:
        went_out = went_in - grown
    return max(0.0, went_in or 0.0), max(0.0, went_out or 0.0)


def _held(row: QueueState) -> float:
    return float((row.waiting or 0) + (row.taken or 0))


def _difference(value: int | None, was: int | None) -> float | None:
    return None if value is None or was is None else float(max(0, value - was))
