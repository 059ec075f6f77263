"""Preview of the incidents that a rule would have opened; changes nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, cast

from apps.alerts.engine.events import (
    ConditionSource,
    EventSource,
    Fact,
    Occurrence,
    StateUnknown,
    Truncated,
    find_source,
)
from apps.alerts.engine.rule_parser import rule_of
from apps.alerts.engine.rules import Rule, Rulebook, ScopedRule
from apps.alerts.engine.thresholds import SeriesState, evaluate, has_recovered, window_of
from apps.alerts.engine.validation import rule_problems
from apps.alerts.errors import BadRule
from apps.alerts.queries.samples import Samples, WatchedSeries, read_samples
from apps.alerts.services.condition_starts import key_of, starts_of

DAY: Final = 86_400
STEP: Final = 60
# Upper bounds of what the preview shows.
MOST_SERIES: Final = 50
MOST_FOUND: Final = 200


@dataclass(frozen=True, slots=True)
class PreviewIncident:
    """Incident that the rule would have opened. ``ended_at`` None: it would still be open."""

    project: int | None
    key: str
    began_at: datetime
    ended_at: datetime | None
    times: int = 1
    value: float | None = None
    facts: Mapping[str, Fact] | None = None


@dataclass(frozen=True, slots=True)
class Preview:
    """Preview of a rule. ``watched`` counts its series or events.

    ``now_only``: conditions have no history. ``more``: the result is truncated.
    """

    found: tuple[PreviewIncident, ...]
    watched: int
    since: datetime
    until: datetime
    now_only: bool = False
    more: bool = False


def preview(*, rule: Rule, project_id: int | None, now: datetime, seconds: int = DAY) -> Preview:
    """Return the incidents that ``rule`` would have opened in the last ``seconds``, in steps of a
    minute.

    ``project_id`` None: a platform rule, which covers all projects.
    """
    scoped = ScopedRule(rule, Rulebook(), project=project_id)
    begin = now - timedelta(seconds=seconds)
    if rule.series:
        incidents, watched = _of_series(scoped, begin, now)
    else:
        source = find_source(rule.event)
        if source is not None and hasattr(source, "since"):
            incidents, watched = _of_events(scoped, cast("EventSource", source), begin, now)
        elif source is not None:
            incidents, watched = _of_condition(scoped, source, now)
        else:
            incidents, watched = [], 0
    incidents.sort(key=lambda each: each.began_at, reverse=True)
    now_only = not rule.series and hasattr(find_source(rule.event), "now")
    return Preview(
        found=tuple(incidents[:MOST_FOUND]),
        watched=watched,
        since=now if now_only else begin,
        until=now,
        now_only=now_only,
        more=len(incidents) > MOST_FOUND or (bool(rule.series) and watched > MOST_SERIES),
    )


def rule_from(entry: object, known_quiet: Iterable[str] = ()) -> Rule:
    """Return the rule of a configuration entry. Raises ``BadRule``."""
    problems = [problem for problem in rule_problems(entry, known_quiet) if not problem.warning]
    if problems:
        raise BadRule(fields={"rule": [str(problem) for problem in problems[:100]]})
    return rule_of(cast("Mapping[str, Any]", entry))


# --- series ------------------------------------------------------------------------------------


def _of_series(
    scoped: ScopedRule, begin: datetime, now: datetime
) -> tuple[list[PreviewIncident], int]:
    rule = scoped.rule
    window = (now - begin).total_seconds() + window_of(rule)
    samples = read_samples({rule.series}, window=max(window, DAY), now=now)
    mine = [
        series
        for series in samples.by_name[rule.series]
        if scoped.holds_for(series.project) and rule.matches_label(series.label)
    ]
    incidents: list[PreviewIncident] = []
    for watched in mine[:MOST_SERIES]:
        incidents += _spans(rule, watched, samples, begin, now)
    return incidents, len(mine)


def _spans(
    rule: Rule, watched: WatchedSeries, samples: Samples, begin: datetime, now: datetime
) -> Iterator[PreviewIncident]:
    """Yield one incident from each firing to its recovery."""
    times = samples.times_of(watched.line)
    step = max(STEP, samples.step)
    # Evaluated at full minutes: the current minute has no complete sample.
    moment = int(begin.timestamp()) // step * step + step
    opened: float | None = None
    worst: float | None = None
    while moment <= now.timestamp():
        evaluation = evaluate(rule, watched.line, times, moment)
        if evaluation.state is SeriesState.FIRING:
            opened = moment if opened is None else opened
            worst = _worse(rule, worst, evaluation.value)
        elif opened is not None and has_recovered(rule, evaluation, moment):
            yield _would(watched, opened, moment, worst)
            opened = worst = None
        moment += step
    if opened is not None:
        yield _would(watched, opened, None, worst)


def _would(
    watched: WatchedSeries, opened: float, ended: float | None, value: float | None
) -> PreviewIncident:
    return PreviewIncident(
        project=watched.project,
        key=watched.label,
        began_at=datetime.fromtimestamp(opened, UTC),
        ended_at=None if ended is None else datetime.fromtimestamp(ended, UTC),
        value=value,
    )


def _worse(rule: Rule, one: float | None, other: float | None) -> float | None:
    if one is None or other is None:
        return other if one is None else one
    falls = rule.when.below is not None or rule.when.falls_by is not None
    return min(one, other) if falls else max(one, other)


# --- events and conditions ---------------------------------------------------------------------


def _of_events(
    scoped: ScopedRule, source: EventSource, begin: datetime, now: datetime
) -> tuple[list[PreviewIncident], int]:
    when = scoped.rule.when
    window = timedelta(seconds=when.in_seconds)
    groups: dict[tuple[int | None, str], dict[str, Occurrence]] = {}
    for occurrence in source.since(begin - window):
        if occurrence.at <= now and _watches(scoped, occurrence):
            groups.setdefault((occurrence.project, occurrence.key), {})[occurrence.id] = occurrence
    incidents = []
    for same in groups.values():
        events = sorted(same.values(), key=lambda each: (each.at, each.id))
        opened = [
            occurrence
            for place, occurrence in enumerate(events)
            if occurrence.at >= begin
            and sum(other.at > occurrence.at - window for other in events[: place + 1])
            >= when.times
        ]
        if when.times <= 1:
            opened = [event for event in events if event.at >= begin]
        if opened:
            incidents.append(_of_happenings(opened[0], [e for e in events if e.at >= opened[0].at]))
    return incidents, sum(len(same) for same in groups.values())


def _of_happenings(first: Occurrence, since_then: list[Occurrence]) -> PreviewIncident:
    last = since_then[-1]
    return PreviewIncident(
        project=first.project,
        key=first.key,
        began_at=first.at,
        ended_at=last.at,
        times=len(since_then),
        facts=last.facts,
    )


def _of_condition(
    scoped: ScopedRule, source: ConditionSource, now: datetime
) -> tuple[list[PreviewIncident], int]:
    listed: list[Occurrence] = []
    try:
        listed.extend(occurrence for occurrence in source.now(now) if _watches(scoped, occurrence))
    except StateUnknown:
        return [], 0
    except Truncated:
        # The listed part already exceeds what the preview shows.
        pass
    patience = scoped.rule.when.for_seconds
    since = starts_of({source.name: listed}, now=now)
    incidents = [
        PreviewIncident(occurrence.project, occurrence.key, at, None, facts=occurrence.facts)
        for occurrence in listed
        for at in [since[key_of(source.name, occurrence)]]
        if (now - at).total_seconds() >= patience
    ]
    return incidents, len(listed)


def _watches(scoped: ScopedRule, happening: Occurrence) -> bool:
    return scoped.holds_for(happening.project) and scoped.rule.matches_facts(happening.facts)
