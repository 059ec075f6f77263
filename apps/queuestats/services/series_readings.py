"""Adds numbers to series, at three lengths of time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final

from apps.queuestats.models import Series
from apps.queuestats.queries.series import KEPT_SECONDS, SeriesKey
from apps.queuestats.services.series_ids import forget_series, series_ids
from apps.queuestats.services.upsert import Upsert
from yardkit.protocol import SampleKind

# Fewer statements are no quicker, and the text of one has to be held by both sides.
ROWS_A_STATEMENT: Final = 20_000
_SAMPLES: Final = Upsert(
    table="queuestats_sample",
    columns={
        "series_id": "bigint",
        "step": "smallint",
        "second": "bigint",
        "value": "float8",
        "count": "bigint",
        "highest": "float8",
    },
    key=("series_id", "step", "second"),
    # CASE, since the two databases have different names for the greater of two numbers.
    change=(
        "value = queuestats_sample.value + excluded.value,"
        " count = queuestats_sample.count + excluded.count,"
        " highest = CASE WHEN excluded.highest > queuestats_sample.highest"
        " THEN excluded.highest ELSE queuestats_sample.highest END"
    ),
    # What this process remembers of a series may be older than its end.
    only_if="EXISTS (SELECT 1 FROM queuestats_series WHERE id = {series_id})",
)
_STEPS: Final = tuple(sorted(KEPT_SECONDS))
# (series, step, second, value, count, highest)
_Row = tuple[int, int, int, float, int, float]
# Of a series: its kind, the second, how many seconds it is of, the value, how many readings they
# are, the highest of them.
SeriesReading = tuple[SeriesKey, SampleKind, int, int, float, int, float]


def seconds_between(since: datetime, until: datetime, longest: float) -> range:
    """The seconds from one moment up to another, at most ``longest`` of them; at least one."""
    end = int(until.timestamp())
    begin = max(int(since.timestamp()), end - int(longest))
    return range(begin, end) if begin < end else range(end, end + 1)


def distribute(
    key: SeriesKey, amount: float, since: datetime, until: datetime, longest: float
) -> list[SeriesReading]:
    """``amount`` of a sum that came between two moments, evenly over the seconds between them.

    Over at most ``longest`` seconds up to ``until``. Nothing where there is nothing to add.
    """
    if amount <= 0:
        return []
    seconds = seconds_between(since, until, longest)
    each = amount / len(seconds)
    return [(key, SampleKind.SUM, second, 1, each, 1, 0.0) for second in seconds]


def add_readings(readings: Iterable[SeriesReading]) -> None:
    """Add numbers at every length of time. Always in the same order; inside a transaction.

    Those of unknown projects are left out.
    """
    readings = list(readings)
    ids = series_ids({reading[0]: reading[1] for reading in readings})
    rows = _rows(readings, ids)
    if _write(rows) == len(rows):
        return
    # Somebody has deleted series that were remembered: they are made again.
    there = set(Series.objects.filter(pk__in=set(ids.values())).values_list("pk", flat=True))
    gone = {key for key, pk in ids.items() if pk not in there}
    forget_series()
    again = [reading for reading in readings if reading[0] in gone]
    _write(_rows(again, series_ids({reading[0]: reading[1] for reading in again})))


def _rows(readings: Iterable[SeriesReading], ids: dict[SeriesKey, int]) -> list[_Row]:
    """One row for each series, length and time."""
    sums: dict[tuple[int, int, int], tuple[float, int, float]] = {}
    for key, _kind, second, spread_seconds, value, count, highest in readings:
        series = ids.get(key)
        if series is None:
            continue
        for step in _STEPS:
            if step < spread_seconds:
                continue
            place = series, step, second - second % step
            was = sums.get(place)
            sums[place] = (
                (value, count, highest)
                if was is None
                else (was[0] + value, was[1] + count, max(was[2], highest))
            )
    return [(*place, *numbers) for place, numbers in sorted(sums.items())]


def _write(rows: Sequence[_Row]) -> int:
    return sum(
        _SAMPLES.write(rows[start : start + ROWS_A_STATEMENT])
        for start in range(0, len(rows), ROWS_A_STATEMENT)
    )
