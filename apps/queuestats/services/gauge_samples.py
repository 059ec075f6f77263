"""Samples every metric into a series, and every queue into a row; ``run_monitor`` calls it."""

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
# A queue that has not been read for this long is deleted.
QUEUES_KEPT: Final = timedelta(minutes=10)
MARKS_KEPT: Final = timedelta(days=7)
# An increase over a longer interval is distributed over its last 60 s only.
MAX_GAP_SECONDS: Final = 60.0
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
    """Number of series and of queues written."""

    series: int
    queues: int


def sample_gauges(*, now: datetime) -> SampleCounts:
    """Sample all metrics of docs/metrics.md and all queues.

    Every app and server is read first, each with a timeout of a few seconds; then everything is
    written in one transaction. A metric that cannot be read leaves a gap, which is never read as
    0. Meant for one process; two at once sample more often and count nothing twice.

    Raises:
        DatabaseError: the database is unreachable; nothing is written.
    """
    # Without the database most metrics fail, each after its own timeout: fail here, once.
    connection.ensure_connection()
    measured = measure()
    gauges = dict(measured.gauges)
    gauges |= _absent(gauges)
    return _write(measured, gauges, now)


@transaction.atomic
def _write(
    measured: Measurements, gauges: Mapping[SeriesKey, float], now: datetime
) -> SampleCounts:
    second = int(now.timestamp())
    readings: list[SeriesReading] = [
        (key, SampleKind.GAUGE, second, 1, value, 1, value)
        for key, value in gauges.items()
        if math.isfinite(value)
    ]
    readings += _counted(measured.counters, now)
    readings += _queues(measured.queues, now)
    add_readings(readings)
    failpoints.hit("queuestats.sampled")
    return SampleCounts(series=len(readings), queues=len(measured.queues))


def _absent(gauges: Mapping[SeriesKey, float]) -> dict[SeriesKey, float]:
    """Return 0 for known series without a value now, of metrics for which absence means 0."""
    names = {m.name for m in metrics.described() if m.absent_is_zero and not m.failed}
    rows = Series.objects.filter(name__in=names, kind=SeriesKind.GAUGE)
    keys = (SeriesKey(*row) for row in rows.values_list("name", "project_id", "label"))
    return {key: 0.0 for key in keys if key not in gauges}


def _counted(counters: Mapping[SeriesKey, float], now: datetime) -> list[SeriesReading]:
    """Return the increase of each counter since the last sample, distributed over that time."""
    keys = {_mark(key): key for key in counters}
    marks = {row.key: row for row in CounterMark.objects.select_for_update().order_by("key")}
    readings: list[SeriesReading] = []
    fresh: list[tuple[str, float, datetime]] = []
    for mark, key in keys.items():
        before = marks.get(mark)
        if before is not None:
            if _is_outdated(before.at, now):
                continue
            increase = _increase(counters[key], before.value)
            readings += distribute(key, increase, before.at, now, MAX_GAP_SECONDS)
        if math.isfinite(counters[key]):
            fresh.append((mark, counters[key], now))
    _MARKS.write(fresh)
    CounterMark.objects.filter(at__lt=now - MARKS_KEPT).delete()
    return readings


def _is_outdated(written: datetime, now: datetime) -> bool:
    """Whether another process has stored a newer sample than ours, which was read at ``now``.

    That happens after this process was frozen. Storing the older value would count the following
    increase twice. A sample from more than 60 s in the future is overwritten: the clock of its
    writer was wrong.
    """
    return now < written <= now + timedelta(seconds=MAX_GAP_SECONDS)


def _increase(value: float, before: float) -> float:
    """Return how much a counter has risen; 0 after a restart, which makes it smaller."""
    return max(0.0, value - before) if math.isfinite(value) else 0.0


def _mark(key: SeriesKey) -> str:
    return f"{key.name} {key.project or 0} {key.label}"


def _queues(readings: Iterable[QueueReading], now: datetime) -> list[SeriesReading]:
    """Store all queues; return the numbers of messages published and consumed since then."""
    known = set(Project.objects.values_list("pk", flat=True))
    rows = {
        row.key: row
        for row in (
            _row(reading, now)
            for reading in readings
            if reading.project is None or reading.project in known
        )
    }
    previous = {row.key: row for row in QueueState.objects.select_for_update().order_by("key")}
    flows: list[SeriesReading] = []
    fresh: list[QueueState] = []
    for key, row in rows.items():
        before = previous.get(key)
        if before is not None and _is_outdated(before.at, now):
            continue
        fresh.append(row)
        if before is None or before.epoch != row.epoch:
            continue
        published, consumed = _flow(row, before)
        series = row.project_id, row.name
        flows += distribute(
            SeriesKey(QUEUE_IN, *series), published, before.at, now, MAX_GAP_SECONDS
        )
        flows += distribute(
            SeriesKey(QUEUE_OUT, *series), consumed, before.at, now, MAX_GAP_SECONDS
        )
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


def _flow(row: QueueState, before: QueueState) -> tuple[float, float]:
    """Return the messages published to and consumed from a queue between two samples.

    Where an engine counts only one of them, the other follows from the change of the length.
    """
    published = _difference(row.in_total, before.in_total)
    consumed = _difference(row.out_total, before.out_total)
    if row.waiting is not None and before.waiting is not None:
        growth = _length(row) - _length(before)
        if published is None and consumed is not None:
            published = consumed + growth
        elif consumed is None and published is not None:
            consumed = published - growth
    return max(0.0, published or 0.0), max(0.0, consumed or 0.0)


def _length(row: QueueState) -> float:
    return float((row.waiting or 0) + (row.taken or 0))


def _difference(value: int | None, before: int | None) -> float | None:
    return None if value is None or before is None else float(max(0, value - before))
