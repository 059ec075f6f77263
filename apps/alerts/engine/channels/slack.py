"""Incoming webhooks of Slack.

Answers are plain text: "ok", or an error such as ``no_service``. About one message a second, then
HTTP 429 with ``Retry-After``. Facts are plain text, so that names and errors cannot become links
or mentions.
"""

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
    result_of_status,
)
from apps.alerts.engine.messages import Message

MOST_TITLE: Final = 150
MOST_TEXT: Final = 3000


def request_of(
    message: Message,
    settings: Mapping[str, Any],
    secrets: Mapping[str, str],
    *,
    receiver: str,
    now: datetime,
) -> ChannelRequest:
    """Return the request for one message to the Slack channel of the webhook."""
    blocks: list[dict[str, Any]] = [{"type": "header", "text": _plain(message.title[:MOST_TITLE])}]
    if message.lines:
        blocks.append({"type": "section", "text": _plain("\n".join(message.lines)[:MOST_TEXT])})
    links = " · ".join(f"<{address}|{_escaped(text)}>" for text, address in message.links)
    if links:
        text = f"<!channel> {links}" if settings.get("all") else links
        blocks.append({"type": "section", "text": {"type": "mrkdwn", "text": text}})
    # Shown in notifications of the operating system, and by clients without blocks.
    return json_call(
        secrets.get("url", ""),
        {"text": _escaped(message.title), "blocks": blocks, "unfurl_links": False},
    )


def read_response(answer: ChannelResponse, _settings: Mapping[str, Any]) -> SendResult:
    """Require the body "ok": a proxy or a login page also answers HTTP 200."""
    result = result_of_status(answer)
    if result.outcome is SendOutcome.SENT and answer.body.strip() != b"ok":
        return SendResult(SendOutcome.REFUSED, result.answer)
    return result


def _plain(text: str) -> dict[str, Any]:
    return {"type": "plain_text", "text": text, "emoji": False}


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
