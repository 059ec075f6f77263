"""Robots of WeCom groups: what stands in their address is the only secret. 20 messages a minute."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from apps.alerts.engine.channels.base import Answer, Call, Verdict, json_call, judge_code
from apps.alerts.engine.messages import Message

MOST_BYTES: Final = 2048
# "api freq out of limit"
_TOO_MANY: Final = frozenset({45009})
_WAIT_SECONDS: Final = 60.0


def call_of(
    message: Message,
    settings: Mapping[str, Any],
    secrets: Mapping[str, str],
    *,
    receiver: str,
    now: datetime,
) -> Call:
    """One message to the group; only those of type text can name people by their numbers."""
    text: dict[str, Any] = {"content": message.within(MOST_BYTES)}
    mobiles = list(settings.get("mobiles", []))
    if settings.get("all"):
        mobiles.append("@all")
    if mobiles:
        text["mentioned_mobile_list"] = mobiles
    return json_call(secrets.get("url", ""), {"msgtype": "text", "text": text})


def judge(answer: Answer, _settings: Mapping[str, Any]) -> Verdict:
    """``{"errcode": 0, "errmsg": "ok"}`` when it has listened; 93000: no such robot."""
    return judge_code(
        answer, code="errcode", message="errmsg", too_many=_TOO_MANY, wait_seconds=_WAIT_SECONDS
    )
