"""Retry rules: which ends of a run are retried, how often and how soon.

    [{"on": "lost", "retries": 1},
     {"on": "failed", "codes": [137], "retries": 3, "delay_seconds": 60, "backoff": 2}]

The first rule that matches an end decides. ``retries`` counts all retries of the first run,
whatever rule queued them. ``codes`` are exit codes; without them a rule matches every code. The
delay is multiplied by ``backoff`` for each further retry.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from django.core.exceptions import ValidationError
from django.utils.translation import gettext_lazy as _

ENDS: Final = ("failed", "lost", "cancelled")
MAX_RULES: Final = 20
MAX_RETRIES: Final = 100
MAX_DELAY_SECONDS: Final = 86_400
MAX_BACKOFF: Final = 10
MAX_CODES: Final = 256
CODES: Final = range(-255, 256)
_FIELDS: Final = ("on", "codes", "retries", "delay_seconds", "backoff")
_SHOWN: Final = 60


@dataclass(frozen=True, slots=True)
class RetryRule:
    """Validated retry rule. Empty ``codes`` match any exit code, also a missing exit code."""

    on: str
    retries: int
    codes: frozenset[int] = frozenset()
    delay_seconds: float = 0.0
    backoff: float = 1.0

    def fits(self, end: str, exit_code: int | None) -> bool:
        """Return whether the rule matches this end."""
        return end == self.on and (not self.codes or exit_code in self.codes)

    def delay(self, attempt: int) -> float:
        """Return the delay in seconds before the retry of this attempt, counted from 1."""
        growth = self.backoff ** min(attempt - 1, MAX_RETRIES)
        return min(float(MAX_DELAY_SECONDS), self.delay_seconds * growth)


def validate_retry_rules(value: object) -> None:
    """Accept valid rules; messages name the rule, counted from 1, and the field.

    Raises:
        ValidationError: with one message for each error.
    """
    read_rules(value)


def read_rules(value: object) -> list[RetryRule]:
    """Return the parsed rules. Raises ``ValidationError`` like ``validate_retry_rules``."""
    if not isinstance(value, list):
        raise ValidationError(_("Enter a JSON list of rules."), code="invalid_rules")
    if len(value) > MAX_RULES:
        raise ValidationError(
            _("%(count)d rules are given, at most %(limit)d are allowed."),
            code="invalid_rules",
            params={"count": len(value), "limit": MAX_RULES},
        )
    problems: list[ValidationError] = []
    rules = []
    for number, rule in enumerate(value, 1):
        wrong = list(_problems(number, rule))
        problems += wrong
        if not wrong:
            rules.append(_rule(rule))
    if problems:
        raise ValidationError(problems)
    return rules


def rule_for(
    rules: Iterable[RetryRule], *, end: str, exit_code: int | None, attempt: int
) -> RetryRule | None:
    """Return the rule that applies to this end; None if no rule matches or no retry is left."""
    for rule in rules:
        if rule.fits(end, exit_code):
            return rule if attempt <= rule.retries else None
    return None


def _rule(value: dict[str, Any]) -> RetryRule:
    return RetryRule(
        on=value["on"],
        retries=value["retries"],
        codes=frozenset(value.get("codes", ())),
        delay_seconds=float(value.get("delay_seconds", 0)),
        backoff=float(value.get("backoff", 1)),
    )


def _problems(number: int, rule: object) -> Iterable[ValidationError]:
    if not isinstance(rule, dict):
        yield ValidationError(
            _('Rule %(number)d is not a JSON object such as {"on": "lost", "retries": 1}.'),
            code="invalid_rules",
            params={"number": number},
        )
        return
    for name in rule:
        if name not in _FIELDS:
            known = ", ".join(_FIELDS)
            problem = _("unknown field; the fields are %(known)s") % {"known": known}
            yield _problem(number, name, problem)
    if rule.get("on") not in ENDS:
        yield _problem(number, "on", _("must be one of %(ends)s") % {"ends": ", ".join(ENDS)})
    if not _whole(rule.get("retries"), 1, MAX_RETRIES):
        problem = _("must be a whole number from 1 to %(most)d") % {"most": MAX_RETRIES}
        yield _problem(number, "retries", problem)
    codes = rule.get("codes", [])
    if not (
        isinstance(codes, list)
        and len(codes) <= MAX_CODES
        and all(_whole(code, CODES[0], CODES[-1]) for code in codes)
    ):
        words = {"least": CODES[0], "most": CODES[-1]}
        yield _problem(
            number, "codes", _("must be a list of whole numbers from %(least)d to %(most)d") % words
        )
    yield from _number(number, rule, "delay_seconds", 0, MAX_DELAY_SECONDS)
    yield from _number(number, rule, "backoff", 1, MAX_BACKOFF)


def _number(
    number: int, rule: dict[str, Any], name: str, least: int, most: int
) -> Iterable[ValidationError]:
    value = rule.get(name, least)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not (is_number and math.isfinite(value) and least <= value <= most):
        words = {"least": least, "most": most}
        yield _problem(number, name, _("must be a number from %(least)d to %(most)d") % words)


def _whole(value: object, least: int, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def _problem(number: int, name: object, problem: object) -> ValidationError:
    return ValidationError(
        _("Rule %(number)d, %(field)s: %(problem)s."),
        code="invalid_rules",
        params={"number": number, "field": str(name)[:_SHOWN], "problem": problem},
    )
