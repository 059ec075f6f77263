"""Events API v2 of PagerDuty: an incident triggers an alert, its recovery resolves it.

The deduplication key is that of the incident, so that repetitions join the alert that is open.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from apps.alerts.engine.channels.base import (
    ChannelRequest,
    ChannelResponse,
    SendResult,
    alert_key,
    json_call,
    result_of_status,
)
from apps.alerts.engine.messages import Message, cut_bytes

SERVER: Final = "https://events.pagerduty.com"
MOST_SUMMARY: Final = 1024
MOST_BYTES: Final = 15_000
_SEVERITIES: Final = {"critical": "critical", "warning": "warning"}


def request_of(
    message: Message,
    settings: Mapping[str, Any],
    secrets: Mapping[str, str],
    *,
    receiver: str,
    now: datetime,
) -> ChannelRequest:
    """Return the event of a message."""
    body: dict[str, Any] = {
        "routing_key": secrets.get("key", ""),
        "event_action": "resolve" if message.is_over else "trigger",
        "dedup_key": alert_key(message),
    }
    if not message.is_over:
        body |= {
            "payload": {
                "summary": message.title[:MOST_SUMMARY],
                "source": str(message.data.get("key") or message.place or "crawlyard")[:255],
                "severity": _SEVERITIES.get(message.severity, "info"),
                "timestamp": message.at.astimezone(UTC).isoformat(),
                "component": message.data.get("project") or "crawlyard",
                "class": message.data.get("source") or message.event,
                "custom_details": {"text": cut_bytes("\n".join(message.lines), MOST_BYTES)},
            },
            "client": "Crawlyard",
            "links": [{"href": address, "text": text} for text, address in message.links],
        }
        if message.links:
            body["client_url"] = message.links[0][1]
    server = str(settings.get("url") or SERVER).rstrip("/")
    return json_call(f"{server}/v2/enqueue", body)


def read_response(answer: ChannelResponse, _settings: Mapping[str, Any]) -> SendResult:
    """Accept 202; 400 is an invalid event or key, 429 more than 120 events a minute."""
    return result_of_status(answer)
