"""Adds readings to time series at three resolutions: second, minute and hour."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final

from apps.queuestats.models import Series
from apps.queuestats.queries.series import KEPT_SECONDS, SeriesKey
from apps.queuestats.services.series_ids import forget_series, series_ids
from apps.queuestats.services.upsert import Upsert
from yardkit.protocol import SampleKind

# More rows in one statement are not faster, and client and server hold its whole text in memory.
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
    # The cached ID of a series may be stale: its row may have been deleted since.
    only_if="EXISTS (SELECT 1 FROM queuestats_series WHERE id = {series_id})",
)
_STEPS: Final = tuple(sorted(KEPT_SECONDS))
# (series, step, second, value, count, highest)
_Row = tuple[int, int, int, float, int, float]
# (series, kind, Unix second, seconds covered, value, number of readings, highest reading)
SeriesReading = tuple[SeriesKey, SampleKind, int, int, float, int, float]


def seconds_between(since: datetime, until: datetime, longest: float) -> range:
    """Return the Unix seconds from ``since`` up to ``until``: at least one, at most ``longest``."""
    end = int(until.timestamp())
    begin = max(int(since.timestamp()), end - int(longest))
    return range(begin, end) if begin < end else range(end, end + 1)


def distribute(
    key: SeriesKey, amount: float, since: datetime, until: datetime, longest: float
) -> list[SeriesReading]:
    """Distribute an increase of a counter evenly over the seconds in which it happened.

    At most the last ``longest`` seconds before ``until`` are used. Empty when ``amount`` is not
    positive.
    """
    if amount <= 0:
        return []
    seconds = seconds_between(since, until, longest)
    share = amount / len(seconds)
    return [(key, SampleKind.SUM, second, 1, share, 1, 0.0) for second in seconds]


def add_readings(readings: Iterable[SeriesReading]) -> None:
    """Add readings at every resolution; call it inside a transaction.

    Rows are written in the order of their keys, so that concurrent writers do not deadlock.
    Readings of unknown projects are dropped.
    """
    readings = list(readings)
    ids = series_ids({reading[0]: reading[1] for reading in readings})
    rows = _rows(readings, ids)
    if _write(rows) == len(rows):
        return
    # Cached series were deleted meanwhile: they are created again.
    existing = set(Series.objects.filter(pk__in=set(ids.values())).values_list("pk", flat=True))
    gone = {key for key, pk in ids.items() if pk not in existing}
    forget_series()
    again = [reading for reading in readings if reading[0] in gone]
    _write(_rows(again, series_ids({reading[0]: reading[1] for reading in again})))


def _rows(readings: Iterable[SeriesReading], ids: dict[SeriesKey, int]) -> list[_Row]:
    """Merge readings into one row per series, resolution and period."""
    sums: dict[tuple[int, int, int], tuple[float, int, float]] = {}
    for key, _kind, second, covered_seconds, value, count, highest in readings:
        series = ids.get(key)
        if series is None:
            continue
        for step in _STEPS:
            if step < covered_seconds:
                continue
            period = series, step, second - second % step
            before = sums.get(period)
            sums[period] = (
                (value, count, highest)
                if before is None
                else (before[0] + value, before[1] + count, max(before[2], highest))
            )
    return [(*period, *numbers) for period, numbers in sorted(sums.items())]


def _write(rows: Sequence[_Row]) -> int:
    return sum(
        _SAMPLES.write(rows[start : start + ROWS_A_STATEMENT])
        for start in range(0, len(rows), ROWS_A_STATEMENT)
    )
