"""Requests, answers and what they mean, shared by every kind of channel."""

from __future__ import annotations

import enum
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from apps.alerts.engine.messages import one_line

ANSWER_CHARACTERS: Final = 300
JSON_TYPE: Final = "application/json; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Call:
    """An HTTP request. Its address and headers may hold secrets: they are never shown."""

    url: str
    body: bytes = b""
    method: str = "POST"
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back: header names in small letters."""

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)


class Outcome(enum.StrEnum):
    """What became of a call."""

    SENT = "sent"
    # Later it may go better; a person may have mended something by then.
    REFUSED = "refused"
    TOO_MANY = "too_many"
    # The other side asks never to be called again.
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class Verdict:
    """``answer``: what the other side said. ``wait_seconds``: for how long it asks."""

    outcome: Outcome
    answer: str
    wait_seconds: float = 0.0


def judge_status(answer: Answer) -> Verdict:
    """By the HTTP status alone."""
    text = f"HTTP {answer.status}"
    said = one_line(answer.body[: 4 * ANSWER_CHARACTERS].decode(errors="replace"))
    if said:
        text = f"{text}: {said}"[:ANSWER_CHARACTERS]
    wait = _retry_after(answer.headers.get("retry-after", ""))
    if 200 <= answer.status < 300:
        return Verdict(Outcome.SENT, text)
    if answer.status == 410:
        return Verdict(Outcome.GONE, text)
    if answer.status == 429:
        return Verdict(Outcome.TOO_MANY, text, wait or 60.0)
    return Verdict(Outcome.REFUSED, text, wait)


def judge_code(
    answer: Answer, *, code: str, message: str, too_many: frozenset[int], wait_seconds: float
) -> Verdict:
    """A robot's answer: HTTP 200 with a code that is 0 when it has listened."""
    by_status = judge_status(answer)
    if by_status.outcome is not Outcome.SENT:
        return by_status
    said = _object(answer.body)
    number = said.get(code)
    if not isinstance(number, int) or isinstance(number, bool):
        # A proxy or a login page answered in its place.
        return Verdict(Outcome.REFUSED, by_status.answer)
    text = one_line(f"{number} {said.get(message, '')}", ANSWER_CHARACTERS)
    if number == 0:
        return Verdict(Outcome.SENT, text)
    if number in too_many:
        return Verdict(Outcome.TOO_MANY, text, wait_seconds)
    return Verdict(Outcome.REFUSED, text)


def json_call(url: str, body: Mapping[str, Any]) -> Call:
    """A POST of JSON."""
    raw = json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()
    return Call(url=url, body=raw, headers={"Content-Type": JSON_TYPE})


def _object(body: bytes) -> dict[str, Any]:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _retry_after(text: str) -> float:
    # A date is rare there; the pauses grow by themselves.
    return min(float(text), 3600.0) if text.isascii() and text.isdigit() else 0.0
