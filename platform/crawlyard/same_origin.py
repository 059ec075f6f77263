"""Same-origin check of websockets."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from channels.security.websocket import WebsocketDenier
from django.conf import settings

_PORTS = {"http": 80, "https": 443, "ws": 80, "wss": 443}


class SameOrigin:
    """Refuse a websocket whose ``Origin`` is not the host and port it was sent to.

    Browsers send cookies to every port of a host, so a page of another program on this machine
    could otherwise listen with the user's session. ``CSRF_TRUSTED_ORIGINS`` lists names used by
    proxies. A client without an origin is not a browser and authenticates itself.
    """

    def __init__(self, application: Any) -> None:
        self._application = application

    async def __call__(self, scope: Any, receive: Any, send: Any) -> Any:
        headers = dict(scope["headers"])
        origin = headers.get(b"origin")
        if origin is None or _is_own(origin.decode("latin-1"), headers.get(b"host", b"")):
            return await self._application(scope, receive, send)
        return await WebsocketDenier()(scope, receive, send)


def _is_own(origin: str, host: bytes) -> bool:
    if origin in settings.CSRF_TRUSTED_ORIGINS:
        return True
    try:
        parts = urlsplit(origin)
        own = urlsplit(f"{parts.scheme}://{host.decode('latin-1')}")
        default = _PORTS.get(parts.scheme)
        same = (parts.hostname, parts.port or default) == (own.hostname, own.port or default)
    except ValueError:
        return False
    return same and parts.hostname is not None and default is not None
