"""Active alert rules and their current state."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

from apps.access.models import User
from apps.access.services import AllProjects, project_ids
from apps.alerts.engine.rule_parser import rulebook
from apps.alerts.engine.rules import Rule, Rulebook, ScopedRule, scoped_rules
from apps.alerts.engine.thresholds import SeriesState, evaluate
from apps.alerts.models import Incident, RuleMute
from apps.alerts.queries.samples import with_samples
from apps.configcenter.models import Configuration

KIND: Final = "alerts"


@dataclass(frozen=True, slots=True)
class ActiveRulebooks:
    """Active rulebooks: the platform's, and those of projects by primary key."""

    platform: Rulebook
    projects: Mapping[int, Rulebook]

    def of(self, project: int | None) -> Rulebook:
        """Return the rulebook of a project (None: the platform's); empty if it has none."""
        if project is None:
            return self.platform
        return self.projects.get(project, Rulebook())


def active_rulebooks() -> ActiveRulebooks:
    """Return the active rules of all configurations. One query."""
    rows = Configuration.objects.filter(kind=KIND, active__isnull=False).select_related("active")
    rulebooks_by_project = {
        row.project_id: rulebook(row.active.data, row.active.number)
        for row in rows
        if row.active is not None
    }
    platform = rulebooks_by_project.pop(None, Rulebook())
    return ActiveRulebooks(
        platform, {pk: book for pk, book in rulebooks_by_project.items() if pk is not None}
    )


class RuleState(StrEnum):
    """State of a rule, most severe first."""

    FIRING = "firing"
    # Beyond the threshold, but not yet for ``for_seconds``.
    PENDING = "pending"
    OK = "ok"
    # No samples, or no such series.
    UNKNOWN = "unknown"
    # Disabled in its configuration.
    OFF = "off"


@dataclass(frozen=True, slots=True)
class RuleStatus:
    """Rule with its current state, limited to the projects visible to the caller.

    ``project`` is None for a platform rule. ``value``, ``label`` and ``of`` (a project) describe
    the series in the worst state. ``watched`` counts matching series; 0 for events and conditions.
    """

    rule: Rule
    project: int | None
    version: int
    state: RuleState
    value: float | None = None
    label: str = ""
    of: int | None = None
    watched: int = 0
    open_count: int = 0
    muted_until: datetime | None = None
    excepted: frozenset[int] = frozenset()


def rule_statuses(user: User, *, now: datetime, project: int | None = None) -> list[RuleStatus]:
    """Return every rule visible to ``user`` with its current state.

    Computed from stored samples and open incidents; conditions are polled only by the monitor.
    Rules of invisible projects are left out; platform rules show the state in visible projects.
    ``project`` limits the result to rules that apply to it; empty if it is not visible.
    """
    rulebooks = active_rulebooks()
    seen = project_ids(user)
    if project is not None:
        seen = frozenset({project} if project in seen else ())
    every = scoped_rules(rulebooks.platform, rulebooks.projects, enabled_only=False)
    rules = [scoped for scoped in every if scoped.project is None or scoped.project in seen]
    incidents = Incident.objects.visible_to(user).open().order_by()
    if project is not None:
        rules = [scoped for scoped in rules if project in seen and scoped.holds_for(project)]
        incidents = incidents.filter(project=project)
    open_counts = Counter(incidents.values_list("rule", "project_id", "source"))
    mutes = {
        (row.rule, row.project_id): row.until
        for row in RuleMute.objects.visible_to(user).active(now)
    }
    evaluation = _judged(
        [scoped for scoped in rules if scoped.rule.series and scoped.rule.enabled], seen, now
    )
    standings = []
    for scoped in rules:
        name = scoped.rule.name
        count = sum(
            number
            for (rule, project, source), number in open_counts.items()
            if rule == name and source == scoped.rule.source and scoped.holds_for(project)
        )
        state, value, label, of, watched = evaluation.get(id(scoped), _of_incidents(scoped, count))
        standings.append(
            RuleStatus(
                rule=scoped.rule,
                project=scoped.project,
                version=0 if scoped.rule.builtin else scoped.book.number,
                state=state if scoped.rule.enabled else RuleState.OFF,
                value=value,
                label=label,
                of=of,
                watched=watched,
                open_count=count,
                muted_until=mutes.get((name, scoped.project)) or mutes.get((name, None)),
                excepted=scoped.excepted,
            )
        )
    return standings


_Judgement = tuple[RuleState, float | None, str, int | None, int]
_WORST: Final = tuple(RuleState)
_STATES: Final = {
    SeriesState.FIRING: RuleState.FIRING,
    SeriesState.PENDING: RuleState.PENDING,
    SeriesState.BETWEEN: RuleState.OK,
    SeriesState.OK: RuleState.OK,
    SeriesState.UNKNOWN: RuleState.UNKNOWN,
}


def _of_incidents(scoped: ScopedRule, count: int) -> _Judgement:
    return (RuleState.FIRING if count else RuleState.OK), None, "", None, 0


def _judged(
    rules: list[ScopedRule], seen: frozenset[int] | AllProjects, now: datetime
) -> dict[int, _Judgement]:
    """Return the worst evaluation of each rule's series, keyed by ``id(rule)``."""
    judgements: dict[int, _Judgement] = {}
    for scoped, samples in with_samples(rules, now):
        rule = scoped.rule
        worst: _Judgement = (RuleState.UNKNOWN, None, "", None, 0)
        watched = 0
        for series in samples.by_name[rule.series]:
            if series.project not in seen or not scoped.holds_for(series.project):
                continue
            if not rule.matches_label(series.label):
                continue
            watched += 1
            evaluation = evaluate(rule, series.line, samples.times_of(series.line), now.timestamp())
            state = _STATES[evaluation.state]
            if watched == 1 or _WORST.index(state) < _WORST.index(worst[0]):
                worst = (state, evaluation.value, series.label, series.project, watched)
        judgements[id(scoped)] = (*worst[:4], watched)
    return judgements
