"""One look at everything that rules watch and that lasts: series and conditions.

Each change of an incident is a transaction of its own, begun by ``hold``, which fails in a monitor
that is no longer the one that evaluates. What was found is not kept anywhere else, so one that is
killed between two of them leaves nothing half done: the next look finds the same.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final, cast

from django.db import transaction

from apps.alerts.engine.events import ConditionSource, EventSource, Happening, find_source
from apps.alerts.engine.judging import Judged, Verdict, has_recovered, judge
from apps.alerts.engine.rules import MOST_OPEN, Scoped
from apps.alerts.models import Incident
from apps.alerts.queries.samples import Watched, gone_of, with_samples
from apps.alerts.services.asking import Asker
from apps.alerts.services.incidents import (
    MAX_KEY,
    Finding,
    follow_up,
    open_or_count,
    recover,
    still_so,
)
from apps.alerts.services.lasting import key_of, note_lasting
from apps.alerts.states import Ending
from yardkit import failpoints

logger = logging.getLogger(__name__)

# So long a condition must not be listed to be over: one look may fall into a moment of change.
SETTLED: Final = timedelta(seconds=30)

# Fails when this process is no longer the one that evaluates; called inside each transaction.
Hold = Callable[[], None]
# (project, rule, key): of which there is one open incident at most.
IncidentKey = tuple[int | None, str, str]
# (project, rule)
RuleOf = tuple[int | None, str]


class Rules:
    """Every rule that holds now, found by name and project."""

    def __init__(self, scoped: Iterable[Scoped]) -> None:
        self.all = tuple(scoped)
        self._by_name: dict[str, list[Scoped]] = defaultdict(list)
        for each in self.all:
            self._by_name[each.rule.name].append(each)

    def find(self, name: str, project: int | None) -> Scoped | None:
        """The rule of this name for what belongs to ``project``."""
        rules = self._by_name.get(name, ())
        return next((each for each in rules if each.holds_for(project)), None)

    def of_series(self) -> list[Scoped]:
        """Those that watch a series."""
        return [each for each in self.all if each.rule.series]

    def of_sources(self) -> Iterator[tuple[Scoped, EventSource | ConditionSource]]:
        """Those that watch an event or a condition that is known here."""
        for each in self.all:
            source = find_source(each.rule.event) if each.rule.event else None
            if source is not None:
                yield each, source


@dataclass(slots=True)
class Look:
    """What one look has found. ``firing``: what is in trouble; ``well``: what surely is not."""

    firing: dict[IncidentKey, tuple[Scoped, Finding]] = field(default_factory=dict)
    well: dict[IncidentKey, Judged] = field(default_factory=dict)
    # Conditions that are so, and not yet for long enough to open an incident.
    pending: dict[IncidentKey, tuple[Scoped, Finding]] = field(default_factory=dict)
    # Rules that could be asked: of the others nothing is known now.
    asked: set[tuple[str, int | None]] = field(default_factory=set)


class Evaluator:
    """Looks at series and conditions, and follows up on what is open."""

    def __init__(self, asker: Asker) -> None:
        self._asker = asker
        self._flooded: set[RuleOf] = set()

    def evaluate(self, rules: Rules, *, now: datetime, hold: Hold) -> int:
        """One look; how many incidents have changed.

        Raises ``LeaseLost`` by ``hold``, and ``DatabaseError``.
        """
        look = Look()
        self.look_at_series(rules, look, now)
        self.look_at_conditions(rules, look, now, hold)
        open_ones = {_key_of(row): row for row in Incident.objects.open()}
        changed = self._open_new(look, open_ones, now, hold)
        self._refresh(look, open_ones, now, hold)
        gone = self._gone(rules, look, open_ones, now)
        for incident in open_ones.values():
            changed += self._end_or_follow(incident, rules, look, gone, now, hold)
        return changed

    def _refresh(
        self, look: Look, open_ones: Mapping[IncidentKey, Incident], now: datetime, hold: Hold
    ) -> None:
        """Write down of what is open that it goes on, with what is to be told of it now."""
        going_on = []
        for key, incident in open_ones.items():
            scoped, finding = look.firing.get(key) or look.pending.get(key) or (None, None)
            if scoped is not None and finding and incident.source == scoped.rule.source:
                going_on.append((incident, finding))
        if going_on:
            still_so(going_on, now=now, hold=hold)

    def _gone(
        self,
        rules: Rules,
        look: Look,
        open_ones: Mapping[IncidentKey, Incident],
        now: datetime,
    ) -> set[IncidentKey]:
        """Of what is open, the series that are no longer measured."""
        asked: dict[tuple[str, int | None, str], IncidentKey] = {}
        for key, incident in open_ones.items():
            scoped = rules.find(incident.rule, incident.project_id)
            if scoped is None or not scoped.rule.series or key in look.firing or key in look.well:
                continue
            if scoped.rule.when.absent_seconds is None:
                asked[scoped.rule.series, incident.project_id, incident.key] = key
        return {asked[each] for each in gone_of(asked, now=now)}

    def look_at_series(self, rules: Rules, look: Look, now: datetime) -> None:
        """Judge every series that a rule watches."""
        for scoped, samples in with_samples(rules.of_series(), now):
            rule = scoped.rule
            for watched in samples.by_name[rule.series]:
                if not (scoped.holds_for(watched.project) and rule.matches_label(watched.label)):
                    continue
                times = samples.times_of(watched.line)
                judged = judge(rule, watched.line, times, now.timestamp())
                key = (watched.project, rule.name, watched.label)
                if judged.verdict is Verdict.FIRING:
                    look.firing[key] = (scoped, finding_of(scoped, watched, judged, now))
                elif has_recovered(rule, judged, now.timestamp()):
                    look.well[key] = judged

    def look_at_conditions(self, rules: Rules, look: Look, now: datetime, hold: Hold) -> None:
        """Ask each source of conditions once."""
        asked: dict[str, list[Happening] | None] = {}
        watching: list[tuple[Scoped, str]] = []
        for scoped, source in rules.of_sources():
            if not hasattr(source, "now"):
                continue
            if source.name not in asked:
                lasting = cast("ConditionSource", source)
                asked[source.name] = self._asker.ask(source.name, partial(lasting.now, now))
            if asked[source.name] is not None:
                watching.append((scoped, source.name))
        patient = {name for scoped, name in watching if scoped.rule.when.for_seconds}
        since = note_lasting({name: asked[name] or () for name in patient}, now=now, hold=hold)
        for scoped, name in watching:
            rule = scoped.rule
            look.asked.add((rule.name, scoped.project))
            for each in asked[name] or ():
                if not scoped.holds_for(each.project) or not rule.matches_facts(each.facts):
                    continue
                begun = since.get(key_of(name, each), each.at)
                fires = (now - begun).total_seconds() >= rule.when.for_seconds
                found = look.firing if fires else look.pending
                key = (each.project, rule.name, each.key[:MAX_KEY])
                found[key] = (scoped, replace(finding_of_happening(each), at=begun))

    def _open_new(
        self,
        look: Look,
        open_ones: Mapping[IncidentKey, Incident],
        now: datetime,
        hold: Hold,
    ) -> int:
        counts: dict[RuleOf, int] = defaultdict(int)
        for project, name, _key in open_ones:
            counts[project, name] += 1
        opened = 0
        for key, (scoped, finding) in look.firing.items():
            if key in open_ones:
                continue
            of = key[:2]
            if counts[of] >= MOST_OPEN:
                self._flood(of)
                continue
            with transaction.atomic():
                hold()
                incident = open_or_count(scoped=scoped, finding=finding, now=now, lasting=True)
            failpoints.hit("alerts.after_open")
            if incident.is_open:
                counts[of] += 1
                opened += 1
        self._flooded &= {of for of, count in counts.items() if count >= MOST_OPEN}
        return opened

    def _flood(self, of: RuleOf) -> None:
        if of not in self._flooded:
            self._flooded.add(of)
            warn_of_flood(*of)

    def _end_or_follow(
        self,
        incident: Incident,
        rules: Rules,
        look: Look,
        gone: set[IncidentKey],
        now: datetime,
        hold: Hold,
    ) -> int:
        scoped = rules.find(incident.rule, incident.project_id)
        if scoped is None or scoped.rule.source != incident.source:
            why: Ending | None = Ending.RULE_GONE
            scoped = None
        else:
            why = self._ending(incident, scoped, look, gone, now)
        if why is None:
            if scoped is not None and self._is_missed(incident, scoped, look):
                # It may be over in a moment: nobody is told that it goes on.
                return 0
            return self._follow(incident, scoped, now, hold)
        judged = look.well.get(_key_of(incident))
        with transaction.atomic():
            hold()
            ended = recover(
                incident=incident,
                why=why,
                now=now,
                scoped=scoped,
                value=judged.value if judged is not None else None,
            )
        failpoints.hit("alerts.after_recover")
        return int(ended)

    def _ending(
        self,
        incident: Incident,
        scoped: Scoped,
        look: Look,
        gone: set[IncidentKey],
        now: datetime,
    ) -> Ending | None:
        """Why this incident is over; None: it is not, or nobody knows."""
        key = _key_of(incident)
        rule = scoped.rule
        if key in look.firing or key in look.pending:
            return None
        if rule.series:
            if not rule.matches_label(incident.key):
                return Ending.RULE_GONE
            if key in look.well:
                return Ending.WELL
            return Ending.GONE if key in gone else None
        if not self._is_missed(incident, scoped, look) or now - incident.seen_at < SETTLED:
            return None
        return Ending.WELL

    def _is_missed(self, incident: Incident, scoped: Scoped, look: Look) -> bool:
        """Whether it is a condition that its source would have listed at this look, and has not."""
        key, rule = _key_of(incident), scoped.rule
        if not rule.event or key in look.firing or key in look.pending:
            return False
        # Events are never asked for here; what is cut may be among those that were not told.
        return (rule.name, scoped.project) in look.asked and rule.event not in self._asker.cut

    def _follow(self, incident: Incident, scoped: Scoped | None, now: datetime, hold: Hold) -> int:
        if scoped is None or not may_be_due(incident, scoped, now):
            return 0
        with transaction.atomic():
            hold()
            told = follow_up(incident=incident, scoped=scoped, now=now)
        failpoints.hit("alerts.after_follow_up")
        return len(told)


def warn_of_flood(project: int | None, rule: str) -> None:
    """Say that a rule has found more than anybody reads."""
    where = "the platform" if project is None else f"project {project}"
    text = "rule %r has %d open incidents of %s: no more are opened"
    logger.warning(text, rule, MOST_OPEN, where)


def may_be_due(incident: Incident, scoped: Scoped, now: datetime) -> bool:
    """Whether something may have to be told of what is open: asked before a row is locked."""
    if incident.acknowledged_at is not None:
        return False
    if incident.snoozed_until is not None:
        return incident.snoozed_until <= now
    if incident.told_at is None and scoped.rule.tell:
        # Its rule was muted.
        return True
    open_for = (now - incident.opened_at).total_seconds()
    steps = scoped.rule.escalate[incident.escalated :]
    if steps and open_for >= steps[0].after_seconds:
        return True
    last = incident.told_at or incident.opened_at
    every = scoped.rule.repeat_seconds
    return bool(every) and (now - last).total_seconds() >= every


def finding_of(scoped: Scoped, watched: Watched, judged: Judged, now: datetime) -> Finding:
    """What is told of a series in trouble."""
    since = judged.since
    return Finding(
        project=watched.project,
        key=watched.label,
        at=datetime.fromtimestamp(since, UTC) if since is not None else now,
        facts={"series": scoped.rule.series, "label": watched.label},
        value=judged.value,
    )


def finding_of_happening(happening: Happening, times: int = 1) -> Finding:
    """What is told of something that happened, or is so."""
    return Finding(
        project=happening.project,
        key=happening.key,
        at=happening.at,
        facts=happening.facts,
        address=happening.address,
        times=times,
    )


def _key_of(incident: Incident) -> IncidentKey:
    return incident.project_id, incident.rule, incident.key
