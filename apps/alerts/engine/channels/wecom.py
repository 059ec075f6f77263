"""Robots of WeCom groups. The key in the URL is their only secret. Rate limit: 20 a minute."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from apps.alerts.engine.channels.base import (
    ChannelRequest,
    ChannelResponse,
    SendResult,
    json_call,
    result_of_code,
)
from apps.alerts.engine.messages import Message

MOST_BYTES: Final = 2048
# "api freq out of limit"
_TOO_MANY: Final = frozenset({45009})
_WAIT_SECONDS: Final = 60.0


def request_of(
    message: Message,
    settings: Mapping[str, Any],
    secrets: Mapping[str, str],
    *,
    receiver: str,
    now: datetime,
) -> ChannelRequest:
    """Return the request for one message; only type ``text`` can mention people by phone number."""
    text: dict[str, Any] = {"content": message.within(MOST_BYTES)}
    mobiles = list(settings.get("mobiles", []))
    if settings.get("all"):
        mobiles.append("@all")
    if mobiles:
        text["mentioned_mobile_list"] = mobiles
    return json_call(secrets.get("url", ""), {"msgtype": "text", "text": text})


def read_response(answer: ChannelResponse, _settings: Mapping[str, Any]) -> SendResult:
    """Interpret ``{"errcode": 0, "errmsg": "ok"}``; 93000 means unknown robot."""
    return result_of_code(
        answer, code="errcode", message="errmsg", too_many=_TOO_MANY, wait_seconds=_WAIT_SECONDS
    )
