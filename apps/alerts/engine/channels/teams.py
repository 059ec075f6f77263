"""Workflow webhooks of Microsoft Teams, with an adaptive card.

The workflow "Post to a channel when a webhook request is received" answers HTTP 202 with an empty
body. Cards may have 28 KB. Rich text blocks show plain text, so that names and errors cannot
become links.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from apps.alerts.engine.channels.base import (
    ChannelRequest,
    ChannelResponse,
    SendResult,
    json_call,
    result_of_status,
)
from apps.alerts.engine.messages import Message, cut_bytes

MOST_BYTES: Final = 15_000
_COLORS: Final = {"critical": "Attention", "warning": "Warning"}


def request_of(
    message: Message,
    settings: Mapping[str, Any],
    secrets: Mapping[str, str],
    *,
    receiver: str,
    now: datetime,
) -> ChannelRequest:
    """Return the request for one message to the channel or chat of the workflow."""
    color = "Good" if message.is_over else _COLORS.get(message.severity, "Default")
    title = {"weight": "Bolder", "size": "Medium", "color": color}
    rows = cut_bytes("\n".join(message.lines), MOST_BYTES).split("\n")
    card = {
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.4",
        "msteams": {"width": "Full"},
        "fallbackText": message.title,
        "body": [_block(message.title, **title), *(_block(row) for row in rows if row)],
        "actions": [
            {"type": "Action.OpenUrl", "title": text, "url": address}
            for text, address in message.links
        ],
    }
    attachment = {
        "contentType": "application/vnd.microsoft.card.adaptive",
        "contentUrl": None,
        "content": card,
    }
    body = {"type": "message", "attachments": [attachment]}
    return json_call(secrets.get("url", ""), body)


def read_response(answer: ChannelResponse, _settings: Mapping[str, Any]) -> SendResult:
    """Accept 2xx; errors are JSON with ``error.code`` and ``error.message``."""
    return result_of_status(answer)


def _block(text: str, **style: str) -> dict[str, Any]:
    return {"type": "RichTextBlock", "inlines": [{"type": "TextRun", "text": text, **style}]}
