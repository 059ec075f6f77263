"""JSON POST, signed according to Standard Webhooks.

{"type": "incident.opened", "timestamp": "...", "data": {...}}
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from apps.alerts.engine.channels.base import (
    ChannelRequest,
    ChannelResponse,
    SendResult,
    result_of_status,
)
from apps.alerts.engine.messages import Message
from yardkit.standard_webhooks import signed_headers


def request_of(
    message: Message,
    settings: Mapping[str, Any],
    secrets: Mapping[str, str],
    *,
    receiver: str,
    now: datetime,
) -> ChannelRequest:
    """Return the signed request. Two keys separated by a space both sign, for key rotation."""
    payload = {
        "type": message.event,
        "timestamp": message.at.astimezone(UTC).isoformat().replace("+00:00", "Z"),
        "data": dict(message.data),
    }
    body = json.dumps(payload, ensure_ascii=False, separators=(",", ":")).encode()
    signed = signed_headers(secrets.get("key", "").split(), message.id, int(now.timestamp()), body)
    return ChannelRequest(
        url=secrets.get("url", ""),
        body=body,
        headers={"Content-Type": "application/json", **signed},
    )


def read_response(answer: ChannelResponse, _settings: Mapping[str, Any]) -> SendResult:
    """Accept 2xx; 410 means that the receiver wants no further requests."""
    return result_of_status(answer)
