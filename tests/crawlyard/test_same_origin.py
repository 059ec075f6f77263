"""A websocket opens for this server's own pages only."""

from __future__ import annotations

from typing import Any

import pytest
from asgiref.testing import ApplicationCommunicator

from crawlyard.same_origin import SameOrigin

# Channels closes database connections around each websocket.
pytestmark = pytest.mark.django_db


async def accept(scope: Any, receive: Any, send: Any) -> None:
    """A page that lets everybody in who gets as far as here."""
    await receive()
    await send({"type": "websocket.accept"})


async def connects(origin: str | None, host: str) -> bool:
    headers = [(b"host", host.encode())]
    if origin is not None:
        headers.append((b"origin", origin.encode()))
    scope = {"type": "websocket", "path": "/ws/home", "headers": headers}
    socket = ApplicationCommunicator(SameOrigin(accept), scope)
    await socket.send_input({"type": "websocket.connect"})
    answer = await socket.receive_output(timeout=10)
    await socket.wait()
    return bool(answer["type"] == "websocket.accept")


@pytest.mark.parametrize(
    ("origin", "host"),
    [
        ("http://127.0.0.1:8000", "127.0.0.1:8000"),
        ("http://[::1]:8000", "[::1]:8000"),
        ("https://yard.example", "yard.example"),
        ("https://YARD.example:443", "yard.example"),
        (None, "yard.example"),
    ],
)
async def test_its_own_pages_may_listen(origin: str | None, host: str) -> None:
    assert await connects(origin, host)


@pytest.mark.slow("9 s")
@pytest.mark.parametrize(
    ("origin", "host"),
    [
        ("http://127.0.0.1:9000", "127.0.0.1:8000"),
        ("http://localhost:8000", "127.0.0.1:8000"),
        ("http://yard.example.evil", "yard.example"),
        ("http://evil@yard.example:1", "yard.example"),
        ("null", "yard.example"),
        ("", "yard.example"),
        ("http://yard.example:99999999", "yard.example"),
        ("http://[", "["),
        ("file://", ""),
    ],
)
async def test_other_pages_may_not(origin: str, host: str) -> None:
    assert not await connects(origin, host)


@pytest.mark.slow("1 s")
async def test_a_proxy_in_front_is_named_in_the_settings(settings: Any) -> None:
    settings.CSRF_TRUSTED_ORIGINS = ["https://front.example"]
    assert await connects("https://front.example", "10.0.0.7:8000")
    assert not await connects("https://other.example", "10.0.0.7:8000")
