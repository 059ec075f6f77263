"""Alert rules: what to watch, the condition, and the recipients.

A ``Rulebook`` is one configuration ``alerts``, of a project or of the platform. Precedence of rules
of the same name: project, platform, built-in.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from fnmatch import translate
from functools import lru_cache
from typing import Final

from apps.alerts.engine.quiet import QuietHours

INFO: Final = "info"
WARNING: Final = "warning"
CRITICAL: Final = "critical"
SEVERITIES: Final = (INFO, WARNING, CRITICAL)
# Default time below the threshold before a series' incident recovers: without it, a value around
# the threshold would notify every few seconds.
RECOVER_SECONDS: Final = 60.0
# An event incident recovers after this time without further events.
QUIET_SECONDS: Final = 86_400.0
# Limit of open incidents per rule and project: more are one problem, not hundreds.
MOST_OPEN: Final = 200


@dataclass(frozen=True, slots=True)
class Condition:
    """Condition of a rule, as ``when`` in the configuration; a series sets exactly one of the first
    five.

    ``above`` and ``below`` apply to the value of a gauge, or to the rate per second of a sum.
    ``absent_seconds``: no sample for this long. ``rises_by`` and ``falls_by``: change within
    ``in_seconds``. ``for_seconds``: how long the condition must hold. ``times``: number of events
    within ``in_seconds``.
    """

    above: float | None = None
    below: float | None = None
    absent_seconds: float | None = None
    rises_by: float | None = None
    falls_by: float | None = None
    in_seconds: float = 0.0
    for_seconds: float = 0.0
    times: int = 1

    @property
    def window_seconds(self) -> float:
        """Return how many seconds of samples the condition needs."""
        return max(self.for_seconds, self.in_seconds, self.absent_seconds or 0.0)

    def shown(self) -> dict[str, float]:
        """Return the condition in configuration format, without unset values."""
        values = {
            "above": self.above,
            "below": self.below,
            "absent_seconds": self.absent_seconds,
            "rises_by": self.rises_by,
            "falls_by": self.falls_by,
            "in_seconds": self.in_seconds or None,
            "for_seconds": self.for_seconds or None,
            "times": self.times if self.times > 1 else None,
        }
        return {name: value for name, value in values.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Recovery:
    """Recovery of a rule, as ``recover`` in the configuration.

    The threshold (None: the rule's own) must be met for ``for_seconds``. ``quiet_seconds`` applies
    to events, see ``QUIET_SECONDS``.
    """

    below: float | None = None
    above: float | None = None
    for_seconds: float = RECOVER_SECONDS
    quiet_seconds: float = QUIET_SECONDS


@dataclass(frozen=True, slots=True)
class Escalation:
    """Additional recipients of an incident that is not acknowledged ``after_seconds`` after it
    opened."""

    after_seconds: float
    tell: tuple[str, ...]
    severity: str = ""


@dataclass(frozen=True, slots=True)
class Rule:
    """Alert rule over a ``series`` or an ``event`` (which also names conditions).

    ``label`` is a pattern (* and ?) for the labels of a series; ``match`` maps names of facts to
    such patterns. ``tell`` lists channel names. ``repeat_seconds`` 0: no reminders. ``quiet`` names
    quiet hours of the same configuration. ``title`` of a built-in rule may be a lazy translation.
    """

    name: str
    series: str = ""
    event: str = ""
    label: str = "*"
    match: Mapping[str, str] = field(default_factory=dict)
    when: Condition = Condition()
    recover: Recovery = Recovery()
    severity: str = WARNING
    tell: tuple[str, ...] = ()
    escalate: tuple[Escalation, ...] = ()
    repeat_seconds: float = 0.0
    quiet: str = ""
    enabled: bool = True
    description: str = ""
    builtin: bool = False
    title: object = ""

    @property
    def source(self) -> str:
        """Return the name of the series, event or condition."""
        return self.series or self.event

    def matches_label(self, label: str) -> bool:
        """Return whether the rule watches the series with this label."""
        return matches(self.label, label)

    def matches_facts(self, facts: Mapping[str, object]) -> bool:
        """Return whether the rule watches an occurrence with these facts."""
        return all(
            name in facts and matches(pattern, str(facts[name]))
            for name, pattern in self.match.items()
        )


@dataclass(frozen=True, slots=True)
class Rulebook:
    """Rules of one configuration. ``number`` is its version, 0 for built-in rules."""

    rules: tuple[Rule, ...] = ()
    quiet_hours: Mapping[str, QuietHours] = field(default_factory=dict)
    # Defaults, also for built-in rules.
    tell: tuple[str, ...] = ()
    repeat_seconds: float = 0.0
    quiet: str = ""
    number: int = 0

    def quiet_until(self, rule: Rule, severity: str, now: datetime) -> datetime | None:
        """Return the end of the rule's current quiet hours; None outside of them."""
        hours = self.quiet_hours.get(rule.quiet)
        return None if hours is None else hours.until(now, severity)


@dataclass(frozen=True, slots=True)
class ScopedRule:
    """Rule with its scope: one project, or the platform and all projects except ``excepted``."""

    rule: Rule
    book: Rulebook
    # None: a platform rule, which applies to every project without a rule of this name.
    project: int | None = None
    excepted: frozenset[int] = frozenset()

    def holds_for(self, project: int | None) -> bool:
        """Return whether the rule applies to ``project`` (None: the platform)."""
        if self.project is not None:
            return project == self.project
        return project is None or project not in self.excepted


_builtin: dict[str, Rule] = {}


def register_builtin(rule: Rule) -> None:
    """Register a built-in rule. Raises ``ValueError`` if the name is taken."""
    known = _builtin.get(rule.name)
    if known is not None and known.source != rule.source:
        raise ValueError(f"there is a built-in rule {rule.name!r} already")
    _builtin[rule.name] = replace(rule, builtin=True)


def builtin_rules() -> list[Rule]:
    """Return all built-in rules by name."""
    return [_builtin[name] for name in sorted(_builtin)]


def find_builtin(name: str) -> Rule | None:
    """Return the built-in rule of this name, or None."""
    return _builtin.get(name)


def scoped_rules(
    platform: Rulebook, projects: Mapping[int, Rulebook], *, enabled_only: bool = True
) -> list[ScopedRule]:
    """Return all (enabled) rules with their scopes.

    A project's rule replaces a platform rule of the same name, also to disable it.
    """
    own = {pk: {rule.name for rule in book.rules} for pk, book in projects.items()}
    named = {rule.name for rule in platform.rules}
    wide = [*(rule for rule in builtin_rules() if rule.name not in named), *platform.rules]
    scoped = [
        ScopedRule(
            with_defaults(rule, platform),
            platform,
            excepted=frozenset(pk for pk, names in own.items() if rule.name in names),
        )
        for rule in wide
        if rule.enabled or not enabled_only
    ]
    scoped += [
        ScopedRule(with_defaults(rule, book), book, project=pk)
        for pk, book in sorted(projects.items())
        for rule in book.rules
        if rule.enabled or not enabled_only
    ]
    return scoped


def with_defaults(rule: Rule, book: Rulebook) -> Rule:
    """Return the rule completed by the defaults of its configuration."""
    return replace(
        rule,
        tell=rule.tell or book.tell,
        repeat_seconds=rule.repeat_seconds or book.repeat_seconds,
        quiet=rule.quiet or book.quiet,
    )


def matches(pattern: str, text: str) -> bool:
    """Match ``text`` against a pattern in which * stands for any text and ? for one character."""
    return pattern == "*" or _compiled(pattern).match(text) is not None


@lru_cache(maxsize=1000)
def _compiled(pattern: str) -> re.Pattern[str]:
    # Brackets are literal: labels are queue names and URLs.
    return re.compile(translate(pattern.replace("[", "[[]")))


def worst(severities: Iterable[str]) -> str:
    """Return the highest severity."""
    return max(severities, key=SEVERITIES.index)
