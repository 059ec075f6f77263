"""HTTP requests and response formats of each channel kind, without network access.

``request_of(kind, ...)`` builds a request, ``read_response(kind, ...)`` interprets the response.
Mail is sent by ``services.mail``.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from types import ModuleType
from typing import Any, Final

from apps.alerts.engine.channels import (
    dingtalk,
    discord,
    feishu,
    ntfy,
    opsgenie,
    pagerduty,
    slack,
    sms,
    teams,
    telegram,
    webhook,
    wecom,
)
from apps.alerts.engine.channels.base import (
    ChannelRequest,
    ChannelResponse,
    SendOutcome,
    SendResult,
)
from apps.alerts.engine.messages import Message

_KINDS: Final[Mapping[str, ModuleType]] = {
    "sms": sms,
    "webhook": webhook,
    "dingtalk": dingtalk,
    "wecom": wecom,
    "feishu": feishu,
    "slack": slack,
    "teams": teams,
    "discord": discord,
    "telegram": telegram,
    "pagerduty": pagerduty,
    "opsgenie": opsgenie,
    "ntfy": ntfy,
}


def recipients_of(kind: str, settings: Mapping[str, Any]) -> list[str]:
    """Return the recipients that need a request each; a single "" if one request reaches all."""
    name = {"mail": "to", "sms": "numbers"}.get(kind)
    return list(settings.get(name, [])) if name else [""]


def request_of(
    kind: str,
    message: Message,
    settings: Mapping[str, Any],
    secrets: Mapping[str, str],
    *,
    receiver: str,
    now: datetime,
) -> ChannelRequest:
    """Return the request that notifies ``receiver``. Raises ``ValueError`` for invalid settings."""
    made = _KINDS[kind].request_of(message, settings, secrets, receiver=receiver, now=now)
    assert isinstance(made, ChannelRequest)  # noqa: S101 - for the type
    return made


def read_response(kind: str, answer: ChannelResponse, settings: Mapping[str, Any]) -> SendResult:
    """Return the outcome of a response; chat robots report errors with HTTP 200."""
    result = _KINDS[kind].read_response(answer, settings)
    assert isinstance(result, SendResult)  # noqa: S101 - for the type
    return result


__all__ = [
    "ChannelRequest",
    "ChannelResponse",
    "SendOutcome",
    "SendResult",
    "read_response",
    "recipients_of",
    "request_of",
]
