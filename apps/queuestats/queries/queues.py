"""How every queue stands, the troubled ones first."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from apps.queuestats.models import QueueState, Sample
from apps.queuestats.queries.series import MINUTE, FoundRates, SeriesKey, rates
from yardkit.broker.base import DEAD_QUEUE
from yardkit.queues import Way

READY: Final = "queue.ready"
IN: Final = "queue.in"
OUT: Final = "queue.out"
# SampleCounts every 5 s: what is older is no news.
STALE: Final = timedelta(seconds=30)
SPARK_MINUTES: Final = 60
# Whose messages wait longer than this is behind, however it goes on.
SLOW_SECONDS: Final = 600.0
# A queue that grows is behind once its messages wait so long.
GROWING_SECONDS: Final = 10.0


class QueueStatus(StrEnum):
    """How a queue is, the worst first."""

    PROBLEM = "problem"
    # Messages wait and nobody reads.
    ABANDONED = "abandoned"
    # Somebody should look at what lies there.
    HELD = "held"
    # Its messages wait for more than ten minutes, or for ten seconds while it grows.
    BEHIND = "behind"
    BUSY = "busy"
    EMPTY = "empty"
    # Nobody has said anything for half a minute, or nobody can say.
    UNKNOWN = "unknown"


_WORST_FIRST: Final = {each: at for at, each in enumerate(QueueStatus)}


@dataclass(frozen=True, slots=True)
class QueueLine:
    """A queue on the page. ``spark``: the mean of each of the last 60 minutes, None: unknown."""

    row: QueueState
    standing: QueueStatus
    in_per_second: float | None
    out_per_second: float | None
    # For how long a message waits: the oldest one, or by the pace of the last minute. None:
    # nobody can say, or none ever comes out.
    lag_seconds: float | None
    # How long it takes to empty it at the pace of the last minute; None: unknown or never.
    drained_seconds: float | None
    spark: list[float | None]

    @property
    def key(self) -> SeriesKey:
        """Of its length over time."""
        return SeriesKey(READY, self.row.project_id, self.row.name)


@dataclass(frozen=True, slots=True)
class Queues:
    """All that somebody sees. ``sampled_at``: when the newest was read; None: never."""

    lines: list[QueueLine]
    sampled_at: datetime | None
    now: datetime

    @property
    def stale(self) -> bool:
        """Nobody samples: what is shown is old."""
        return self.sampled_at is None or self.now - self.sampled_at > STALE

    @property
    def troubled(self) -> list[QueueLine]:
        """Those that need a person."""
        return [each for each in self.lines if each.standing in _TROUBLED]


_TROUBLED: Final = (QueueStatus.PROBLEM, QueueStatus.ABANDONED, QueueStatus.HELD)


def queues_of(user: object, *, now: datetime, sparks: bool = True) -> Queues:
    """Every queue that ``user`` sees; those of the platform for who sees everything.

    Four queries, however many queues.
    """
    rows = list(QueueState.objects.visible_to(user).select_related("project"))
    found = rates([IN, OUT], projects=None, now=now)
    curves = _sparks(rows, now) if sparks else {}
    lines = [_line(row, found, curves, now) for row in rows]
    lines.sort(key=_order)
    return Queues(lines, max((row.at for row in rows), default=None), now)


def _order(line: QueueLine) -> tuple[int, int, str, str]:
    row = line.row
    project = "" if row.project is None else row.project.name
    return _WORST_FIRST[line.standing], -(row.waiting or 0), project, row.name


def _line(
    row: QueueState,
    found: FoundRates,
    curves: dict[SeriesKey, list[float | None]],
    now: datetime,
) -> QueueLine:
    flows = [found.by_key.get(SeriesKey(name, row.project_id, row.name)) for name in (IN, OUT)]
    counted = row.in_total is not None or row.out_total is not None
    # What is counted and did not come or go is 0; what nobody counts is unknown.
    none = found.nothing[MINUTE] if counted else None
    came, went = (none if flow is None else flow[MINUTE] for flow in flows)
    waiting = row.waiting
    drained = lag = None
    if waiting is not None:
        lag = 0.0 if waiting == 0 else waiting / went if went else None
    if waiting is not None and went is not None:
        left = went - (came or 0.0)
        drained = 0.0 if waiting == 0 else waiting / left if left > 0 else None
    return QueueLine(
        row=row,
        standing=_standing(row, came, went, now),
        in_per_second=came,
        out_per_second=went,
        lag_seconds=lag if row.oldest_seconds is None else row.oldest_seconds,
        drained_seconds=drained,
        spark=curves.get(SeriesKey(READY, row.project_id, row.name), []),
    )


def _standing(
    row: QueueState, came: float | None, went: float | None, now: datetime
) -> QueueStatus:
    if row.problem:
        return QueueStatus.PROBLEM
    if now - row.at > STALE or row.waiting is None:
        return QueueStatus.UNKNOWN
    if row.waiting == 0:
        return QueueStatus.BUSY if row.taken else QueueStatus.EMPTY
    if row.name == DEAD_QUEUE and row.project_id is None:
        return QueueStatus.HELD
    # Who reads what we hand to others is not ours to know.
    if row.readers == 0 and row.way != Way.OUT:
        return QueueStatus.ABANDONED
    return QueueStatus.BEHIND if _is_behind(row.waiting, came, went) else QueueStatus.BUSY


def _is_behind(waiting: int, came: float | None, went: float | None) -> bool:
    if came is None or went is None:
        return False
    if went == 0:
        # What has just come may lie there for a moment.
        return came == 0 or waiting > GROWING_SECONDS * came
    lag = waiting / went
    return lag > SLOW_SECONDS or (came > went and lag > GROWING_SECONDS)


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
    found: dict[SeriesKey, list[float | None]] = {}
    for project, label, second, value, count in samples.values_list(
        "series__project_id", "series__label", "second", "value", "count"
    ):
        line = found.setdefault(SeriesKey(READY, project, label), [None] * SPARK_MINUTES)
        at = (second - begin) // MINUTE
        if count and at < SPARK_MINUTES:
            line[at] = value / count
    return found
