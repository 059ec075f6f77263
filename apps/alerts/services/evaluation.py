"""Evaluation of rules over series and conditions in one pass.

Each change of an incident is its own transaction, started by ``hold``, which fails once this
process has lost the lease. Nothing else is stored, so a pass that is killed between two changes
needs no repair: the next pass computes the same result.
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

from apps.alerts.engine.events import ConditionSource, EventSource, Occurrence, find_source
from apps.alerts.engine.rules import MOST_OPEN, ScopedRule
from apps.alerts.engine.thresholds import Evaluation, SeriesState, evaluate, has_recovered
from apps.alerts.models import Incident
from apps.alerts.queries.samples import WatchedSeries, gone_of, with_samples
from apps.alerts.services.condition_starts import key_of, record_starts
from apps.alerts.services.incidents import (
    MAX_KEY,
    Detection,
    follow_up,
    open_or_count,
    recover,
    refresh_open,
)
from apps.alerts.services.source_reader import SourceReader
from apps.alerts.states import RecoveryReason
from yardkit import failpoints

logger = logging.getLogger(__name__)

# A condition must be absent this long before its incident recovers: one pass may read a state in
# transition.
SETTLED: Final = timedelta(seconds=30)

# Raises LeaseLost if this process no longer leads; called in every transaction.
Hold = Callable[[], None]
# (project, rule, key): identifies at most one open incident.
IncidentKey = tuple[int | None, str, str]
# (project, rule)
RuleOf = tuple[int | None, str]


class Rules:
    """Active rules, indexed by name and project."""

    def __init__(self, scoped: Iterable[ScopedRule]) -> None:
        self.all = tuple(scoped)
        self._by_name: dict[str, list[ScopedRule]] = defaultdict(list)
        for rule in self.all:
            self._by_name[rule.rule.name].append(rule)

    def find(self, name: str, project: int | None) -> ScopedRule | None:
        """Return the rule of this name that applies to ``project``."""
        rules = self._by_name.get(name, ())
        return next((rule for rule in rules if rule.holds_for(project)), None)

    def of_series(self) -> list[ScopedRule]:
        """Return the rules over a series."""
        return [scoped for scoped in self.all if scoped.rule.series]

    def of_sources(self) -> Iterator[tuple[ScopedRule, EventSource | ConditionSource]]:
        """Yield each rule over an event or condition with its registered source."""
        for scoped in self.all:
            source = find_source(scoped.rule.event) if scoped.rule.event else None
            if source is not None:
                yield scoped, source


@dataclass(slots=True)
class PassResult:
    """Result of one pass: ``firing`` detections, and ``well`` series that have recovered."""

    firing: dict[IncidentKey, tuple[ScopedRule, Detection]] = field(default_factory=dict)
    well: dict[IncidentKey, Evaluation] = field(default_factory=dict)
    # Conditions that hold, but not yet for the rule's ``for_seconds``.
    pending: dict[IncidentKey, tuple[ScopedRule, Detection]] = field(default_factory=dict)
    # Rules whose source could be read in this pass; the state of others is unknown.
    asked: set[tuple[str, int | None]] = field(default_factory=set)


class Evaluator:
    """Evaluates series and conditions, and opens, follows up and ends incidents."""

    def __init__(self, reader: SourceReader) -> None:
        self._reader = reader
        self._flooded: set[RuleOf] = set()

    def evaluate(self, rules: Rules, *, now: datetime, hold: Hold) -> int:
        """Run one pass; return the number of changed incidents.

        Raises ``LeaseLost`` through ``hold``, and ``DatabaseError``.
        """
        look = PassResult()
        self.check_series(rules, look, now)
        self.check_conditions(rules, look, now, hold)
        open_ones = {_key_of(row): row for row in Incident.objects.open()}
        changed = self._open_new(look, open_ones, now, hold)
        self._refresh(look, open_ones, now, hold)
        gone = self._gone(rules, look, open_ones, now)
        for incident in open_ones.values():
            changed += self._end_or_follow(incident, rules, look, gone, now, hold)
        return changed

    def _refresh(
        self, look: PassResult, open_ones: Mapping[IncidentKey, Incident], now: datetime, hold: Hold
    ) -> None:
        """Store the latest value and facts of open incidents whose problem continues."""
        going_on = []
        for key, incident in open_ones.items():
            scoped, finding = look.firing.get(key) or look.pending.get(key) or (None, None)
            if scoped is not None and finding and incident.source == scoped.rule.source:
                going_on.append((incident, finding))
        if going_on:
            refresh_open(going_on, now=now, hold=hold)

    def _gone(
        self,
        rules: Rules,
        look: PassResult,
        open_ones: Mapping[IncidentKey, Incident],
        now: datetime,
    ) -> set[IncidentKey]:
        """Return the open incidents whose series is no longer sampled."""
        watched: dict[tuple[str, int | None, str], IncidentKey] = {}
        for key, incident in open_ones.items():
            scoped = rules.find(incident.rule, incident.project_id)
            if scoped is None or not scoped.rule.series or key in look.firing or key in look.well:
                continue
            if scoped.rule.when.absent_seconds is None:
                watched[scoped.rule.series, incident.project_id, incident.key] = key
        return {watched[identity] for identity in gone_of(watched, now=now)}

    def check_series(self, rules: Rules, look: PassResult, now: datetime) -> None:
        """Evaluate every series that a rule watches."""
        for scoped, samples in with_samples(rules.of_series(), now):
            rule = scoped.rule
            for watched in samples.by_name[rule.series]:
                if not (scoped.holds_for(watched.project) and rule.matches_label(watched.label)):
                    continue
                times = samples.times_of(watched.line)
                evaluation = evaluate(rule, watched.line, times, now.timestamp())
                key = (watched.project, rule.name, watched.label)
                if evaluation.state is SeriesState.FIRING:
                    look.firing[key] = (scoped, series_detection(scoped, watched, evaluation, now))
                elif has_recovered(rule, evaluation, now.timestamp()):
                    look.well[key] = evaluation

    def check_conditions(self, rules: Rules, look: PassResult, now: datetime, hold: Hold) -> None:
        """Read each condition source once and match its occurrences against the rules."""
        occurrences: dict[str, list[Occurrence] | None] = {}
        watching: list[tuple[ScopedRule, str]] = []
        for scoped, source in rules.of_sources():
            if not hasattr(source, "now"):
                continue
            if source.name not in occurrences:
                lasting = cast("ConditionSource", source)
                occurrences[source.name] = self._reader.read(source.name, partial(lasting.now, now))
            if occurrences[source.name] is not None:
                watching.append((scoped, source.name))
        patient = {name for scoped, name in watching if scoped.rule.when.for_seconds}
        since = record_starts(
            {name: occurrences[name] or () for name in patient}, now=now, hold=hold
        )
        for scoped, name in watching:
            rule = scoped.rule
            look.asked.add((rule.name, scoped.project))
            for occurrence in occurrences[name] or ():
                if not scoped.holds_for(occurrence.project) or not rule.matches_facts(
                    occurrence.facts
                ):
                    continue
                began_at = since.get(key_of(name, occurrence), occurrence.at)
                fires = (now - began_at).total_seconds() >= rule.when.for_seconds
                look_incidents = look.firing if fires else look.pending
                key = (occurrence.project, rule.name, occurrence.key[:MAX_KEY])
                look_incidents[key] = (scoped, replace(event_detection(occurrence), at=began_at))

    def _open_new(
        self, look: PassResult, open_ones: Mapping[IncidentKey, Incident], now: datetime, hold: Hold
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
            log_incident_limit(*of)

    def _end_or_follow(
        self,
        incident: Incident,
        rules: Rules,
        look: PassResult,
        gone: set[IncidentKey],
        now: datetime,
        hold: Hold,
    ) -> int:
        scoped = rules.find(incident.rule, incident.project_id)
        if scoped is None or scoped.rule.source != incident.source:
            why: RecoveryReason | None = RecoveryReason.RULE_GONE
            scoped = None
        else:
            why = self._ending(incident, scoped, look, gone, now)
        if why is None:
            if scoped is not None and self._is_missed(incident, scoped, look):
                # The condition has just disappeared and may recover soon: send no reminder.
                return 0
            return self._follow(incident, scoped, now, hold)
        evaluation = look.well.get(_key_of(incident))
        with transaction.atomic():
            hold()
            ended = recover(
                incident=incident,
                why=why,
                now=now,
                scoped=scoped,
                value=evaluation.value if evaluation is not None else None,
            )
        failpoints.hit("alerts.after_recover")
        return int(ended)

    def _ending(
        self,
        incident: Incident,
        scoped: ScopedRule,
        look: PassResult,
        gone: set[IncidentKey],
        now: datetime,
    ) -> RecoveryReason | None:
        """Return why this incident has ended; None if it continues or its state is unknown."""
        key = _key_of(incident)
        rule = scoped.rule
        if key in look.firing or key in look.pending:
            return None
        if rule.series:
            if not rule.matches_label(incident.key):
                return RecoveryReason.RULE_GONE
            if key in look.well:
                return RecoveryReason.WELL
            return RecoveryReason.GONE if key in gone else None
        if not self._is_missed(incident, scoped, look) or now - incident.seen_at < SETTLED:
            return None
        return RecoveryReason.WELL

    def _is_missed(self, incident: Incident, scoped: ScopedRule, look: PassResult) -> bool:
        """Return whether the source was fully read in this pass and did not list this condition."""
        key, rule = _key_of(incident), scoped.rule
        if not rule.event or key in look.firing or key in look.pending:
            return False
        # Events are read elsewhere; a truncated result may have left this condition out.
        return (rule.name, scoped.project) in look.asked and rule.event not in self._reader.cut

    def _follow(
        self, incident: Incident, scoped: ScopedRule | None, now: datetime, hold: Hold
    ) -> int:
        if scoped is None or not may_need_follow_up(incident, scoped, now):
            return 0
        with transaction.atomic():
            hold()
            sent = follow_up(incident=incident, scoped=scoped, now=now)
        failpoints.hit("alerts.after_follow_up")
        return len(sent)


def log_incident_limit(project: int | None, rule: str) -> None:
    """Log that a rule has reached its limit of open incidents."""
    where = "the platform" if project is None else f"project {project}"
    text = "rule %r has %d open incidents of %s: no more are opened"
    logger.warning(text, rule, MOST_OPEN, where)


def may_need_follow_up(incident: Incident, scoped: ScopedRule, now: datetime) -> bool:
    """Cheap check, before locking the row, whether an open incident needs a notification."""
    if incident.acknowledged_at is not None:
        return False
    if incident.snoozed_until is not None:
        return incident.snoozed_until <= now
    if incident.told_at is None and scoped.rule.tell:
        # The rule was muted when the incident opened.
        return True
    open_for = (now - incident.opened_at).total_seconds()
    steps = scoped.rule.escalate[incident.escalated :]
    if steps and open_for >= steps[0].after_seconds:
        return True
    last = incident.told_at or incident.opened_at
    every = scoped.rule.repeat_seconds
    return bool(every) and (now - last).total_seconds() >= every


def series_detection(
    scoped: ScopedRule, watched: WatchedSeries, evaluation: Evaluation, now: datetime
) -> Detection:
    """Return the detection for a firing series."""
    since = evaluation.since
    return Detection(
        project=watched.project,
        key=watched.label,
        at=datetime.fromtimestamp(since, UTC) if since is not None else now,
        facts={"series": scoped.rule.series, "label": watched.label},
        value=evaluation.value,
    )


def event_detection(happening: Occurrence, times: int = 1) -> Detection:
    """Return the detection for ``times`` events, or for a condition."""
    return Detection(
        project=happening.project,
        key=happening.key,
        at=happening.at,
        facts=happening.facts,
        address=happening.address,
        times=times,
    )


def _key_of(incident: Incident) -> IncidentKey:
    return incident.project_id, incident.rule, incident.key
