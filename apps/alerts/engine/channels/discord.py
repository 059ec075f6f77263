"""Webhooks of Discord.

30 messages a minute for a webhook, then HTTP 429 with ``Retry-After`` and ``retry_after`` in
seconds. Texts are escaped and mentions disabled, so that names and errors cannot ping anybody.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from apps.alerts.engine.channels.base import (
    ChannelRequest,
    ChannelResponse,
    SendOutcome,
    SendResult,
    json_call,
    json_object,
    most_wait,
    result_of_status,
)
from apps.alerts.engine.messages import Message

MOST_TITLE: Final = 256
MOST_TEXT: Final = 3000
_MARKUP: Final = re.compile(r"([\\*_~`|>\[\]()#<@:-])")
_COLORS: Final = {"critical": 0xDC2626, "warning": 0xD97706}
_GREEN: Final = 0x16A34A
_BLUE: Final = 0x2563EB


def request_of(
    message: Message,
    settings: Mapping[str, Any],
    secrets: Mapping[str, str],
    *,
    receiver: str,
    now: datetime,
) -> ChannelRequest:
    """Return the request for one message; ``wait`` makes Discord answer with it."""
    color = _GREEN if message.is_over else _COLORS.get(message.severity, _BLUE)
    embed: dict[str, Any] = {
        "title": message.title[:MOST_TITLE],
        "description": _escaped("\n".join(message.lines))[:MOST_TEXT],
        "color": color,
        "timestamp": message.at.astimezone(UTC).isoformat(),
    }
    if message.links:
        embed["url"] = message.links[0][1]
    more = " · ".join(f"[{_escaped(text)}]({address})" for text, address in message.links[1:])
    if more:
        embed["description"] = f"{embed['description']}\n{more}"
    everyone = bool(settings.get("all"))
    body: dict[str, Any] = {
        "embeds": [embed],
        "allowed_mentions": {"parse": ["everyone"] if everyone else []},
    }
    if everyone:
        body["content"] = "@everyone"
    url = secrets.get("url", "")
    return json_call(f"{url}{'&' if '?' in url else '?'}wait=true", body)


def read_response(answer: ChannelResponse, _settings: Mapping[str, Any]) -> SendResult:
    """Accept the created message; errors are JSON with ``code`` and ``message``."""
    result = result_of_status(answer)
    parsed = json_object(answer.body)
    if result.outcome is SendOutcome.SENT:
        if answer.status != 204 and "id" not in parsed:
            return SendResult(SendOutcome.REFUSED, result.answer)
        # The answer repeats the whole message.
        return SendResult(SendOutcome.SENT, f"HTTP {answer.status}: {parsed.get('id', '')}")
    if result.outcome is SendOutcome.TOO_MANY:
        wait = most_wait(parsed.get("retry_after"))
        return SendResult(SendOutcome.TOO_MANY, result.answer, max(wait, result.wait_seconds))
    return result


def _escaped(text: str) -> str:
    return _MARKUP.sub(r"\\\1", text)
