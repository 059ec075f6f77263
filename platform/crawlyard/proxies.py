"""Client addresses behind trusted proxies."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware


def behind_proxies(application: Any) -> Any:
    """Wrap ``application`` to take the client's address from ``X-Forwarded-For``.

    Only for connections from ``TRUSTED_PROXIES``: the client is the last address of the header that
    is not a trusted proxy. From other addresses the header is ignored, since it can be forged.
    """
    trusted = [str(proxy) for proxy in settings.TRUSTED_PROXIES]
    return ProxyHeadersMiddleware(application, trusted) if trusted else application
