"""Translated texts for the reason of an item's state and for the steps of its history."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from apps.routing import texts
from apps.routing.engine.outcomes import TEXTS, Reason
from apps.routing.engine.steps import Step, StepKind

_K = StepKind
_TITLES: Final[dict[str, Promise]] = {
    _K.RECEIVED: gettext_lazy("received"),
    _K.REDELIVERED: gettext_lazy("redelivered by the inbound"),
    _K.TAKEN_OVER: gettext_lazy("taken over from a router that did not finish it"),
    _K.CONVERTED: gettext_lazy("converted"),
    _K.MATCHED: gettext_lazy("matched"),
    _K.NOT_MATCHED: gettext_lazy("no rule matches"),
    _K.PARKED: gettext_lazy("parked"),
    _K.DISPATCHED: gettext_lazy("dispatched"),
    _K.RESULT: gettext_lazy("result"),
    _K.LATE_RESULT: gettext_lazy("late result, ignored"),
    _K.OVERDUE: gettext_lazy("result timeout"),
    _K.RETRIED: gettext_lazy("retried"),
    _K.ENDED: gettext_lazy("ended"),
    _K.CANCELLED: gettext_lazy("cancelled"),
    _K.RESUBMITTED: gettext_lazy("submitted again"),
}
_TONES: Final[dict[str, str]] = {
    _K.NOT_MATCHED: "bad",
    _K.OVERDUE: "bad",
    _K.CANCELLED: "bad",
    _K.PARKED: "wait",
    _K.RETRIED: "wait",
    _K.LATE_RESULT: "wait",
    _K.REDELIVERED: "wait",
    _K.TAKEN_OVER: "wait",
    _K.DISPATCHED: "good",
    _K.MATCHED: "good",
}
# By reason code; an unknown code is shown unchanged.
REASONS: Final[dict[str, Promise]] = {
    Reason.MATCHED: gettext_lazy("a rule matches"),
    Reason.RETRY: gettext_lazy("sent again"),
    Reason.FAILBACK: gettext_lazy("sent to the failback"),
    Reason.ROUTED_AGAIN: gettext_lazy("routed again"),
    Reason.OUTBOUND_GONE: gettext_lazy("outbound removed"),
    Reason.OUTBOUND_DISABLED: gettext_lazy("outbound disabled"),
    Reason.NEXT: gettext_lazy("queue of an earlier outbound full"),
    Reason.ROOM: gettext_lazy("queue has room"),
    Reason.QUEUE_FULL: gettext_lazy("queue full"),
    Reason.SENT: gettext_lazy("sent, waiting for the result"),
    Reason.TERMINAL: gettext_lazy("success status"),
    Reason.DELIVERED: gettext_lazy("delivered, no result expected"),
    Reason.NO_RULE: gettext_lazy("no rule matches"),
    Reason.RETRY_LIMITS: gettext_lazy("no retries left"),
    Reason.NO_FAILBACK: gettext_lazy("no failback"),
    Reason.ROUTING_LIMITS: gettext_lazy("routing limit reached"),
    Reason.OVERFLOW: gettext_lazy("queue full, overflow policy fail"),
    Reason.NO_RESULT: gettext_lazy("result timeout"),
    "target_away": gettext_lazy("target unreachable"),
    "rate_limit": gettext_lazy("rate limit reached"),
    "in_line": gettext_lazy("waiting behind other tasks"),
    "postponed": gettext_lazy("postponed by the router"),
    "poison": gettext_lazy("malformed, cannot be routed"),
    "duplicate": gettext_lazy("already in the URL queue"),
    "refused": gettext_lazy("rejected by the target"),
    "cancelled": gettext_lazy("cancelled by a user"),
}
# Patterns of the engine's English sentences; the groups are the filled-in values.
_SENTENCES: Final = {
    reason.value: re.compile(re.sub(r"%\\\((\w+)\\\)s", r"(?P<\1>.*)", re.escape(text)), re.DOTALL)
    for reason, text in TEXTS.items()
}
_UUID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@dataclass(frozen=True, slots=True)
class HistoryRow:
    """Step of an item's history with translated texts."""

    at: datetime
    title: str
    tone: str
    outbound: str
    detail: str
    # Time since the previous step.
    after: timedelta | None
    # task_uuid of the item that the step refers to.
    other: str = ""


def reason_text(reason: str) -> str:
    """Return the short text of a reason; an unknown reason is returned unchanged."""
    return str(REASONS.get(reason, reason))


def why(reason: str, detail: str) -> tuple[str, str]:
    """Return the reason of an item's state, and further details, both as text.

    The engine's own sentence in ``detail`` is translated and becomes the reason; a message of the
    target that follows it remains the detail.
    """
    if reason == Reason.POISON:
        code, _colon, text = detail.partition(": ")
        return reason_text(reason), (
            texts.translated(texts.ITEMS, code, text) if code in texts.ITEMS else detail
        )
    pattern = _SENTENCES.get(reason)
    matched = None if pattern is None else pattern.match(detail)
    if matched is None:
        return reason_text(reason), detail
    sentence = _(TEXTS[Reason(reason)]) % {"outbound": "", "status": "", **matched.groupdict()}
    return sentence, detail[matched.end() :].strip()


def history_rows(steps: Iterable[Step]) -> list[HistoryRow]:
    """Return the history of an item, oldest step first."""
    rows = []
    before: datetime | None = None
    for step in steps:
        other = _UUID.search(step.detail) if step.kind == StepKind.RESUBMITTED else None
        rows.append(
            HistoryRow(
                step.at,
                _title(step),
                _TONES.get(step.kind, ""),
                step.outbound,
                _detail(step),
                None if before is None else step.at - before,
                "" if other is None else other[0],
            )
        )
        before = step.at
    return rows


def _title(step: Step) -> str:
    if step.kind == StepKind.CUT:
        count = int(step.detail) if step.detail.isdigit() else 0
        text = ngettext(
            "%(count)d step is no longer kept", "%(count)d steps are no longer kept", count
        )
        return text % {"count": count}
    return str(_TITLES.get(step.kind, step.kind))


def _detail(step: Step) -> str:
    if step.kind == StepKind.CUT:
        return ""
    if step.kind == StepKind.CANCELLED and step.detail:
        return _("by %(person)s") % {"person": step.detail}
    # The detail is a reason code, followed by a status or by a message of the target.
    word, _blank, rest = step.detail.partition(" ")
    if word not in REASONS:
        return step.detail
    if word == Reason.POISON:
        code, _blank, text = rest.partition(" ")
        rest = texts.translated(texts.ITEMS, code, text) if code in texts.ITEMS else rest
    return f"{REASONS[word]}: {rest}" if rest else str(REASONS[word])
