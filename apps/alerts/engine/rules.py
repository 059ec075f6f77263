"""Rules: what to watch, when it is trouble, and who is told of it.

A ``Rulebook`` is what one configuration ``alerts`` says, of a project or of the platform. Rules of
the same name: a project's goes before the platform's, the platform's before a built-in one.
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
# So long something must be well before an incident of a series has recovered, unless the rule
# says otherwise: what jumps to and fro around its limit would else tell people every few seconds.
RECOVER_SECONDS: Final = 60.0
# An incident of events has recovered when none of them came for so long.
QUIET_SECONDS: Final = 86_400.0
# One rule that finds more at once in one project has found one thing, not hundreds.
MOST_OPEN: Final = 200


@dataclass(frozen=True, slots=True)
class When:
    """When it is trouble. Of a series exactly one of the first five is set.

    ``above`` and ``below``: of a gauge its value, of a sum how many a second. ``absent_seconds``:
    no number for so long. ``rises_by`` and ``falls_by`` in ``in_seconds``. ``for_seconds``: it
    must last so long. ``times`` in ``in_seconds``: of events.
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
        """How far back one must look."""
        return max(self.for_seconds, self.in_seconds, self.absent_seconds or 0.0)

    def shown(self) -> dict[str, float]:
        """As a configuration writes it, without what is not set."""
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
class Recover:
    """When it is over: the limit of recovery (None: that of the rule), and for how long.

    ``quiet_seconds``: of events, see ``QUIET_SECONDS``.
    """

    below: float | None = None
    above: float | None = None
    for_seconds: float = RECOVER_SECONDS
    quiet_seconds: float = QUIET_SECONDS


@dataclass(frozen=True, slots=True)
class Escalation:
    """Who else is told when nobody has acknowledged so many seconds after it opened."""

    after_seconds: float
    tell: tuple[str, ...]
    severity: str = ""


@dataclass(frozen=True, slots=True)
class Rule:
    """Either ``series`` or ``event`` is set; ``event`` names an event or a condition.

    ``label``: a pattern with * and ? that the label of a series must match; ``match``: the same
    by the names of facts. ``tell``: names of channels. ``repeat_seconds`` 0: told once. ``quiet``
    names quiet hours of the same configuration. ``title``: of a built-in rule, for people; may be
    a lazy translation.
    """

    name: str
    series: str = ""
    event: str = ""
    label: str = "*"
    match: Mapping[str, str] = field(default_factory=dict)
    when: When = When()
    recover: Recover = Recover()
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
        """What is watched: the name of a series, an event or a condition."""
        return self.series or self.event

    def matches_label(self, label: str) -> bool:
        """Whether the rule watches the series with this label."""
        return matches(self.label, label)

    def matches_facts(self, facts: Mapping[str, object]) -> bool:
        """Whether the rule watches a happening with these facts."""
        return all(
            name in facts and matches(pattern, str(facts[name]))
            for name, pattern in self.match.items()
        )


@dataclass(frozen=True, slots=True)
class Rulebook:
    """The rules of one configuration. ``number``: its version, 0 for those that are built in."""

    rules: tuple[Rule, ...] = ()
    quiet_hours: Mapping[str, QuietHours] = field(default_factory=dict)
    # For rules that do not say it themselves, the built-in ones too.
    tell: tuple[str, ...] = ()
    repeat_seconds: float = 0.0
    quiet: str = ""
    number: int = 0

    def quiet_until(self, rule: Rule, severity: str, now: datetime) -> datetime | None:
        """Until when nobody is told of this; None: now."""
        hours = self.quiet_hours.get(rule.quiet)
        return None if hours is None else hours.until(now, severity)


@dataclass(frozen=True, slots=True)
class Scoped:
    """A rule and where it holds: of one project, or of the platform and all projects but some."""

    rule: Rule
    book: Rulebook
    # None: of the platform, which holds for every project that has none of the same name.
    project: int | None = None
    excepted: frozenset[int] = frozenset()

    def holds_for(self, project: int | None) -> bool:
        """Whether what belongs to ``project`` (None: to the platform) is watched by it."""
        if self.project is not None:
            return project == self.project
        return project is None or project not in self.excepted


_builtin: dict[str, Rule] = {}


def register_builtin(rule: Rule) -> None:
    """Add a rule that needs no configuration. Raises ``ValueError`` for a name that is taken."""
    known = _builtin.get(rule.name)
    if known is not None and known.source != rule.source:
        raise ValueError(f"there is a built-in rule {rule.name!r} already")
    _builtin[rule.name] = replace(rule, builtin=True)


def builtin_rules() -> list[Rule]:
    """Every built-in rule, by name."""
    return [_builtin[name] for name in sorted(_builtin)]


def find_builtin(name: str) -> Rule | None:
    """The built-in rule of this name."""
    return _builtin.get(name)


def scoped_rules(
    platform: Rulebook, projects: Mapping[int, Rulebook], *, enabled_only: bool = True
) -> list[Scoped]:
    """Every rule, or every one that is switched on, where it holds.

    A project that names a rule of the platform has its own in its place, also to switch it off.
    """
    own = {pk: {rule.name for rule in book.rules} for pk, book in projects.items()}
    named = {rule.name for rule in platform.rules}
    wide = [*(rule for rule in builtin_rules() if rule.name not in named), *platform.rules]
    found = [
        Scoped(
            with_defaults(rule, platform),
            platform,
            excepted=frozenset(pk for pk, names in own.items() if rule.name in names),
        )
        for rule in wide
        if rule.enabled or not enabled_only
    ]
    found += [
        Scoped(with_defaults(rule, book), book, project=pk)
        for pk, book in sorted(projects.items())
        for rule in book.rules
        if rule.enabled or not enabled_only
    ]
    return found


def with_defaults(rule: Rule, book: Rulebook) -> Rule:
    """The rule with what its configuration says of all rules."""
    return replace(
        rule,
        tell=rule.tell or book.tell,
        repeat_seconds=rule.repeat_seconds or book.repeat_seconds,
        quiet=rule.quiet or book.quiet,
    )


def matches(pattern: str, text: str) -> bool:
    """Whether ``text`` matches a pattern in which * stands for anything and ? for a character."""
    return pattern == "*" or _compiled(pattern).match(text) is not None


@lru_cache(maxsize=1000)
def _compiled(pattern: str) -> re.Pattern[str]:
    # A bracket stands for itself: labels are names of queues and addresses, not classes.
    return re.compile(translate(pattern.replace("[", "[[]")))


def worst(severities: Iterable[str]) -> str:
    """The worst of them."""
    return max(severities, key=SEVERITIES.index)
