"""A POST of JSON, signed as Standard Webhooks asks for.

{"type": "incident.opened", "timestamp": "...", "data": {...}}
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from apps.alerts.engine.channels.base import Answer, Call, Verdict, judge_status
from apps.alerts.engine.messages import Message
from yardkit.standard_webhooks import signed_headers


def call_of(
    message: Message,
    settings: Mapping[str, Any],
    secrets: Mapping[str, str],
    *,
    receiver: str,
    now: datetime,
) -> Call:
    """The call; two keys with a blank between them sign both, so that receivers can change."""
    told = {
        "type": message.event,
        "timestamp": message.at.astimezone(UTC).isoformat().replace("+00:00", "Z"),
        "data": dict(message.data),
    }
    body = json.dumps(told, ensure_ascii=False, separators=(",", ":")).encode()
    signed = signed_headers(secrets.get("key", "").split(), message.id, int(now.timestamp()), body)
    return Call(
        url=secrets.get("url", ""),
        body=body,
        headers={"Content-Type": "application/json", **signed},
    )


def judge(answer: Answer, _settings: Mapping[str, Any]) -> Verdict:
    """2xx: it has listened; 410: it wants to hear no more."""
    return judge_status(answer)
