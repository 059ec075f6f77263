"""Test results as the page "Test rule" shows them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from apps.requeststore.extraction import Extracted, PageProblem, RuleProblem
from apps.requeststore.extraction.matches import Matched
from apps.requeststore.services.rule_tests import Trial, ValueChange

_PART: Final = re.compile(r"\[(\d+)\]|([^.\[\]]+)")
_RECORDS: Final = 20
_PROBLEMS: Final = 20
_LINKS: Final = 10


@dataclass(frozen=True, slots=True)
class ShownProblem:
    """Problem of a rule with its expression; ``at`` is the wrong part of it."""

    place: str
    text: str
    warning: bool
    before: str = ""
    at: str = ""
    after: str = ""


@dataclass(frozen=True, slots=True)
class ShownTrial:
    """Result of one page."""

    url: str
    sample: int | None
    status: int
    encoding: str
    truncated: bool
    tone: str
    title: str
    told: str
    problems: list[PageProblem]
    more_problems: int
    changes: list[ValueChange]
    records_json: str
    more_records: int
    links: list[str]
    more_links: int
    matched: list[Matched]


def shown_problems(
    problems: Iterable[RuleProblem], definition: Any, rule: str
) -> list[ShownProblem]:
    """Return problems with their places inside the rule."""
    return [_problem(problem, definition, f"rules.{rule}") for problem in problems]


def _problem(problem: RuleProblem, definition: Any, start: str) -> ShownProblem:
    place = problem.place.removeprefix(start).lstrip(".")
    shown = ShownProblem(place, problem.text, problem.warning)
    expression = _value_at(definition, place)
    offset = problem.offset
    if offset is None or not isinstance(expression, str) or offset > len(expression):
        return shown
    return ShownProblem(
        place,
        problem.text,
        problem.warning,
        before=expression[:offset],
        at=expression[offset : offset + 1],
        after=expression[offset + 1 :],
    )


def _value_at(value: Any, place: str) -> Any:
    for index, name in _PART.findall(place):
        if isinstance(value, str):
            # A plain string is an expression in the default language.
            return value
        if index and isinstance(value, list) and int(index) < len(value):
            value = value[int(index)]
        elif name and isinstance(value, dict) and name in value:
            value = value[name]
        else:
            return None
    return value


def shown_trial(trial: Trial) -> ShownTrial:
    """Return the result of one page as texts."""
    result = trial.after
    return ShownTrial(
        url=trial.page.url,
        sample=trial.sample.pk if trial.sample is not None else None,
        status=trial.page.status,
        encoding=trial.explained.encoding,
        truncated=trial.page.truncated,
        tone="bad" if result.failed else "wait" if result.problems else "good",
        title=_outcome(result),
        told=_change(trial),
        problems=result.problems[:_PROBLEMS],
        more_problems=max(0, len(result.problems) - _PROBLEMS) + result.hidden,
        changes=trial.changes,
        records_json=_pretty(result.records[:_RECORDS]) if result.records else "",
        more_records=max(0, len(result.records) - _RECORDS),
        links=[f"{link.rule}: {link.url}" for link in result.follow[:_LINKS]],
        more_links=max(0, len(result.follow) - _LINKS),
        matched=trial.explained.matched,
    )


def _outcome(found: Extracted) -> str:
    if found.failed:
        return _("The request would fail: %(reason)s") % {"reason": found.reason}
    count = len(found.records)
    text = ngettext("%(count)d record", "%(count)d records", count) % {"count": count}
    links = len(found.follow)
    if links:
        more = ngettext("%(count)d link", "%(count)d links", links) % {"count": links}
        text = f"{text}, {more}"
    return text


def _change(trial: Trial) -> str:
    before = trial.before
    if before is None:
        return _("No active rule to compare with.")
    if not trial.changed:
        return _("Same result as the active rule.")
    return _("Active rule: %(outcome)s") % {"outcome": _outcome(before)}


def _pretty(records: list[dict[str, Any]]) -> str:
    return msgspec.json.format(msgspec.json.encode(records), indent=2).decode()
