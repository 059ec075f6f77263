"""Limit of the size of request bodies, applied before a body is stored.

Django writes a whole body to disk before any view sees it and before authentication: without a
limit an anonymous client could fill the disk through the login page.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import suppress
from typing import Any, Final

from django.conf import settings

from apps.requeststore.engine.limits import MAX_BODY_BYTES as MAX_REQUESTS_BYTES
from apps.routing.engine.submissions import MOST_BYTES
from apps.seeds.engine.limits import MAX_BODY_BYTES, MAX_IMPORT_BYTES

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[..., Awaitable[Any]]

_WEBHOOKS: Final = "/webhooks/"
_TASKS: Final = re.compile(r"(?:/projects/[^/]+)?/(?:task|inbound/.+/check_task)/?", re.DOTALL)
_REST_TASKS: Final = re.compile(r"/api/v1/routing/projects/[0-9]+/task/?")
_REQUESTS: Final = re.compile(r"/api/v1/requests/?")
_SEEDS: Final = re.compile(r"/api/v1/frontiers/[0-9]+/([^/]+)/?")
# Files sent to other pages and REST are shorter; views apply their own limits later.
MOST_ELSEWHERE: Final = MAX_REQUESTS_BYTES
# Limits of reading the rest of a refused body, in bytes and seconds.
DISCARDED_BYTES: Final = 256 * 1024 * 1024
DISCARD_SECONDS: Final = 10.0


class BodyLimitExceeded(Exception):
    """The body exceeds the limit; its length was not declared in ``Content-Length``."""


class BodyLimit:
    """Answer 413: at once by ``Content-Length``, else when the limit is passed.

    Below ``/webhooks/`` the limit is ``WEBHOOK_MAX_BYTES``; tasks, stored requests and seeds have
    limits by call or file; elsewhere ``MOST_ELSEWHERE``.
    """

    def __init__(self, application: Application) -> None:
        self._application = application

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._application(scope, receive, send)
            return
        limit = _limit_of(scope["path"])
        if _declared_length(scope) > limit:
            await _refuse(scope, receive, send, limit)
            return
        read = 0

        async def counted() -> Message:
            nonlocal read
            message = await receive()
            read += len(message.get("body", b""))
            if read > limit:
                raise BodyLimitExceeded
            return message

        try:
            await self._application(scope, counted, send)
        except BodyLimitExceeded:
            # Raised while the body is read, so no response has begun.
            await _refuse(scope, receive, send, limit)


def _limit_of(path: str) -> int:
    if path.startswith(_WEBHOOKS):
        limit: int = settings.WEBHOOK_MAX_BYTES
        return limit
    if _TASKS.fullmatch(path) or _REST_TASKS.fullmatch(path):
        return MOST_BYTES
    if _REQUESTS.fullmatch(path):
        return MAX_REQUESTS_BYTES
    if seeds := _SEEDS.fullmatch(path):
        return MAX_IMPORT_BYTES if seeds[1] == "import" else MAX_BODY_BYTES
    return MOST_ELSEWHERE


def _declared_length(scope: Scope) -> int:
    for name, value in scope["headers"]:
        if name == b"content-length" and value.isdigit():
            return int(value[:20])
    return 0


async def _refuse(scope: Scope, receive: Receive, send: Send, limit: int) -> None:
    detail = f"at most {limit} bytes"
    body = json.dumps({"code": "body_too_large", "detail": detail}).encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        # A longer body is not read to its end, so the connection cannot be reused.
        (b"connection", b"close"),
    ]
    await send({"type": "http.response.start", "status": 413, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": True})
    # With ``Expect: 100-continue`` the client does not send the body before this server asks.
    if not any(name == b"expect" for name, _value in scope["headers"]):
        await _discard(receive)
    await send({"type": "http.response.body", "body": b""})


async def _discard(receive: Receive) -> None:
    """Read the rest of a body: many clients read a response only after sending everything.

    If the connection closed earlier, they would see a broken pipe instead of the response.
    """
    left = DISCARDED_BYTES
    with suppress(TimeoutError):
        async with asyncio.timeout(DISCARD_SECONDS):
            while left > 0:
                message = await receive()
                if not message.get("more_body"):
                    return
                left -= len(message["body"])
