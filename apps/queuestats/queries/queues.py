"""Status of every queue, derived from its last sample and rates; problems first."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from apps.queuestats.models import QueueState, Sample
from apps.queuestats.queries.series import MINUTE, FoundRates, SeriesKey, rates
from yardkit.broker.base import DEAD_QUEUE
from yardkit.queues import QueueDirection

READY: Final = "queue.ready"
IN: Final = "queue.in"
OUT: Final = "queue.out"
# SampleCounts every 5 s: what is older is no news.
STALE: Final = timedelta(seconds=30)
SPARK_MINUTES: Final = 60
# A queue is behind when its messages wait longer than this.
SLOW_SECONDS: Final = 600.0
# A growing queue is behind when its messages wait longer than this.
GROWING_SECONDS: Final = 10.0


class QueueStatus(StrEnum):
    """Status of a queue; the most severe first."""

    PROBLEM = "problem"
    # Messages wait without a consumer.
    ABANDONED = "abandoned"
    # Dead letters wait for an operator.
    HELD = "held"
    # Messages wait longer than 10 minutes, or longer than 10 seconds while the queue grows.
    BEHIND = "behind"
    BUSY = "busy"
    EMPTY = "empty"
    # No sample for 30 s, or the engine does not report the length.
    UNKNOWN = "unknown"


_SEVERITY: Final = {status: rank for rank, status in enumerate(QueueStatus)}


@dataclass(frozen=True, slots=True)
class QueueLine:
    """A queue with its status and rates. ``spark``: mean length in each of the last 60 minutes."""

    row: QueueState
    standing: QueueStatus
    in_per_second: float | None
    out_per_second: float | None
    # Age of the oldest message, else an estimate from the rate of the last minute. None: unknown,
    # or nothing is consumed.
    lag_seconds: float | None
    # Time to empty the queue at the rate of the last minute; None: unknown or never.
    drained_seconds: float | None
    spark: list[float | None]

    @property
    def key(self) -> SeriesKey:
        """Key of the series of its length."""
        return SeriesKey(READY, self.row.project_id, self.row.name)


@dataclass(frozen=True, slots=True)
class Queues:
    """Queues visible to a user. ``sampled_at`` is the time of the newest sample, or None."""

    lines: list[QueueLine]
    sampled_at: datetime | None
    now: datetime

    @property
    def stale(self) -> bool:
        """Whether no queue was sampled within the last 30 s."""
        return self.sampled_at is None or self.now - self.sampled_at > STALE

    @property
    def troubled(self) -> list[QueueLine]:
        """Queues that need attention."""
        return [line for line in self.lines if line.standing in _TROUBLED]


_TROUBLED: Final = (QueueStatus.PROBLEM, QueueStatus.ABANDONED, QueueStatus.HELD)


def queues_of(user: object, *, now: datetime, sparks: bool = True) -> Queues:
    """Return the queues visible to ``user``, with status and rates. Four queries."""
    rows = list(QueueState.objects.visible_to(user).select_related("project"))
    flow_rates = rates([IN, OUT], projects=None, now=now)
    curves = _sparks(rows, now) if sparks else {}
    lines = [_line(row, flow_rates, curves, now) for row in rows]
    lines.sort(key=_order)
    return Queues(lines, max((row.at for row in rows), default=None), now)


def _order(line: QueueLine) -> tuple[int, int, str, str]:
    row = line.row
    project = "" if row.project is None else row.project.name
    return _SEVERITY[line.standing], -(row.waiting or 0), project, row.name


def _line(
    row: QueueState,
    flow_rates: FoundRates,
    curves: dict[SeriesKey, list[float | None]],
    now: datetime,
) -> QueueLine:
    flows = [flow_rates.by_key.get(SeriesKey(name, row.project_id, row.name)) for name in (IN, OUT)]
    counted = row.in_total is not None or row.out_total is not None
    # Without a sample the rate of a counted queue is 0, that of another one unknown.
    default = flow_rates.nothing[MINUTE] if counted else None
    published, consumed = (default if flow is None else flow[MINUTE] for flow in flows)
    waiting = row.waiting
    drained = lag = None
    if waiting is not None:
        lag = 0.0 if waiting == 0 else waiting / consumed if consumed else None
    if waiting is not None and consumed is not None:
        surplus = consumed - (published or 0.0)
        drained = 0.0 if waiting == 0 else waiting / surplus if surplus > 0 else None
    return QueueLine(
        row=row,
        standing=_status(row, published, consumed, now),
        in_per_second=published,
        out_per_second=consumed,
        lag_seconds=lag if row.oldest_seconds is None else row.oldest_seconds,
        drained_seconds=drained,
        spark=curves.get(SeriesKey(READY, row.project_id, row.name), []),
    )


def _status(
    row: QueueState, published: float | None, consumed: float | None, now: datetime
) -> QueueStatus:
    if row.problem:
        return QueueStatus.PROBLEM
    if now - row.at > STALE or row.waiting is None:
        return QueueStatus.UNKNOWN
    if row.waiting == 0:
        return QueueStatus.BUSY if row.taken else QueueStatus.EMPTY
    if row.name == DEAD_QUEUE and row.project_id is None:
        return QueueStatus.HELD
    # Consumers of outbound queues are external and need not be connected.
    if row.readers == 0 and row.way != QueueDirection.OUT:
        return QueueStatus.ABANDONED
    return QueueStatus.BEHIND if _is_behind(row.waiting, published, consumed) else QueueStatus.BUSY


def _is_behind(waiting: int, published: float | None, consumed: float | None) -> bool:
    if published is None or consumed is None:
        return False
    if consumed == 0:
        # The messages may have just arrived.
        return published == 0 or waiting > GROWING_SECONDS * published
    lag = waiting / consumed
    return lag > SLOW_SECONDS or (published > consumed and lag > GROWING_SECONDS)


def _sparks(rows: list[QueueState], now: datetime) -> dict[SeriesKey, list[float | None]]:
    end = int(now.timestamp())
    end -= end % MINUTE
    begin = end - (SPARK_MINUTES - 1) * MINUTE
    samples = Sample.objects.filter(
        series__name=READY,
        series__label__in={row.name for row in rows},
        step=MINUTE,
        second__gte=begin,
    )
    sparks: dict[SeriesKey, list[float | None]] = {}
    for project, label, second, value, count in samples.values_list(
        "series__project_id", "series__label", "second", "value", "count"
    ):
        line = sparks.setdefault(SeriesKey(READY, project, label), [None] * SPARK_MINUTES)
        minute = (second - begin) // MINUTE
        if count and minute < SPARK_MINUTES:
            line[minute] = value / count
    return sparks
