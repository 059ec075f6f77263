"""View objects of the page "Explain an item", built from the engine's explanation."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from apps.routing.admin.explain_texts import decision_text
from apps.routing.engine.converters.base import ConvertError
from apps.routing.engine.converters.chain import ConverterChanges
from apps.routing.engine.explanations import (
    MOST_OF_TEXT,
    VERDICTS,
    ItemExplanation,
    ItemRejection,
    OutboundExplanation,
    Verdict,
)
from apps.routing.engine.outcomes import Action, Decision, TaskState
from apps.routing.engine.selector import PartState
from apps.routing.engine.selector.conditions import Condition, SelectorExplanation
from apps.routing.engine.truncation import shortened
from apps.routing.queries.reports import OutboundStatus
from apps.routing.states import TONES, ItemState
from apps.routing.texts import ITEMS
from apps.routing.texts import translated as told_text

# Outbounds that do not match are shown up to this number; those that match always are.
SHOWN_OUTBOUNDS: Final = 100
# Characters shown before and after the position of a JSON syntax error.
_AROUND: Final = 60
_SYMBOLS: Final = {
    PartState.TRUE: "✓",
    PartState.FALSE: "✗",
    PartState.MISSING: "✗",
    PartState.ERROR: "!",
    PartState.NOT_LOOKED_AT: "·",
}
_STATES: Final[dict[PartState, Promise]] = {
    PartState.TRUE: gettext_lazy("true"),
    PartState.FALSE: gettext_lazy("false"),
    PartState.MISSING: gettext_lazy("missing"),
    PartState.ERROR: gettext_lazy("type error"),
    PartState.NOT_LOOKED_AT: gettext_lazy("not evaluated"),
}
_TONES: Final = {
    Verdict.TAKEN: "good",
    Verdict.HELD: "wait",
    Verdict.LATER: "later",
    Verdict.FULL: "wait",
    Verdict.PASSED_OVER: "wait",
}
_MARKS: Final = {
    Verdict.TAKEN: "→",
    Verdict.HELD: "⏸",
    Verdict.LATER: "✓",
    Verdict.NOT_MATCHED: "✗",
    Verdict.DISABLED: "–",
    Verdict.FULL: "⏸",
    Verdict.PASSED_OVER: "↷",
}


@dataclass(frozen=True, slots=True)
class Heading:
    """Heading of the page: the result of the explanation in one sentence."""

    tone: str
    title: str
    text: str


@dataclass(frozen=True, slots=True)
class SelectorPiece:
    """Piece of a selector's text: one condition, or (``state`` is "") the text between two."""

    text: str
    state: str = ""
    symbol: str = ""
    said: str = ""
    failing: bool = False


@dataclass(frozen=True, slots=True)
class SelectorRow:
    """Selector split into pieces, and the item's values at the conditions that failed."""

    matches: bool
    pieces: tuple[SelectorPiece, ...]
    why: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ExplainedOutbound:
    """Row of one outbound in the explanation."""

    place: int
    name: str
    cls: str
    verdict: str
    tone: str
    mark: str
    text: str
    was_here: bool
    # A selector matches although the item does not go here.
    fits: bool
    # None: omitted, because there are too many.
    selectors: tuple[SelectorRow, ...] | None
    # Problem of the outbound's target, as reported by the routers.
    problem: str


@dataclass(frozen=True, slots=True)
class ErrorPosition:
    """Position of a JSON syntax error, with its surroundings; lines and columns count from 1."""

    line: int
    column: int
    before: str
    at: str
    after: str


@dataclass(frozen=True, slots=True)
class ConverterRow:
    """Changes made by one converter, as tuples (mark, key, before, after)."""

    cls: str
    changes: tuple[tuple[str, str, str, str], ...]
    error: str


def heading_of(explanation: ItemExplanation) -> Heading:
    """Return the heading of the page."""
    decision = explanation.decision
    if explanation.refused is not None:
        by = explanation.refused.converter
        title = _("Rejected by %(converter)s") % {"converter": by} if by else _("Not a valid task")
        return Heading("bad", title, refusal_text(explanation.refused))
    if decision is None:
        return Heading(
            "wait",
            _("Filtered out by the inbound"),
            _(
                "No condition of the inbound matches. The task is counted as filtered "
                "and is not stored."
            ),
        )
    return Heading(_tone(decision), _title(decision), decision_text(decision))


def refusal_text(refused: ItemRejection) -> str:
    """Return why the item is malformed, with the error code."""
    return f"{told_text(ITEMS, refused.code, refused.text)[:MOST_OF_TEXT]} ({refused.code})"


def error_position(refused: ItemRejection | None, text: str) -> ErrorPosition | None:
    """Return the position of the syntax error in ``text``; None without a known position."""
    if refused is None or refused.offset is None or refused.offset > len(text):
        return None
    at = refused.offset
    return ErrorPosition(
        text.count("\n", 0, at) + 1,
        at - text.rfind("\n", 0, at),
        text[max(0, at - _AROUND) : at],
        text[at : at + 1],
        text[at + 1 : at + _AROUND],
    )


def selector_of(explanation: SelectorExplanation) -> SelectorRow:
    """Return a selector as pieces to be marked on the page."""
    text = explanation.whole.selector
    pieces: list[SelectorPiece] = []
    at = 0
    for condition in sorted(explanation.conditions, key=lambda each: each.offset):
        if condition.offset > at:
            pieces.append(SelectorPiece(text[at : condition.offset]))
        summary = _condition_text(condition)
        state = condition.state.value
        pieces.append(
            SelectorPiece(
                condition.text, state, _SYMBOLS[condition.state], summary, condition.failing
            )
        )
        at = condition.offset + len(condition.text)
    if at < len(text):
        pieces.append(SelectorPiece(text[at:]))
    why = tuple(dict.fromkeys(line for failing in explanation.failing for line in _why(failing)))
    return SelectorRow(explanation.matches, tuple(pieces), why)


def outbound_rows(
    explanation: ItemExplanation, said: Mapping[str, OutboundStatus]
) -> tuple[list[ExplainedOutbound], int]:
    """Return the rows of outbounds, and the number of omitted outbounds that do not match."""
    shown: list[ExplainedOutbound] = []
    left = 0
    for outbound in explanation.outbounds:
        quiet = not outbound.matches and outbound.verdict in (
            Verdict.NOT_MATCHED,
            Verdict.NOT_ASKED,
        )
        if quiet and len(shown) >= SHOWN_OUTBOUNDS:
            left += 1
        else:
            shown.append(_line(outbound, said.get(outbound.name)))
    return shown, left


def converter_rows(steps: Iterable[ConverterChanges]) -> list[ConverterRow]:
    """Return the changes of each converter in the order of their execution."""
    rows = []
    for step in steps:
        changes = [
            *(("+", key, "", short(value)) for key, value in step.added.items()),
            *(("−", key, short(value), "") for key, value in step.removed.items()),
            *(("~", key, short(was), short(now)) for key, (was, now) in step.changed.items()),
        ]
        error = step.error
        text = "" if error is None else _error_text(error)
        rows.append(ConverterRow(step.cls, tuple(changes[:SHOWN_OUTBOUNDS]), text))
    return rows


def result_facts(explanation: ItemExplanation) -> list[tuple[str, str]]:
    """Return the facts that decide about a result as (label, value), in order of evaluation."""
    result = explanation.result
    if result is None:
        return []
    yes, no = _("yes"), _("no")
    retries = _("%(done)d of %(limit)d") % {
        "done": result.retry_times,
        "limit": max(0, result.retry_limits),
    }
    failback = result.failback or _("none")
    if result.failback and not result.failback_usable:
        failback = _("%(name)s (disabled or no longer in the rules)") % {"name": result.failback}
    came_from = result.outbound if result.outbound_exists else _gone(result.outbound)
    return [
        (_("status"), result.status),
        (_("returned by"), came_from),
        (_("in terminal_codes"), yes if result.terminal else no),
        (_("retries"), retries),
        (_("in dont_retry_status"), yes if result.dont_retry else no),
        (_("in direct_failback_status"), yes if result.direct_failback else no),
        (_("failback"), failback),
        (
            _("times routed"),
            _("%(done)d of %(limit)d")
            % {"done": result.routed_count, "limit": result.most_routings},
        ),
    ]


def pretty(value: Any) -> str:
    """Return indented JSON."""
    return json.dumps(value, ensure_ascii=False, indent=2)


def short(value: Any) -> str:
    """Return JSON on one line; long values are shortened."""
    return json.dumps(shortened(value, 400, 200)[0], ensure_ascii=False)


def counters_text(counters: Mapping[str, int]) -> str:
    """Return the counters as text, under the names that they have in messages."""
    return ", ".join(f"{name} {number}" for name, number in counters.items())


def _error_text(error: ConvertError) -> str:
    return f"{told_text(ITEMS, error.code, error.text)[:MOST_OF_TEXT]} ({error.code})"


def _gone(name: str) -> str:
    return _("%(name)s (no longer in the rules)") % {"name": name or "–"}


def _tone(decision: Decision) -> str:
    if decision.action is Action.END:
        tone = TONES[ItemState(decision.state.value)]
        return {"success": "good", "warning": "wait"}.get(tone, "bad")
    return "good" if decision.action is Action.DISPATCH else "wait"


def _title(decision: Decision) -> str:
    if decision.action is Action.DISPATCH:
        return _("Sent to %(outbound)s") % {"outbound": decision.outbound}
    if decision.action is Action.HOLD:
        return _("Parked for %(outbound)s") % {"outbound": decision.outbound}
    if decision.action is Action.END:
        return _("Ends as %(state)s") % {"state": _state(decision.state)}
    return _("No change: the task stays %(state)s") % {"state": _state(decision.state)}


def _state(state: TaskState) -> str:
    return str(ItemState(state.value).label)


def _line(one: OutboundExplanation, said: OutboundStatus | None) -> ExplainedOutbound:
    selectors = one.selectors
    return ExplainedOutbound(
        one.place,
        one.name,
        one.cls,
        one.verdict.value,
        _TONES.get(one.verdict, ""),
        _MARKS.get(one.verdict, "·"),
        _(VERDICTS[one.verdict]),
        one.was_here,
        one.matches and one.verdict not in (Verdict.TAKEN, Verdict.HELD, Verdict.LATER),
        None if selectors is None else tuple(selector_of(selector) for selector in selectors),
        "" if said is None else said.problem,
    )


def _condition_text(one: Condition) -> str:
    values = ", ".join(_value_text(one)) or one.note
    text = str(_STATES[one.state])
    return f"{text}: {values}" if values else text


def _value_text(one: Condition) -> list[str]:
    return [
        _("%(name)s is missing") % {"name": value.text}
        if value.missing
        else _("%(name)s is %(value)s") % {"name": value.text, "value": value.value}
        for value in one.values
    ]


def _why(one: Condition) -> list[str]:
    lines = _value_text(one)
    if one.state is PartState.ERROR:
        lines.append(_("type error: %(what)s") % {"what": one.note})
    return lines
