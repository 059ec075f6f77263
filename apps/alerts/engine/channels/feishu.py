"""Custom robots of Feishu and Lark groups.

Signed robots want ``timestamp`` (seconds, at most an hour off) and ``sign`` in the body:
HMAC-SHA256 over nothing, with "timestamp\\nsecret" as the key, base64. 100 messages a minute, 5 a
second. Rich text is built of parts, so nothing in a name or an error becomes a link.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from apps.alerts.engine.channels.base import Answer, Call, Verdict, json_call, judge_code
from apps.alerts.engine.messages import Message, cut_bytes

MOST_BYTES: Final = 15_000
# "frequency limited"
_TOO_MANY: Final = frozenset({11232})
_WAIT_SECONDS: Final = 60.0


def call_of(
    message: Message,
    settings: Mapping[str, Any],
    secrets: Mapping[str, str],
    *,
    receiver: str,
    now: datetime,
) -> Call:
    """One message to the group."""
    text = cut_bytes("\n".join(message.lines), MOST_BYTES)
    rows: list[list[dict[str, str]]] = [[{"tag": "text", "text": row}] for row in text.split("\n")]
    rows += [[{"tag": "a", "text": words, "href": address}] for words, address in message.links]
    if settings.get("all"):
        rows.append([{"tag": "at", "user_id": "all"}])
    # One language is enough: it is shown to readers of every other.
    post = {"zh_cn": {"title": message.title, "content": rows}}
    body: dict[str, Any] = {"msg_type": "post", "content": {"post": post}}
    if key := secrets.get("key", ""):
        timestamp = str(int(now.timestamp()))
        body = {"timestamp": timestamp, "sign": sign(key, timestamp), **body}
    return json_call(secrets.get("url", ""), body)


def sign(key: str, timestamp: str) -> str:
    """The value of ``sign``."""
    digest = hmac.new(f"{timestamp}\n{key}".encode(), b"", hashlib.sha256).digest()
    return base64.b64encode(digest).decode()


def judge(answer: Answer, _settings: Mapping[str, Any]) -> Verdict:
    """``{"code": 0, "msg": "success"}`` when it has listened; 19021: the key or the clock."""
    return judge_code(
        answer, code="code", message="msg", too_many=_TOO_MANY, wait_seconds=_WAIT_SECONDS
    )
