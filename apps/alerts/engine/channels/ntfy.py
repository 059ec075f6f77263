"""Push messages by ntfy, on ntfy.sh or an own server; published as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from apps.alerts.engine.channels.base import (
    ChannelRequest,
    ChannelResponse,
    SendOutcome,
    SendResult,
    json_call,
    json_object,
    result_of_status,
)
from apps.alerts.engine.messages import Message, cut_bytes

SERVER: Final = "https://ntfy.sh"
# ntfy turns more than 4096 bytes into an attachment.
MOST_BYTES: Final = 3900
MOST_TITLE: Final = 250
_PRIORITIES: Final = {"critical": 5, "warning": 4}
_TAGS: Final = {"critical": "rotating_light", "warning": "warning"}


def request_of(
    message: Message,
    settings: Mapping[str, Any],
    secrets: Mapping[str, str],
    *,
    receiver: str,
    now: datetime,
) -> ChannelRequest:
    """Return the request that publishes to the topic."""
    body: dict[str, Any] = {
        "topic": secrets.get("topic", ""),
        "title": cut_bytes(message.title, MOST_TITLE),
        "message": cut_bytes("\n".join(message.lines) or message.title, MOST_BYTES),
        "priority": 3 if message.is_over else _PRIORITIES.get(message.severity, 3),
    }
    tag = "white_check_mark" if message.is_over else _TAGS.get(message.severity)
    if tag:
        body["tags"] = [tag]
    if message.links:
        body["click"] = message.links[0][1]
    request = json_call(str(settings.get("url") or SERVER), body)
    headers = dict(request.headers)
    if token := secrets.get("token", ""):
        headers["Authorization"] = f"Bearer {token}"
    return ChannelRequest(url=request.url, body=request.body, headers=headers)


def read_response(answer: ChannelResponse, _settings: Mapping[str, Any]) -> SendResult:
    """Accept the published message; errors are JSON with ``code`` and ``error``."""
    result = result_of_status(answer)
    parsed = json_object(answer.body)
    if result.outcome is SendOutcome.SENT:
        if parsed.get("event") != "message":
            return SendResult(SendOutcome.REFUSED, result.answer)
        return SendResult(SendOutcome.SENT, f"HTTP {answer.status}: {parsed.get('id', '')}")
    return result
