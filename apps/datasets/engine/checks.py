"""Checks of items: a schema and patterns for each item, rules for the data of a whole run.

Settings, a list of objects:

    {"check": "schema", "action": "reject"}                    or "flag"; items against the schema
    {"check": "pattern", "field": "url", "pattern": "https://.*"}       flags items without a match
    {"check": "items_at_least", "value": 100}
    {"check": "fill_rate", "field": "price", "value": 0.95}             share of items with a value
    {"check": "range", "field": "price", "min": 0, "max": 10000}
    {"check": "rejected_at_most", "value": 0.01}                        share of all items
    {"check": "flagged_at_most", "value": 0.05}
    {"check": "duplicates_at_most", "value": 0}                       items whose key is not unique
    {"check": "change", "percent": 50}     number of items against the median of the last ten runs
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

import msgspec
import re2

from apps.datasets.engine.errors import DatasetError, gettext_noop

MOST_CHECKS: Final = 100
MOST_SCHEMA_BYTES: Final = 256 * 1024
_REASON_CHARACTERS: Final = 200
# Fewer earlier runs say nothing about what is usual.
_FEWEST_RUNS: Final = 3


class BadChecks(DatasetError):
    """A schema or a check that cannot be used. ``number``: which check, 0 for the schema or all."""

    code: ClassVar[str] = "bad_checks"

    def __init__(self, text: str, /, *, number: int = 0, **params: object) -> None:
        super().__init__(text, **params)
        self.number = number

    def __str__(self) -> str:
        text = super().__str__()
        return f"Check {self.number}: {text}" if self.number else text


class _Problem(msgspec.Struct, frozen=True):
    text: str
    params: Mapping[str, object] = {}


class _Check(msgspec.Struct, tag_field="check", forbid_unknown_fields=True, frozen=True):
    item_level: ClassVar[bool] = False


class SchemaCheck(_Check, tag="schema", frozen=True):
    """What happens to items that do not match the schema."""

    item_level: ClassVar[bool] = True
    action: str = "reject"


class PatternCheck(_Check, tag="pattern", frozen=True):
    """The whole text of a field matches a regular expression; missing values are not looked at."""

    item_level: ClassVar[bool] = True
    field: str
    pattern: str


class ItemsAtLeast(_Check, tag="items_at_least", frozen=True):
    """A run stores at least this many items."""

    value: int


class FillRate(_Check, tag="fill_rate", frozen=True):
    """At least this share of items has a value in the field."""

    field: str
    value: float


class Range(_Check, tag="range", frozen=True):
    """All numbers of a field lie between two limits."""

    field: str
    min: float | None = None
    max: float | None = None


class RejectedAtMost(_Check, tag="rejected_at_most", frozen=True):
    """At most this share of items is rejected."""

    value: float


class FlaggedAtMost(_Check, tag="flagged_at_most", frozen=True):
    """At most this share of items is flagged."""

    value: float


class DuplicatesAtMost(_Check, tag="duplicates_at_most", frozen=True):
    """At most this many items share the key of an earlier one."""

    value: int


class Change(_Check, tag="change", frozen=True):
    """The number of items differs from the usual one by at most this many percent."""

    percent: float


Check = (
    SchemaCheck
    | PatternCheck
    | ItemsAtLeast
    | FillRate
    | Range
    | RejectedAtMost
    | FlaggedAtMost
    | DuplicatesAtMost
    | Change
)


def read_checks(settings: Sequence[Mapping[str, Any]]) -> list[Check]:
    """Return the checks of a dataset. Raises ``BadChecks`` with the number of the wrong one."""
    if len(settings) > MOST_CHECKS:
        raise BadChecks(gettext_noop("at most %(most)s checks"), most=MOST_CHECKS)
    found: list[Check] = []
    for number, setting in enumerate(settings, 1):
        try:
            check = msgspec.convert(setting, Check)
        except msgspec.ValidationError as error:
            raise BadChecks("%(why)s", number=number, why=str(error)) from None
        problem = _problem(check)
        if problem is not None:
            raise BadChecks(problem.text, number=number, **problem.params)
        found.append(check)
    return found


def _problem(check: Check) -> _Problem | None:
    if isinstance(check, SchemaCheck) and check.action not in ("reject", "flag"):
        return _Problem(
            gettext_noop("action is reject or flag, not “%(action)s”"), {"action": check.action}
        )
    if isinstance(check, PatternCheck):
        try:
            re2.compile(check.pattern)
        except re2.error as error:
            return _Problem(gettext_noop("pattern: %(why)s"), {"why": _text(error)})
    if isinstance(check, PatternCheck | FillRate | Range) and not check.field:
        return _Problem(gettext_noop("field is empty"))
    if isinstance(check, Range):
        if check.min is None and check.max is None:
            return _Problem(gettext_noop("range needs min or max"))
        if check.min is not None and check.max is not None and check.min > check.max:
            return _Problem(gettext_noop("min is larger than max"))
    if isinstance(check, ItemsAtLeast | DuplicatesAtMost) and check.value < 0:
        return _Problem(gettext_noop("value must not be negative"))
    if isinstance(check, FillRate | RejectedAtMost | FlaggedAtMost) and not 0 <= check.value <= 1:
        return _Problem(gettext_noop("value is a share between 0 and 1"))
    if isinstance(check, Change) and check.percent <= 0:
        return _Problem(gettext_noop("percent must be larger than 0"))
    return None


def _text(error: object) -> str:
    return error.decode(errors="replace") if isinstance(error, bytes) else str(error)


def check_schema(schema: Mapping[str, Any]) -> None:
    """Raise ``BadChecks`` if a JSON Schema cannot be used."""
    if len(msgspec.json.encode(schema)) > MOST_SCHEMA_BYTES:
        raise BadChecks(gettext_noop("schema: larger than %(most)s bytes"), most=MOST_SCHEMA_BYTES)
    if schema:
        _validator(schema)


def _validator(schema: Mapping[str, Any]) -> Any:
    import jsonschema_rs

    def no_document(uri: str) -> Any:
        # A schema names addresses as it likes; none of them is fetched.
        raise ValueError(f"{uri}: other documents are not loaded")

    try:
        return jsonschema_rs.validator_for(
            dict(schema), retriever=no_document, pattern_options=jsonschema_rs.RegexOptions()
        )
    except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError) as error:
        why = str(error).splitlines()[0]
        raise BadChecks(gettext_noop("schema: %(why)s"), why=why) from None


class ItemChecker:
    """Checks single items by the schema and the patterns of a dataset."""

    def __init__(self, schema: Mapping[str, Any], settings: Sequence[Mapping[str, Any]]) -> None:
        checks = read_checks(settings)
        actions = [check.action for check in checks if isinstance(check, SchemaCheck)]
        self._rejects = "flag" not in actions
        self._validator: Any = _validator(schema) if schema else None
        self._patterns = [
            (check.field, re2.compile(check.pattern))
            for check in checks
            if isinstance(check, PatternCheck)
        ]

    @property
    def has_work(self) -> bool:
        """Return whether any item needs to be looked at."""
        return self._validator is not None or bool(self._patterns)

    def check(self, item: Mapping[str, Any]) -> tuple[str, str | None]:
        """Return why an item is rejected ("" if not), and its flags (None for none)."""
        flags = []
        if self._validator is not None and not self._validator.is_valid(item):
            reason = self._reason(item)
            if self._rejects:
                return reason, None
            flags.append(reason)
        for field, pattern in self._patterns:
            value = item.get(field)
            if value is not None and not (
                isinstance(value, str) and pattern.fullmatch(value) is not None
            ):
                flags.append(f"{field}: does not match the pattern")
        return "", ", ".join(flags) or None

    def _reason(self, item: Mapping[str, Any]) -> str:
        """Return the first error without the value, so that equal ones are counted together."""
        error = next(iter(self._validator.iter_errors(item)))
        place = ".".join(str(part) for part in error.instance_path if not isinstance(part, int))
        kind = getattr(error.kind, "name", "") or type(error.kind).__name__.rpartition("_")[2]
        text = f"{place}: {kind}" if place else error.message
        return text[:_REASON_CHARACTERS]


class RunFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What the rules look at. ``filled``: items with a value by field; ``limits``: low, high."""

    stored: int
    rejected: int = 0
    flagged: int = 0
    duplicates: int | None = None
    filled: Mapping[str, int] = {}
    limits: Mapping[str, tuple[float, float]] = {}
    # Numbers of items of earlier runs, newest first.
    earlier: Sequence[int] = ()


class CheckResult(msgspec.Struct, frozen=True):
    """Outcome of one check. ``text``: what was found, in English.

    ``template`` and ``params`` are the same for ``apps.datasets.texts``, which translates it.
    """

    check: str
    ok: bool
    text: str
    template: str = ""
    params: Mapping[str, str | int] = {}


class _Outcome(msgspec.Struct, frozen=True):
    ok: bool
    template: str
    params: Mapping[str, str | int]


def evaluate(checks: Sequence[Check], facts: RunFacts) -> list[CheckResult]:
    """Return the outcome of the checks of a run; those of single items are counted elsewhere."""
    found = []
    for check in checks:
        if check.item_level:
            continue
        outcome = _evaluate(check, facts)
        found.append(
            CheckResult(
                str(check.__struct_config__.tag),
                outcome.ok,
                outcome.template % outcome.params,
                outcome.template,
                outcome.params,
            )
        )
    return found


def _evaluate(check: Check, facts: RunFacts) -> _Outcome:
    match check:
        case ItemsAtLeast(value=least):
            text = gettext_noop("%(found)s items, at least %(least)s expected")
            return _outcome(facts.stored >= least, text, found=facts.stored, least=least)
        case FillRate(field=field, value=least):
            share = facts.filled.get(field, 0) / facts.stored if facts.stored else 0.0
            text = gettext_noop("%(field)s has a value in %(found)s, expected %(least)s")
            return _outcome(
                share >= least, text, field=field, found=f"{share:.1%}", least=f"{least:.1%}"
            )
        case Range(field=field):
            return _range(check, facts)
        case RejectedAtMost(value=most):
            share = _share(facts.rejected, facts.stored + facts.rejected)
            text = gettext_noop("%(found)s of the items rejected, at most %(most)s expected")
            return _outcome(share <= most, text, found=f"{share:.1%}", most=f"{most:.1%}")
        case FlaggedAtMost(value=most):
            share = _share(facts.flagged, facts.stored)
            text = gettext_noop("%(found)s of the items flagged, at most %(most)s expected")
            return _outcome(share <= most, text, found=f"{share:.1%}", most=f"{most:.1%}")
        case DuplicatesAtMost(value=most):
            if facts.duplicates is None:
                text = gettext_noop("the dataset has no key: duplicates cannot be counted")
                return _outcome(False, text)
            text = gettext_noop(
                "%(found)s items with the key of another, at most %(most)s expected"
            )
            return _outcome(facts.duplicates <= most, text, found=facts.duplicates, most=most)
        case Change(percent=percent):
            return _change(percent, facts)
    raise AssertionError(check)


def _outcome(ok: bool, template: str, **params: str | int) -> _Outcome:
    return _Outcome(ok, template, params)


def _range(check: Range, facts: RunFacts) -> _Outcome:
    field = check.field
    limits = facts.limits.get(field)
    if limits is None:
        if facts.filled.get(field):
            text = gettext_noop("%(field)s has values that are no numbers")
            return _outcome(False, text, field=field)
        return _outcome(True, gettext_noop("%(field)s has no values"), field=field)
    low, high = limits
    inside = (check.min is None or low >= check.min) and (check.max is None or high <= check.max)
    params = {"field": field, "low": f"{low:g}", "high": f"{high:g}"}
    if check.min is not None:
        params["least"] = f"{check.min:g}"
    if check.max is not None:
        params["most"] = f"{check.max:g}"
    if check.max is None:
        text = gettext_noop(
            "%(field)s lies between %(low)s and %(high)s, expected at least %(least)s"
        )
    elif check.min is None:
        text = gettext_noop(
            "%(field)s lies between %(low)s and %(high)s, expected at most %(most)s"
        )
    else:
        text = gettext_noop(
            "%(field)s lies between %(low)s and %(high)s, expected from %(least)s to %(most)s"
        )
    return _Outcome(inside, text, params)


def _change(percent: float, facts: RunFacts) -> _Outcome:
    if len(facts.earlier) < _FEWEST_RUNS:
        text = gettext_noop("%(earlier)s earlier runs, %(needed)s are needed to compare")
        return _outcome(True, text, earlier=len(facts.earlier), needed=_FEWEST_RUNS)
    usual = statistics.median(facts.earlier[:10])
    change = 100.0 * (facts.stored - usual) / usual if usual else (100.0 if facts.stored else 0.0)
    return _outcome(
        abs(change) <= percent,
        gettext_noop(
            "%(found)s items, %(change)s %% against the usual %(usual)s; %(allowed)s %% allowed"
        ),
        found=facts.stored,
        change=f"{change:+.0f}",
        usual=f"{usual:g}",
        allowed=f"{percent:g}",
    )


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 0.0
