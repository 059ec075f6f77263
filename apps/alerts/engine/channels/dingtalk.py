"""Custom robots of DingTalk groups.

Signed robots want ``timestamp`` (milliseconds) and ``sign`` in the address: HMAC-SHA256 with the
secret over "timestamp\\nsecret", base64. A robot takes 20 messages a minute, then none for ten.
Plain text: names and errors in it cannot become links or headings.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final
from urllib.parse import urlencode

from apps.alerts.engine.channels.base import Answer, Call, Verdict, json_call, judge_code
from apps.alerts.engine.messages import Message

MOST_BYTES: Final = 15_000
# "send too fast, exceed 20 times per minute", under its old and its new number.
_TOO_MANY: Final = frozenset({130101, 410100})
_WAIT_SECONDS: Final = 600.0


def call_of(
    message: Message,
    settings: Mapping[str, Any],
    secrets: Mapping[str, str],
    *,
    receiver: str,
    now: datetime,
) -> Call:
    """One message to the group."""
    url = secrets.get("url", "")
    if key := secrets.get("key", ""):
        timestamp = str(int(now.timestamp() * 1000))
        signed = {"timestamp": timestamp, "sign": sign(key, timestamp)}
        url = f"{url}{'&' if '?' in url else '?'}{urlencode(signed)}"
    mobiles = list(settings.get("mobiles", []))
    # Whoever is named in the text is called by name, too.
    called = " ".join(f"@{each}" for each in mobiles)
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
    """The value of ``sign``, before it is quoted for the address."""
    digest = hmac.new(key.encode(), f"{timestamp}\n{key}".encode(), hashlib.sha256).digest()
    return base64.b64encode(digest).decode()


def judge(answer: Answer, _settings: Mapping[str, Any]) -> Verdict:
    """``{"errcode": 0, "errmsg": "ok"}`` when it has listened; 310000: key, word or address."""
    return judge_code(
        answer, code="errcode", message="errmsg", too_many=_TOO_MANY, wait_seconds=_WAIT_SECONDS
    )
