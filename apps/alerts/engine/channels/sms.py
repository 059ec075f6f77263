"""Text messages through any HTTP gateway.

URL, headers and body are templates with ``{number}``, ``{text}``, ``{id}`` and ``{secret}``. Values
are escaped for their place, so that no text can add a parameter.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final
from urllib.parse import parse_qsl, quote, urlencode

from apps.alerts.engine.channels.base import (
    JSON_TYPE,
    ChannelRequest,
    ChannelResponse,
    SendOutcome,
    SendResult,
    result_of_status,
)
from apps.alerts.engine.messages import Message

DEFAULT_CHARACTERS: Final = 200
PLACE: Final = re.compile(r"\{(number|text|id|secret)\}")
_DEPTH: Final = 10


def request_of(
    message: Message,
    settings: Mapping[str, Any],
    secrets: Mapping[str, str],
    *,
    receiver: str,
    now: datetime,
) -> ChannelRequest:
    """Return the request for one number. Raises ``ValueError`` for a body that is not JSON."""
    values = {
        "number": receiver,
        "text": message.short(int(settings.get("characters") or DEFAULT_CHARACTERS)),
        "id": message.id,
        "secret": secrets.get("secret", ""),
    }
    headers = {
        name: fill(value, values, _header) for name, value in settings.get("headers", {}).items()
    }
    template, content = str(settings.get("body", "")), settings.get("content", "json")
    if not template:
        body = b""
    elif content == "json":
        body = json.dumps(_filled(json.loads(template), values, 0), ensure_ascii=False).encode()
        headers.setdefault("Content-Type", JSON_TYPE)
    else:
        fields = parse_qsl(template, keep_blank_values=True, strict_parsing=True)
        body = urlencode([(name, fill(value, values)) for name, value in fields]).encode()
        headers.setdefault("Content-Type", "application/x-www-form-urlencoded; charset=utf-8")
    return ChannelRequest(
        url=fill(str(settings.get("url", "")), values, lambda text: quote(text, safe="")),
        method=str(settings.get("method", "POST")),
        body=body,
        headers=headers,
    )


def read_response(answer: ChannelResponse, settings: Mapping[str, Any]) -> SendResult:
    """Require status 2xx and, if configured, the success text in the response."""
    result = result_of_status(answer)
    wanted = str(settings.get("success", ""))
    if (
        result.outcome is SendOutcome.SENT
        and wanted
        and wanted not in answer.body.decode(errors="replace")
    ):
        return SendResult(SendOutcome.REFUSED, result.answer)
    return result


def fill(
    template: str, values: Mapping[str, str], quoted: Callable[[str], str] = lambda text: text
) -> str:
    """Fill a template with values; placeholders within values are not expanded."""
    return PLACE.sub(lambda place: quoted(values[place[1]]), template)


def _filled(value: Any, values: Mapping[str, str], depth: int) -> Any:
    if depth > _DEPTH:
        raise ValueError("the body is too deep")
    if isinstance(value, str):
        return fill(value, values)
    if isinstance(value, list):
        return [_filled(part, values, depth + 1) for part in value]
    if isinstance(value, dict):
        return {name: _filled(part, values, depth + 1) for name, part in value.items()}
    return value


def _header(text: str) -> str:
    # Headers allow printable ASCII only.
    return "".join(sign for sign in text if " " <= sign <= "~")
