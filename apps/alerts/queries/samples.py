"""Stored samples of the series that rules watch."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from apps.alerts.engine.judging import Line, step_of, window_of
from apps.alerts.engine.rules import Scoped
from apps.queuestats.models import Sample, Series, SeriesKind
from apps.queuestats.queries.series import OBSERVED

# Written with every sampling of gauges: in the seconds without it nobody looked.
SAMPLED: Final = "monitor.sampled"
# An open incident whose series has had no sample for so long is about something that is gone.
GONE_SECONDS: Final = 600
IDS_A_STATEMENT: Final = 500

# (name, project, label)
SeriesKey = tuple[str, int | None, str]


@dataclass(frozen=True, slots=True)
class Watched:
    """One series with its samples."""

    project: int | None
    label: str
    line: Line


@dataclass(frozen=True, slots=True)
class Samples:
    """All series of the names that were asked for, with the times in which anybody looked."""

    step: int
    by_name: Mapping[str, list[Watched]]
    # In which seconds gauges were sampled, and in which reports of sums were heard.
    sampled: list[int] = field(default_factory=list)
    heard: list[int] = field(default_factory=list)

    def times_of(self, line: Line) -> list[int]:
        """In which seconds a series of this kind could have had a sample."""
        return self.heard if line.is_sum else self.sampled


def read_samples(names: Collection[str], *, window: float, now: datetime) -> Samples:
    """The samples of the last ``window`` seconds, as fine as ``step_of`` says.

    ``now`` is the end: what was written later is left out.
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
    found: dict[str, list[Watched]] = {name: [] for name in names}
    when: dict[str, list[int]] = {}
    for pk, (name, project, label, is_sum) in series.items():
        times, values = points[pk]
        if name in known and project is None:
            when[name] = times
        if name in found:
            found[name].append(Watched(project, label, Line(is_sum, step, times, values)))
    return Samples(step, found, when.get(SAMPLED, []), when.get(OBSERVED.name, []))


def with_samples(scoped: Sequence[Scoped], now: datetime) -> Iterator[tuple[Scoped, Samples]]:
    """Each rule with the samples of its series; those of one length are read at once."""
    by_step: dict[int, list[Scoped]] = defaultdict(list)
    for each in scoped:
        by_step[step_of(window_of(each.rule))].append(each)
    for some in by_step.values():
        window = max(window_of(each.rule) for each in some)
        samples = read_samples({each.rule.series for each in some}, window=window, now=now)
        for each in some:
            yield each, samples


def gone_of(asked: Collection[SeriesKey], *, now: datetime) -> set[SeriesKey]:
    """Those that were not sampled in the last minutes, while others were. Two queries at most."""
    if not asked:
        return set()
    since = int(now.timestamp()) - GONE_SECONDS
    rows = Sample.objects.filter(step=60, second__gte=since)
    minutes = rows.filter(series__name=SAMPLED, series__project=None).count()
    if minutes * 60 < GONE_SECONDS * 0.8:
        return set()
    names = {name for name, _project, _label in asked}
    there = rows.filter(series__name__in=names).order_by()
    found = there.values_list("series__name", "series__project_id", "series__label").distinct()
    return set(asked) - set(found)


def _rows(ids: list[int], step: int, begin: int, end: int) -> Iterator[tuple[int, int, float, int]]:
    for start in range(0, len(ids), IDS_A_STATEMENT):
        some = ids[start : start + IDS_A_STATEMENT]
        yield from (
            Sample.objects.filter(series_id__in=some, step=step, second__gte=begin, second__lt=end)
            .order_by("series_id", "second")
            .values_list("series_id", "second", "value", "count")
        )
