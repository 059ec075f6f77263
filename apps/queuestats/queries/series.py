"""Time series: rates over the last seconds, and points for charts."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from django.db.models import F, Max, Min, Q, QuerySet, Sum, Value

from apps.queuestats.models import Sample, Series, SeriesKind

MINUTE: Final = 60
HOUR: Final = 3600
DAY: Final = 24 * HOUR
# Retention in seconds of the samples of each resolution.
KEPT_SECONDS: Final = {1: HOUR, MINUTE: 7 * DAY, HOUR: 365 * DAY}
# Reports of a second have arrived when it is this old; rates use older seconds only.
SETTLED_SECONDS: Final = 2
MOST_POINTS: Final = 300
# Periods of rates (seed S4.24); forecasts use 300.
RATE_SECONDS: Final = (1, 5, 60, 300)
_STEPS: Final = (
    *(1, 2, 5, 10, 15, 30),
    *(minutes * MINUTE for minutes in (1, 2, 5, 10, 15, 30)),
    *(hours * HOUR for hours in (1, 2, 3, 6, 12, 24, 48)),
)


class SeriesKey(NamedTuple):
    """Key of a series; ``project`` is None for series of the platform."""

    name: str
    project: int | None
    label: str = ""


# Series of the seconds in which run_statistics could receive reports.
OBSERVED: Final = SeriesKey("statistics.heard", None)


@dataclass(frozen=True, slots=True)
class Point:
    """Value of a series in the period that starts at ``at``.

    For a sum it is the rate per second, for a gauge the mean, with the highest reading. None:
    unknown, because no reports could be received or the gauge was not sampled.
    """

    at: datetime
    value: float | None
    highest: float | None = None


@dataclass(frozen=True, slots=True)
class Points:
    """Points of one series, ``step`` seconds apart."""

    kind: str
    step: int
    points: list[Point]


# Rate per second by the seconds it is averaged over; None where no reports could be received.
Rates = dict[int, float | None]


def rate(
    name: str, *, project: int | None, label: str, seconds: int = 60, now: datetime
) -> float | None:
    """Return the rate per second over the last ``seconds`` complete seconds.

    None when reports could be received in none of them.
    """
    rates_found = rates([name], projects=None if project is None else [project], now=now)
    nothing = rates_found.nothing
    return rates_found.by_key.get(SeriesKey(name, project, label), nothing)[seconds]


@dataclass(frozen=True, slots=True)
class FoundRates:
    """Rates of several series.

    ``nothing`` are the rates of a series without samples: 0, or None where no reports could be
    received. ``heard_seconds``: how many of the last 300 seconds could be observed.
    """

    by_key: dict[SeriesKey, Rates]
    nothing: Rates
    heard_seconds: int
    # Age in seconds of the first sample of the last 300 seconds, by series.
    ages: dict[SeriesKey, int]
    # Mean of the last 300 seconds, by gauge.
    means: dict[SeriesKey, float]

    def of(self, name: str, project: int | None, label: str) -> Rates:
        return self.by_key.get(SeriesKey(name, project, label), self.nothing)


def rates(names: Collection[str], *, projects: Collection[int] | None, now: datetime) -> FoundRates:
    """Return the rates of all series with these names, over every period. Two queries.

    ``projects`` limits them to these projects and the platform.
    """
    series, end = _named(names, projects), _settled(now)
    return _rates(_rate_rows(series, end), series, end)


def rates_and_minutes(
    names: Collection[str],
    *,
    lines: Collection[str],
    of: Collection[int],
    count: int,
    now: datetime,
) -> tuple[FoundRates, dict[SeriesKey, list[float]]]:
    """Return ``rates`` of all projects, and rates by minute for sparklines. Two queries.

    The second value has, for the series named in ``lines`` of the projects ``of``, the rate per
    second in each of the last ``count`` complete minutes.
    """
    series, end = _named(names, None), _settled(now)
    over = end - end % MINUTE
    seen = set(of)
    drawn = [pk for pk, key in series.items() if key.name in lines and key.project in seen]
    minutes = Sample.objects.filter(
        series_id__in=drawn, step=MINUTE, second__gte=over - count * MINUTE, second__lt=over
    ).order_by()
    # Plain columns: Django converts every row of a computed one.
    unused = [F("value")] * (len(RATE_SECONDS) - 1)
    rows = minutes.values_list("step", "series_id", "second", "count", "value", *unused).union(
        _rate_rows(series, end), all=True
    )
    seconds: list[tuple[Any, ...]] = []
    totals_by_key: dict[SeriesKey, list[float]] = {}
    for row in rows:
        step, pk, second, _count, value = row[:5]
        if step != MINUTE:
            seconds.append(row)
            continue
        line = totals_by_key.setdefault(series[pk], [0.0] * count)
        line[(second - over) // MINUTE + count] = value / MINUTE
    return _rates(seconds, series, end), totals_by_key


def _settled(now: datetime) -> int:
    return int(now.timestamp()) - SETTLED_SECONDS


def _named(names: Collection[str], projects: Collection[int] | None) -> dict[int, SeriesKey]:
    # IDs instead of a join: with a join PostgreSQL scans the whole table of samples.
    wanted = Q(name__in=[*names, OBSERVED.name])
    if projects is not None:
        wanted &= Q(project_id__in=projects) | Q(project=None)
    rows = Series.objects.filter(wanted).order_by().values_list("pk", "name", "project_id", "label")
    return {pk: SeriesKey(name, project, label) for pk, name, project, label in rows}


def _rate_rows(series: Collection[int], end: int) -> QuerySet[Sample, Any]:
    """Select step (1), series, first second, number of readings, and the sum of each period."""
    begin = end - max(RATE_SECONDS)
    samples = Sample.objects.filter(series_id__in=series, step=1, second__gte=begin, second__lt=end)
    sums = {
        f"in_{seconds}": Sum("value", filter=Q(second__gte=end - seconds), default=0.0)
        for seconds in reversed(RATE_SECONDS)
    }
    rows = samples.order_by().values("series_id").annotate(first=Min("second"), **sums)
    return rows.annotate(readings=Sum("count")).values_list(
        Value(1), "series_id", "first", "readings", *sums
    )


def _rates(rows: Iterable[tuple[Any, ...]], series: dict[int, SeriesKey], end: int) -> FoundRates:
    longest = max(RATE_SECONDS)
    totals: dict[SeriesKey, dict[int, float]] = {}
    ages: dict[SeriesKey, int] = {}
    means: dict[SeriesKey, float] = {}
    for _step, pk, first, readings, *numbers in rows:
        key = series[pk]
        totals[key] = dict(zip(reversed(RATE_SECONDS), numbers, strict=True))
        ages[key] = end - first
        if readings:
            means[key] = totals[key][longest] / int(readings)
    heard = totals.pop(OBSERVED, dict.fromkeys(RATE_SECONDS, 0))
    return FoundRates(
        by_key={
            key: {
                seconds: total / seconds if total or heard[seconds] else None
                for seconds, total in sums.items()
            }
            for key, sums in totals.items()
        },
        nothing={seconds: 0.0 if heard[seconds] else None for seconds in RATE_SECONDS},
        heard_seconds=min(longest, ages.get(OBSERVED, 0)),
        ages=ages,
        means=means,
    )


def step_for(*, since: int, until: int, now: int, wanted: int = 0) -> int:
    """Return the seconds between two points: at least ``wanted``, for at most 300 points.

    The step is not finer than the samples still retained for that time.
    """
    # Samples stay until the next pruning, a little longer than their retention.
    kept = [step for step, seconds in KEPT_SECONDS.items() if since >= now - seconds - MINUTE]
    least = max(wanted, kept[0] if kept else HOUR, -(-(until - since) // MOST_POINTS))
    return next((step for step in _STEPS if step >= least), -(-least // DAY) * DAY)


def sums_between(names: Collection[str], *, since: int, until: int) -> dict[SeriesKey, float]:
    """Return the sums of series over the seconds [since, until) of the last hour. One query."""
    rows = (
        Sample.objects.filter(series__name__in=names, step=1, second__gte=since, second__lt=until)
        .order_by()
        .values_list("series__name", "series__project_id", "series__label")
        .annotate(Sum("value"))
    )
    return {SeriesKey(name, project, label): total for name, project, label, total in rows}


def points(
    name: str,
    *,
    project: int | None,
    label: str,
    since: datetime,
    until: datetime,
    step: int = 0,
    now: datetime,
) -> Points | None:
    """Return at most 300 points of a series for a chart; None if the series does not exist.

    ``step`` is increased where there would be more points, or where finer samples are deleted.
    Sums have no point for the current, incomplete period.
    """
    key = SeriesKey(name, project, label)
    return points_of([key], since=since, until=until, step=step, now=now).get(key)


def points_of(
    keys: Collection[SeriesKey], *, since: datetime, until: datetime, step: int = 0, now: datetime
) -> dict[SeriesKey, Points]:
    """Return the points of those series that exist, with one step. Two queries."""
    series = _series([*keys, OBSERVED])
    end = min(int(until.timestamp()), int(now.timestamp()) - SETTLED_SECONDS)
    begin = min(int(since.timestamp()), end)
    step = step_for(since=begin, until=end, now=int(now.timestamp()), wanted=step)
    # Aligned without the partial first step, which would be one point too many.
    begin = max(begin - begin % step, end - step * MOST_POINTS)
    begin += -begin % step
    numbers = _numbers([pk for pk, _kind in series.values()], begin, end, step)
    heard = numbers.get(series[OBSERVED][0], {}) if OBSERVED in series else {}
    series_points = {}
    for key in keys:
        if key not in series:
            continue
        pk, kind = series[key]
        last = end if kind == SeriesKind.GAUGE else end - step + 1
        own = numbers.get(pk, {})
        line = [
            _point(start, step, kind, own.get(start), start in heard)
            for start in range(begin, last, step)
        ]
        series_points[key] = Points(kind, step, line)
    return series_points


def series_of(
    *, project: int | None, names: Iterable[str] | None = None
) -> list[tuple[str, str, str]]:
    """Return (name, label, kind) of the series of a project, or of the platform."""
    rows = Series.objects.filter(_of(project)).order_by("name", "label")
    if names is not None:
        rows = rows.filter(name__in=list(names))
    return list(rows.values_list("name", "label", "kind"))


def _of(project: int | None) -> Q:
    return Q(project=None) if project is None else Q(project_id=project)


def _series(keys: Collection[SeriesKey]) -> dict[SeriesKey, tuple[int, str]]:
    """Return ID and kind of each series that exists."""
    rows = Series.objects.filter(
        name__in={key.name for key in keys}, label__in={key.label for key in keys}
    ).values_list("name", "project_id", "label", "pk", "kind")
    ids = {SeriesKey(name, project, label): (pk, kind) for name, project, label, pk, kind in rows}
    return {key: ids[key] for key in keys if key in ids}


def _numbers(
    series: Collection[int], begin: int, end: int, step: int
) -> dict[int, dict[int, tuple[float, int, float]]]:
    """Return (value, count, highest) by series and start of the period."""
    kept = max(seconds for seconds in KEPT_SECONDS if step % seconds == 0)
    rows = Sample.objects.filter(series_id__in=series, step=kept, second__gte=begin, second__lt=end)
    if step == kept:
        numbers = rows.values_list("series_id", "second", "value", "count", "highest")
    else:
        numbers = (
            rows.order_by()
            .annotate(start=F("second") - F("second") % step)
            .values_list("series_id", "start")
            .annotate(Sum("value"), Sum("count"), Max("highest"))
        )
    numbers_by_id: dict[int, dict[int, tuple[float, int, float]]] = {}
    for pk, start, value, count, highest in numbers:
        numbers_by_id.setdefault(pk, {})[start] = (value, count, highest)
    return numbers_by_id


def _point(
    start: int, step: int, kind: str, numbers: tuple[float, int, float] | None, heard: bool
) -> Point:
    at = datetime.fromtimestamp(start, UTC)
    if kind == SeriesKind.GAUGE:
        if numbers is None or not numbers[1]:
            return Point(at, None)
        return Point(at, numbers[0] / numbers[1], numbers[2])
    if numbers is not None:
        return Point(at, numbers[0] / step)
    return Point(at, 0.0 if heard else None)
