"""A browser's end of a websocket, speaking ASGI to the whole application."""

from __future__ import annotations

import json
from typing import Any

from asgiref.testing import ApplicationCommunicator
from django.test import Client

from apps.access.models import User
from crawlyard.asgi import application

WAIT_SECONDS = 10.0


def cookie_of(user: User) -> str:
    """The session cookie of somebody who has just logged in."""
    client = Client()
    client.force_login(user)
    return f"sessionid={client.cookies['sessionid'].value}"


class Socket:
    """One websocket; a stranger's without a cookie."""

    def __init__(
        self, path: str, cookie: str = "", origin: str = "http://localhost", app: Any = None
    ) -> None:
        headers = [(b"host", b"localhost"), (b"origin", origin.encode())]
        if cookie:
            headers.append((b"cookie", cookie.encode()))
        scope = {
            "type": "websocket",
            "path": path,
            "query_string": b"",
            "headers": headers,
            "subprotocols": [],
        }
        self._asgi = ApplicationCommunicator(app or application, scope)

    async def connect(self) -> bool:
        """Whether the handshake was accepted."""
        await self._asgi.send_input({"type": "websocket.connect"})
        answer = await self._asgi.receive_output(WAIT_SECONDS)
        return bool(answer["type"] == "websocket.accept")

    async def say(self, **frame: Any) -> None:
        """Send ``text=`` or ``bytes=``."""
        await self._asgi.send_input({"type": "websocket.receive", **frame})

    async def frame(self) -> dict[str, Any]:
        """The next thing the server does."""
        frame: dict[str, Any] = await self._asgi.receive_output(WAIT_SECONDS)
        return frame

    async def events(self) -> list[dict[str, Any]]:
        """The events of the next message."""
        frame = await self.frame()
        events: list[dict[str, Any]] = json.loads(frame["text"])["events"]
        return events

    async def is_silent(self, seconds: float) -> bool:
        """Nothing comes for so long."""
        return bool(await self._asgi.receive_nothing(seconds))

    async def disconnect(self) -> None:
        """The browser goes away; waits until the server has noticed."""
        await self._asgi.send_input({"type": "websocket.disconnect", "code": 1000})
        await self._asgi.wait(WAIT_SECONDS)
