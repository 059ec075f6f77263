"""Limit of the length of request heads, against memory exhaustion by anonymous clients.

The server buffers headers until the last one arrives. In addition many Python versions parse
cookies with many backslashes in quadratic time (CVE-2024-7592): one megabyte would block a process
for minutes.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, MutableMapping
from http import HTTPStatus
from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

# Proxies and browsers stay below these limits.
MOST_BYTES: Final = 64 * 1024
MOST_COOKIE_BYTES: Final = 16 * 1024
MOST_BACKSLASHES: Final = 500
_STATUS: Final = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
_BLUNT: Final = (
    f"HTTP/1.1 {_STATUS.value} {_STATUS.phrase}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
).encode()

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class ShortHeads(HttpToolsProtocol):
    """uvicorn's protocol, which closes a connection whose head exceeds the limit."""

    # Bytes since the request or the last body part began; trailers count as headers.
    _without_body = 0

    def data_received(self, data: bytes) -> None:
        """Close the connection when the head is too long, else pass the data on."""
        if self._without_body > MOST_BYTES:
            if self.cycle is None or self.cycle.response_complete:
                self.transport.write(_BLUNT)
            self.transport.close()
            return
        self._without_body += len(data)
        super().data_received(data)

    def on_message_begin(self) -> None:
        self._without_body = 0
        super().on_message_begin()

    def on_body(self, body: bytes) -> None:
        self._without_body = 0
        super().on_body(body)


class HeadLimit:
    """Answer 431, or refuse a websocket, before the headers are parsed."""

    def __init__(self, application: Callable[..., Awaitable[Any]]) -> None:
        self._application = application

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket") or _is_short(scope["headers"]):
            await self._application(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close"})
        else:
            await _refuse(send)


def _is_short(headers: list[tuple[bytes, bytes]]) -> bool:
    cookies = [value for name, value in headers if name == b"cookie"]
    return (
        sum(len(name) + len(value) for name, value in headers) <= MOST_BYTES
        and sum(map(len, cookies)) <= MOST_COOKIE_BYTES
        and sum(value.count(b"\\") for value in cookies) <= MOST_BACKSLASHES
    )


async def _refuse(send: Send) -> None:
    detail = f"at most {MOST_BYTES} bytes of headers, {MOST_COOKIE_BYTES} of cookies"
    body = json.dumps({"code": "headers_too_large", "detail": detail}).encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"connection", b"close"),
    ]
    await send({"type": "http.response.start", "status": _STATUS.value, "headers": headers})
    await send({"type": "http.response.body", "body": body})
