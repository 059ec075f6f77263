"""Custom robots of DingTalk groups.

Signed robots require ``timestamp`` (milliseconds) and ``sign`` in the URL: HMAC-SHA256 with the
secret over "timestamp\\nsecret", in base64. Rate limit: 20 messages a minute, then blocked for
ten minutes. Plain text, so that names and errors cannot become links or headings.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final
from urllib.parse import urlencode

from apps.alerts.engine.channels.base import (
    ChannelRequest,
    ChannelResponse,
    SendResult,
    json_call,
    result_of_code,
)
from apps.alerts.engine.messages import Message

MOST_BYTES: Final = 15_000
# "send too fast, exceed 20 times per minute", under its old and its new number.
_TOO_MANY: Final = frozenset({130101, 410100})
_WAIT_SECONDS: Final = 600.0


def request_of(
    message: Message,
    settings: Mapping[str, Any],
    secrets: Mapping[str, str],
    *,
    receiver: str,
    now: datetime,
) -> ChannelRequest:
    """Return the request for one message to the group."""
    url = secrets.get("url", "")
    if key := secrets.get("key", ""):
        timestamp = str(int(now.timestamp() * 1000))
        signed = {"timestamp": timestamp, "sign": sign(key, timestamp)}
        url = f"{url}{'&' if '?' in url else '?'}{urlencode(signed)}"
    mobiles = list(settings.get("mobiles", []))
    # DingTalk alerts only the members whose numbers are also mentioned in the text.
    called = " ".join(f"@{mobile}" for mobile in mobiles)
    text = "\n".join([message.within(MOST_BYTES - len(called) - 1), called]).rstrip()
    return json_call(
        url,
        {
            "msgtype": "text",
            "text": {"content": text},
            "at": {"atMobiles": mobiles, "isAtAll": bool(settings.get("all"))},
        },
    )


def sign(key: str, timestamp: str) -> str:
    """Return the value of ``sign``, before URL quoting."""
    digest = hmac.new(key.encode(), f"{timestamp}\n{key}".encode(), hashlib.sha256).digest()
    return base64.b64encode(digest).decode()


def read_response(answer: ChannelResponse, _settings: Mapping[str, Any]) -> SendResult:
    """Interpret ``{"errcode": 0, "errmsg": "ok"}``; 310000 means key, keyword or IP rejected."""
    return result_of_code(
        answer, code="errcode", message="errmsg", too_many=_TOO_MANY, wait_seconds=_WAIT_SECONDS
    )
