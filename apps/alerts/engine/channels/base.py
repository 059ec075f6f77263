"""Request and response types of the channel kinds, and the interpretation of responses."""

from __future__ import annotations

import enum
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from apps.alerts.engine.messages import Message, one_line

ANSWER_CHARACTERS: Final = 300
JSON_TYPE: Final = "application/json; charset=utf-8"


@dataclass(frozen=True, slots=True)
class ChannelRequest:
    """HTTP request of a channel. URL and headers may hold secrets and are not logged."""

    url: str
    body: bytes = b""
    method: str = "POST"
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class ChannelResponse:
    """HTTP response; header names are in lower case."""

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)


class SendOutcome(enum.StrEnum):
    """Outcome of one request to a channel."""

    SENT = "sent"
    # Retried: the cause may be temporary, or be fixed by an operator.
    REFUSED = "refused"
    TOO_MANY = "too_many"
    # HTTP 410: the server asks for no further requests.
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class SendResult:
    """Outcome with the server's response text, and the seconds it asks to wait."""

    outcome: SendOutcome
    answer: str
    wait_seconds: float = 0.0


def result_of_status(answer: ChannelResponse) -> SendResult:
    """Interpret a response by its HTTP status alone."""
    text = f"HTTP {answer.status}"
    body = one_line(answer.body[: 4 * ANSWER_CHARACTERS].decode(errors="replace"))
    if body:
        text = f"{text}: {body}"[:ANSWER_CHARACTERS]
    wait = _retry_after(answer.headers.get("retry-after", ""))
    if 200 <= answer.status < 300:
        return SendResult(SendOutcome.SENT, text)
    if answer.status == 410:
        return SendResult(SendOutcome.GONE, text)
    if answer.status == 429:
        return SendResult(SendOutcome.TOO_MANY, text, wait or 60.0)
    return SendResult(SendOutcome.REFUSED, text, wait)


def result_of_code(
    answer: ChannelResponse,
    *,
    code: str,
    message: str,
    too_many: frozenset[int],
    wait_seconds: float,
) -> SendResult:
    """Interpret a robot's response: HTTP 200 with a JSON code that is 0 on success."""
    by_status = result_of_status(answer)
    if by_status.outcome is not SendOutcome.SENT:
        return by_status
    parsed = json_object(answer.body)
    number = parsed.get(code)
    if not isinstance(number, int) or isinstance(number, bool):
        # Not the robot's format: a proxy or login page answered instead.
        return SendResult(SendOutcome.REFUSED, by_status.answer)
    text = one_line(f"{number} {parsed.get(message, '')}", ANSWER_CHARACTERS)
    if number == 0:
        return SendResult(SendOutcome.SENT, text)
    if number in too_many:
        return SendResult(SendOutcome.TOO_MANY, text, wait_seconds)
    return SendResult(SendOutcome.REFUSED, text)


def json_call(url: str, body: Mapping[str, Any]) -> ChannelRequest:
    """Return a POST request with a JSON body."""
    raw = json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()
    return ChannelRequest(url=url, body=raw, headers={"Content-Type": JSON_TYPE})


def alert_key(message: Message) -> str:
    """Return the deduplication key for services that open and close alerts: the same for all
    messages about one subject, and different for two installations."""
    subject = message.subject or message.id
    return f"crawlyard-{hashlib.sha256(subject.encode()).hexdigest()[:32]}"


def json_object(body: bytes) -> dict[str, Any]:
    """Return the JSON object of a response; empty if it is anything else."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def most_wait(seconds: object) -> float:
    """Return the seconds that a service asks to wait, from 0 to an hour."""
    try:
        value = float(str(seconds))
    except ValueError:
        return 0.0
    return min(max(value, 0.0), 3600.0) if value == value else 0.0


def _retry_after(text: str) -> float:
    # The HTTP-date form is rare, and the back-off covers it.
    return most_wait(text) if text.isascii() and text.isdigit() else 0.0
