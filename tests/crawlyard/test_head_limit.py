"""Headers of strangers: none is kept, or read, that is longer than any browser sends."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
import uvicorn

from crawlyard.head_limit import (
    MOST_BACKSLASHES,
    MOST_BYTES,
    MOST_COOKIE_BYTES,
    HeadLimit,
    ShortHeads,
)

COOKIES = b"a=" + b"b" * (MOST_COOKIE_BYTES - 2)
ESCAPES = b'a="' + b"\\054" * MOST_BACKSLASHES + b'"'


async def echo(scope: Any, receive: Any, send: Any) -> None:
    """Takes the body, and says how long it was."""
    size, more = 0, True
    while more:
        message = await receive()
        size += len(message.get("body", b""))
        more = message.get("more_body", False)
    body = str(size).encode()
    headers = [(b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def answered(headers: list[tuple[bytes, bytes]], kind: str = "http") -> dict[str, Any]:
    told: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b""}

    async def send(message: Any) -> None:
        told.append(message)

    asyncio.run(HeadLimit(echo)({"type": kind, "headers": headers}, receive, send))
    return dict(told[0])


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ([(b"cookie", COOKIES)], 200),
        ([(b"cookie", COOKIES + b"b")], 431),
        ([(b"cookie", COOKIES), (b"cookie", b"c=d")], 431),
        ([(b"cookie", ESCAPES)], 200),
        ([(b"cookie", ESCAPES + b"\\")], 431),
        ([(b"x", b"\\" * (MOST_BYTES - 1))], 200),
        ([(b"x", b"\\" * MOST_BYTES)], 431),
        ([(b"x", b"y")] * (MOST_BYTES // 2 + 1), 431),
    ],
)
def test_what_is_too_long_is_refused_unread(
    headers: list[tuple[bytes, bytes]], status: int
) -> None:
    assert answered(headers)["status"] == status


def test_a_websocket_with_too_much_is_refused() -> None:
    assert answered([(b"cookie", COOKIES + b"b")], "websocket") == {"type": "websocket.close"}


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """Of a server like that of the web process."""
    with socket.create_server(("127.0.0.1", 0)) as bound:
        config = uvicorn.Config(echo, http=ShortHeads, lifespan="off", log_config=None)
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, args=([bound],), daemon=True)
        thread.start()
        yield bound.getsockname()[1]
        server.should_exit = True
        thread.join(10)


def sent(port: int, *pieces: bytes) -> tuple[int, bytes]:
    """(bytes that were taken, the answer)."""
    taken, answer = 0, b""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as client:
        with suppress(OSError):
            for piece in pieces:
                client.sendall(piece)
                taken += len(piece)
        with suppress(OSError):
            while part := client.recv(65_536):
                answer += part
    return taken, answer


PIECE = b"a" * 65_536
GET = b"GET / HTTP/1.1\r\nHost: x\r\nX: "
POST = b"POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    "begin", [GET, POST + b"1\r\na\r\n0\r\nX: ", GET.replace(b"X: ", b"X"), b"GET /"]
)
def test_a_head_without_end_ends_its_connection(port: int, begin: bytes) -> None:
    taken, answer = sent(port, begin, *[PIECE] * 1000)
    assert taken < 900 * len(PIECE)
    assert b" 200 " not in answer


def test_a_long_body_is_taken_after_a_long_head(port: int) -> None:
    head = GET.replace(b"GET", b"POST") + b"a" * 60_000
    length, parts = 40 * len(PIECE), [PIECE] * 40
    told = f"\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n".encode()
    assert sent(port, head, told, *parts)[1].endswith(str(length).encode())
    chunks = [b"10000\r\n" + PIECE + b"\r\n"] * 40
    assert sent(port, POST, *chunks, b"0\r\n\r\n")[1].endswith(str(length).encode())
