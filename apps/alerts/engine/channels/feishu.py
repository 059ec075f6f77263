"""Custom robots of Feishu and Lark groups.

Signed robots require ``timestamp`` (seconds, at most an hour off) and ``sign`` in the body:
HMAC-SHA256 over an empty message with "timestamp\\nsecret" as the key, in base64. Rate limits: 100
messages a minute and 5 a second. Rich text is built of parts, so that names and errors cannot
become links.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
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
from apps.alerts.engine.messages import Message, cut_bytes

MOST_BYTES: Final = 15_000
# "frequency limited"
_TOO_MANY: Final = frozenset({11232})
_WAIT_SECONDS: Final = 60.0


def request_of(
    message: Message,
    settings: Mapping[str, Any],
    secrets: Mapping[str, str],
    *,
    receiver: str,
    now: datetime,
) -> ChannelRequest:
    """Return the request for one message to the group."""
    text = cut_bytes("\n".join(message.lines), MOST_BYTES)
    rows: list[list[dict[str, str]]] = [[{"tag": "text", "text": row}] for row in text.split("\n")]
    rows += [[{"tag": "a", "text": words, "href": address}] for words, address in message.links]
    if settings.get("all"):
        rows.append([{"tag": "at", "user_id": "all"}])
    # Shown to readers of every language.
    post = {"zh_cn": {"title": message.title, "content": rows}}
    body: dict[str, Any] = {"msg_type": "post", "content": {"post": post}}
    if key := secrets.get("key", ""):
        timestamp = str(int(now.timestamp()))
        body = {"timestamp": timestamp, "sign": sign(key, timestamp), **body}
    return json_call(secrets.get("url", ""), body)


def sign(key: str, timestamp: str) -> str:
    digest = hmac.new(f"{timestamp}\n{key}".encode(), b"", hashlib.sha256).digest()
    return base64.b64encode(digest).decode()


def read_response(answer: ChannelResponse, _settings: Mapping[str, Any]) -> SendResult:
    """Interpret ``{"code": 0, "msg": "success"}``; 19021 means wrong key or clock."""
    return result_of_code(
        answer, code="code", message="msg", too_many=_TOO_MANY, wait_seconds=_WAIT_SECONDS
    )
