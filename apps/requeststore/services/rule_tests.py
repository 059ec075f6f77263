"""Tests of a rule on pages, compared with the active rule, before it is saved."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
from django.utils.translation import gettext as _

from apps.requeststore.errors import BadTest
from apps.requeststore.extraction import Extracted, ResponsePage, RuleProblem, check_rules
from apps.requeststore.extraction.matches import RuleMatches
from apps.requeststore.extraction.processes import ExtractionProcess
from apps.requeststore.extraction.rules import DEFAULT_RULE
from apps.requeststore.models import SamplePage
from apps.requeststore.services.sample_pages import page_of
from yardkit.yaml_reader import YamlError, YamlLimits, read_document
from yardkit.yaml_writer import write_value

# CPU seconds for each page; a person waits for all of them.
CPU_SECONDS: Final = 3.0
MAX_SECONDS: Final = 25.0
MAX_DEFINITION_BYTES: Final = 200_000
_LIMITS: Final = YamlLimits(bytes=MAX_DEFINITION_BYTES, depth=30, values=20_000)
_CHANGES: Final = 100


@dataclass(frozen=True, slots=True)
class ValueChange:
    """Value of a record that would change. ``before``, ``after``: JSON, "" for none."""

    record: int
    field: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class Trial:
    """Result on one page. ``before``: by the active rule, None without one."""

    page: ResponsePage
    sample: SamplePage | None
    explained: RuleMatches
    before: Extracted | None
    changes: list[ValueChange] = field(default_factory=list)

    @property
    def after(self) -> Extracted:
        """Return the result of the tested rule."""
        return self.explained.extracted

    @property
    def changed(self) -> bool:
        """Return whether records, links or the outcome differ."""
        return self.before is None or outcome(self.before) != outcome(self.after)


@dataclass(frozen=True, slots=True)
class Tested:
    """Result on all pages. ``problems``: of the rule; an error prevents the test.

    ``left``: pages for which no time was left.
    """

    problems: list[RuleProblem]
    trials: list[Trial] = field(default_factory=list)
    left: int = 0

    @property
    def refused(self) -> bool:
        """Return whether the rule is invalid."""
        return any(not problem.warning for problem in self.problems)

    @property
    def changed(self) -> int:
        """Return the number of pages whose result would change."""
        return sum(trial.changed for trial in self.trials)


def outcome(found: Extracted) -> tuple[Any, ...]:
    """Return the outcome that a fetcher would store."""
    return found.failed, found.records, [(link.url, link.rule) for link in found.follow]


def rule_named(rules: dict[str, Any], name: str) -> str:
    """Return the rule for this name: "" is ``default``, else the only rule."""
    if name or DEFAULT_RULE in rules or len(rules) != 1:
        return name or DEFAULT_RULE
    return str(next(iter(rules)))


def try_rule(
    *,
    active: dict[str, Any],
    name: str,
    definition: Any,
    pages: Sequence[ResponsePage | SamplePage],
    clock: Any = time.monotonic,
) -> Tested:
    """Test ``definition`` against the active rule of that name; nothing is stored.

    ``definition=None`` tests the active rule itself. Raises ``BadTest`` when there is none.
    """
    name = rule_named(active, name)
    if definition is None and name not in active:
        raise BadTest(fields={"rule": [_("This request group has no such rule.")]})
    edited = active if definition is None else {**active, name: definition}
    place = f"rules.{name}"
    # Only this rule is tested: other rules of the map may be invalid.
    problems = [rule for rule in check_rules(edited) if _is_at(rule.place, place)]
    if any(not problem.warning for problem in problems):
        return Tested(problems)
    until = clock() + MAX_SECONDS
    trials: list[Trial] = []
    with ExtractionProcess(cpu_seconds=CPU_SECONDS) as box:
        for page in pages:
            if trials and clock() >= until:
                break
            trials.append(_tried(box, page, name, active, edited))
    return Tested(problems, trials, len(pages) - len(trials))


def _is_at(place: str, start: str) -> bool:
    return place == start or place.startswith((f"{start}.", f"{start}["))


def _tried(
    box: ExtractionProcess,
    each: ResponsePage | SamplePage,
    name: str,
    active: dict[str, Any],
    edited: dict[str, Any],
) -> Trial:
    sample = each if isinstance(each, SamplePage) else None
    page = page_of(each) if isinstance(each, SamplePage) else each
    explained = box.explain("edited", _alone(edited, name), name, page)
    before = None
    if name in active:
        before = box.extract("active", _alone(active, name), name, page)
    trial = Trial(page, sample, explained, before)
    if before is None:
        return trial
    return Trial(page, sample, explained, before, list(changes(before, trial.after)))


def _alone(rules: dict[str, Any], name: str) -> dict[str, Any]:
    """Return the rule with stubs of the others for its links, without their problems."""
    stand_in = {"fields": {"url": {"page": "url"}}}
    return {rule_name: rule if rule_name == name else stand_in for rule_name, rule in rules.items()}


def changes(before: Extracted, after: Extracted) -> Iterable[ValueChange]:
    """Return the changed values, record by record; at most a hundred."""
    changes_found: list[ValueChange] = []
    for number in range(max(len(before.records), len(after.records))):
        old = before.records[number] if number < len(before.records) else {}
        new = after.records[number] if number < len(after.records) else {}
        for name in dict.fromkeys([*old, *new]):
            if len(changes_found) >= _CHANGES:
                return changes_found
            left = _json(old[name]) if name in old else ""
            right = _json(new[name]) if name in new else ""
            if left != right:
                changes_found.append(ValueChange(number, name, left, right))
    return changes_found


def _json(value: Any) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= 500 else f"{text[:500]}…"


def read_definition(text: str) -> Any:
    """Parse a rule in YAML or JSON. Raises ``BadTest`` with the position."""
    try:
        return read_document(text.encode("utf-8", "replace"), _LIMITS).root
    except YamlError as error:
        where = _("line %(line)d: %(text)s") % {"line": error.line, "text": error}
        raise BadTest(fields={"definition": [where]}) from None


def write_definition(definition: Any) -> str:
    """Return YAML that ``read_definition`` accepts."""
    return write_value(definition)
