"""What a rule would have found: asked before it is saved, and nothing is changed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, cast

from apps.alerts.engine.checking import rule_problems
from apps.alerts.engine.events import (
    ConditionSource,
    EventSource,
    Fact,
    Happening,
    More,
    NotKnown,
    find_source,
)
from apps.alerts.engine.judging import Verdict, has_recovered, judge, window_of
from apps.alerts.engine.reading import rule_of
from apps.alerts.engine.rules import Rule, Rulebook, Scoped
from apps.alerts.errors import BadRule
from apps.alerts.queries.samples import Samples, Watched, read_samples
from apps.alerts.services.lasting import begun, key_of

DAY: Final = 86_400
STEP: Final = 60
# More series, or more findings, than anybody looks through.
MOST_SERIES: Final = 50
MOST_FOUND: Final = 200


@dataclass(frozen=True, slots=True)
class WouldFind:
    """One incident that there would have been. ``ended_at`` None: it would be open now."""

    project: int | None
    key: str
    began_at: datetime
    ended_at: datetime | None
    times: int = 1
    value: float | None = None
    facts: Mapping[str, Fact] | None = None


@dataclass(frozen=True, slots=True)
class Preview:
    """``watched``: how many series, or events, the rule looks at. ``now_only``: of a condition
    nobody keeps what was so earlier. ``more``: not all of it is shown."""

    found: tuple[WouldFind, ...]
    watched: int
    since: datetime
    until: datetime
    now_only: bool = False
    more: bool = False


def preview(*, rule: Rule, project_id: int | None, now: datetime, seconds: int = DAY) -> Preview:
    """What ``rule`` would have found in the last ``seconds``, minute by minute.

    ``project_id``: of which project it would be; None: of the platform, which watches all.
    """
    scoped = Scoped(rule, Rulebook(), project=project_id)
    begin = now - timedelta(seconds=seconds)
    if rule.series:
        found, watched = _of_series(scoped, begin, now)
    else:
        source = find_source(rule.event)
        if source is not None and hasattr(source, "since"):
            found, watched = _of_events(scoped, cast("EventSource", source), begin, now)
        elif source is not None:
            found, watched = _of_condition(scoped, source, now)
        else:
            found, watched = [], 0
    found.sort(key=lambda each: each.began_at, reverse=True)
    now_only = not rule.series and hasattr(find_source(rule.event), "now")
    return Preview(
        found=tuple(found[:MOST_FOUND]),
        watched=watched,
        since=now if now_only else begin,
        until=now,
        now_only=now_only,
        more=len(found) > MOST_FOUND or (bool(rule.series) and watched > MOST_SERIES),
    )


def rule_from(entry: object, known_quiet: Iterable[str] = ()) -> Rule:
    """The rule of an entry as a configuration has it. Raises ``BadRule``."""
    problems = [each for each in rule_problems(entry, known_quiet) if not each.warning]
    if problems:
        raise BadRule(fields={"rule": [str(each) for each in problems[:100]]})
    return rule_of(cast("Mapping[str, Any]", entry))


# --- series ------------------------------------------------------------------------------------


def _of_series(scoped: Scoped, begin: datetime, now: datetime) -> tuple[list[WouldFind], int]:
    rule = scoped.rule
    window = (now - begin).total_seconds() + window_of(rule)
    samples = read_samples({rule.series}, window=max(window, DAY), now=now)
    mine = [
        each
        for each in samples.by_name[rule.series]
        if scoped.holds_for(each.project) and rule.matches_label(each.label)
    ]
    found: list[WouldFind] = []
    for watched in mine[:MOST_SERIES]:
        found += _spans(rule, watched, samples, begin, now)
    return found, len(mine)


def _spans(
    rule: Rule, watched: Watched, samples: Samples, begin: datetime, now: datetime
) -> Iterator[WouldFind]:
    """From each opening to its recovery."""
    times = samples.times_of(watched.line)
    step = max(STEP, samples.step)
    # At the ends of minutes: a minute that is under way is no sample yet.
    moment = int(begin.timestamp()) // step * step + step
    opened: float | None = None
    worst: float | None = None
    while moment <= now.timestamp():
        judged = judge(rule, watched.line, times, moment)
        if judged.verdict is Verdict.FIRING:
            opened = moment if opened is None else opened
            worst = _worse(rule, worst, judged.value)
        elif opened is not None and has_recovered(rule, judged, moment):
            yield _would(watched, opened, moment, worst)
            opened = worst = None
        moment += step
    if opened is not None:
        yield _would(watched, opened, None, worst)


def _would(watched: Watched, opened: float, ended: float | None, value: float | None) -> WouldFind:
    return WouldFind(
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
    scoped: Scoped, source: EventSource, begin: datetime, now: datetime
) -> tuple[list[WouldFind], int]:
    when = scoped.rule.when
    window = timedelta(seconds=when.in_seconds)
    groups: dict[tuple[int | None, str], dict[str, Happening]] = {}
    for each in source.since(begin - window):
        if each.at <= now and _watches(scoped, each):
            groups.setdefault((each.project, each.key), {})[each.id] = each
    found = []
    for same in groups.values():
        events = sorted(same.values(), key=lambda each: (each.at, each.id))
        opened = [
            each
            for place, each in enumerate(events)
            if each.at >= begin
            and sum(other.at > each.at - window for other in events[: place + 1]) >= when.times
        ]
        if when.times <= 1:
            opened = [each for each in events if each.at >= begin]
        if opened:
            found.append(_of_happenings(opened[0], [e for e in events if e.at >= opened[0].at]))
    return found, sum(len(same) for same in groups.values())


def _of_happenings(first: Happening, since_then: list[Happening]) -> WouldFind:
    last = since_then[-1]
    return WouldFind(
        project=first.project,
        key=first.key,
        began_at=first.at,
        ended_at=last.at,
        times=len(since_then),
        facts=last.facts,
    )


def _of_condition(
    scoped: Scoped, source: ConditionSource, now: datetime
) -> tuple[list[WouldFind], int]:
    listed: list[Happening] = []
    try:
        listed.extend(each for each in source.now(now) if _watches(scoped, each))
    except NotKnown:
        return [], 0
    except More:
        # More than anybody looks through is there already.
        pass
    patience = scoped.rule.when.for_seconds
    since = begun({source.name: listed}, now=now)
    found = [
        WouldFind(each.project, each.key, at, None, facts=each.facts)
        for each in listed
        for at in [since[key_of(source.name, each)]]
        if (now - at).total_seconds() >= patience
    ]
    return found, len(listed)


def _watches(scoped: Scoped, happening: Happening) -> bool:
    return scoped.holds_for(happening.project) and scoped.rule.matches_facts(happening.facts)
