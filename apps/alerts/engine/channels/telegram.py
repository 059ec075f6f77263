"""Bots of Telegram, by the method ``sendMessage`` of the Bot API.

Plain text without ``parse_mode``, so that names and errors cannot become links. About 20 messages
a minute to a group, then error 429 with ``parameters.retry_after``.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from apps.alerts.engine.channels.base import (
    ANSWER_CHARACTERS,
    ChannelRequest,
    ChannelResponse,
    SendOutcome,
    SendResult,
    json_call,
    json_object,
    most_wait,
    result_of_status,
)
from apps.alerts.engine.messages import Message, one_line

SERVER: Final = "https://api.telegram.org"
# Telegram allows 4096 characters.
MOST_BYTES: Final = 4000


def request_of(
    message: Message,
    settings: Mapping[str, Any],
    secrets: Mapping[str, str],
    *,
    receiver: str,
    now: datetime,
) -> ChannelRequest:
    """Return the request for one message to a chat, group or topic."""
    body: dict[str, Any] = {
        "chat_id": settings.get("chat", ""),
        "text": message.within(MOST_BYTES),
        "link_preview_options": {"is_disabled": True},
    }
    if topic := settings.get("topic"):
        body["message_thread_id"] = int(topic)
    server = str(settings.get("url") or SERVER).rstrip("/")
    return json_call(f"{server}/bot{secrets.get('token', '')}/sendMessage", body)


def read_response(answer: ChannelResponse, _settings: Mapping[str, Any]) -> SendResult:
    """Interpret ``{"ok": true}``, or ``error_code`` with ``description``."""
    parsed = json_object(answer.body)
    if "ok" not in parsed:
        # Not Telegram's format: a proxy answered instead.
        result = result_of_status(answer)
        is_sent = result.outcome is SendOutcome.SENT
        return SendResult(SendOutcome.REFUSED, result.answer) if is_sent else result
    if parsed["ok"] is True:
        return SendResult(SendOutcome.SENT, "ok")
    text = one_line(
        f"{parsed.get('error_code', answer.status)} {parsed.get('description', '')}",
        ANSWER_CHARACTERS,
    )
    if parsed.get("error_code") == 429:
        more = parsed.get("parameters")
        wait = most_wait(more.get("retry_after") if isinstance(more, dict) else None)
        return SendResult(SendOutcome.TOO_MANY, text, wait or 60.0)
    return SendResult(SendOutcome.REFUSED, text)
