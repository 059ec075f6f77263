"""Alert API of Opsgenie: an incident creates an alert, its recovery closes it by its alias."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final
from urllib.parse import quote

from apps.alerts.engine.channels.base import (
    ChannelRequest,
    ChannelResponse,
    SendOutcome,
    SendResult,
    alert_key,
    json_call,
    most_wait,
    result_of_status,
)
from apps.alerts.engine.messages import Message, cut_bytes, one_line

SERVER: Final = "https://api.opsgenie.com"
MOST_MESSAGE: Final = 130
MOST_BYTES: Final = 14_000
_PRIORITIES: Final = {"critical": "P1", "warning": "P3"}


def request_of(
    message: Message,
    settings: Mapping[str, Any],
    secrets: Mapping[str, str],
    *,
    receiver: str,
    now: datetime,
) -> ChannelRequest:
    """Return the request that creates or closes the alert."""
    server = str(settings.get("url") or SERVER).rstrip("/")
    alias = alert_key(message)
    if message.is_over:
        url = f"{server}/v2/alerts/{quote(alias, safe='')}/close?identifierType=alias"
        body: dict[str, Any] = {"source": "crawlyard", "note": message.title}
    else:
        url = f"{server}/v2/alerts"
        facts = message.data.get("facts") or {}
        body = {
            "message": one_line(message.title, MOST_MESSAGE),
            "alias": alias,
            "description": message.within(MOST_BYTES),
            "priority": _PRIORITIES.get(message.severity, "P5"),
            "source": "crawlyard",
            "tags": [tag for tag in (message.data.get("project"), message.severity) if tag],
            "details": {str(name): cut_bytes(str(text), 500) for name, text in facts.items()},
        }
    request = json_call(url, body)
    headers = {**request.headers, "Authorization": f"GenieKey {secrets.get('key', '')}"}
    return ChannelRequest(url=request.url, body=request.body, headers=headers)


def read_response(answer: ChannelResponse, _settings: Mapping[str, Any]) -> SendResult:
    """Accept 202; a rate limit names its period in ``X-RateLimit-Period-In-Sec``."""
    result = result_of_status(answer)
    if result.outcome is SendOutcome.TOO_MANY:
        period = most_wait(answer.headers.get("x-ratelimit-period-in-sec"))
        return SendResult(SendOutcome.TOO_MANY, result.answer, max(period, result.wait_seconds))
    return result
