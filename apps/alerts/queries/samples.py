"""Stored samples of the series that rules watch."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from apps.alerts.engine.rules import ScopedRule
from apps.alerts.engine.thresholds import SampleSeries, step_of, window_of
from apps.queuestats.models import Sample, Series, SeriesKind
from apps.queuestats.queries.series import OBSERVED

# Written with every sampling of gauges; seconds without it were not observed.
SAMPLED: Final = "monitor.sampled"
# A series without a sample for this long no longer exists; its incident ends.
GONE_SECONDS: Final = 600
IDS_A_STATEMENT: Final = 500

# (name, project, label)
SeriesKey = tuple[str, int | None, str]


@dataclass(frozen=True, slots=True)
class WatchedSeries:
    """One series, identified by project and label, with its samples."""

    project: int | None
    label: str
    line: SampleSeries


@dataclass(frozen=True, slots=True)
class Samples:
    """Samples by series name, with the times that were observable."""

    step: int
    by_name: Mapping[str, list[WatchedSeries]]
    # Times at which gauges were sampled, and at which counter reports arrived.
    sampled: list[int] = field(default_factory=list)
    heard: list[int] = field(default_factory=list)

    def times_of(self, line: SampleSeries) -> list[int]:
        """Return the times at which a series of this kind could have had a sample."""
        return self.heard if line.is_sum else self.sampled


def read_samples(names: Collection[str], *, window: float, now: datetime) -> Samples:
    """Return the samples of the ``window`` seconds before ``now``, in the resolution of
    ``step_of``.

    Samples after ``now`` are left out.
    """
    step = step_of(window)
    end = int(now.timestamp()) + 1
    begin = end - int(window) - step
    known = {SAMPLED, OBSERVED.name}
    series = {
        pk: (name, project, label, kind == SeriesKind.SUM)
        for pk, name, project, label, kind in Series.objects.filter(
            name__in={*names, *known}
        ).values_list("pk", "name", "project_id", "label", "kind")
    }
    points: dict[int, tuple[list[int], list[float]]] = {pk: ([], []) for pk in series}
    for pk, second, value, count in _rows(list(series), step, begin, end):
        times, values = points[pk]
        times.append(second)
        values.append(value if series[pk][3] else value / (count or 1))
    series_by_name: dict[str, list[WatchedSeries]] = {name: [] for name in names}
    when: dict[str, list[int]] = {}
    for pk, (name, project, label, is_sum) in series.items():
        times, values = points[pk]
        if name in known and project is None:
            when[name] = times
        if name in series_by_name:
            series_by_name[name].append(
                WatchedSeries(project, label, SampleSeries(is_sum, step, times, values))
            )
    return Samples(step, series_by_name, when.get(SAMPLED, []), when.get(OBSERVED.name, []))


def with_samples(
    scoped: Sequence[ScopedRule], now: datetime
) -> Iterator[tuple[ScopedRule, Samples]]:
    """Yield each rule with the samples of its series; one read per resolution."""
    by_step: dict[int, list[ScopedRule]] = defaultdict(list)
    for rule in scoped:
        by_step[step_of(window_of(rule.rule))].append(rule)
    for some in by_step.values():
        window = max(window_of(rule.rule) for rule in some)
        samples = read_samples({rule.rule.series for rule in some}, window=window, now=now)
        for rule in some:
            yield rule, samples


def gone_of(asked: Collection[SeriesKey], *, now: datetime) -> set[SeriesKey]:
    """Return the series without recent samples although others were sampled. At most two
    queries."""
    if not asked:
        return set()
    since = int(now.timestamp()) - GONE_SECONDS
    rows = Sample.objects.filter(step=60, second__gte=since)
    minutes = rows.filter(series__name=SAMPLED, series__project=None).count()
    if minutes * 60 < GONE_SECONDS * 0.8:
        return set()
    names = {name for name, _project, _label in asked}
    there = rows.filter(series__name__in=names).order_by()
    identities = there.values_list("series__name", "series__project_id", "series__label").distinct()
    return set(asked) - set(identities)


def _rows(ids: list[int], step: int, begin: int, end: int) -> Iterator[tuple[int, int, float, int]]:
    for start in range(0, len(ids), IDS_A_STATEMENT):
        some = ids[start : start + IDS_A_STATEMENT]
        yield from (
            Sample.objects.filter(series_id__in=some, step=step, second__gte=begin, second__lt=end)
            .order_by("series_id", "second")
            .values_list("series_id", "second", "value", "count")
        )
