"""Who a client is, where proxies stand in front."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware


def behind_proxies(application: Any) -> Any:
    """``application`` with the client that ``X-Forwarded-For`` names, when one of
    ``TRUSTED_PROXIES`` calls: the last address of the list that is no trusted proxy itself.

    From any other address the header is ignored: it can be forged.
    """
    trusted = [str(each) for each in settings.TRUSTED_PROXIES]
    return ProxyHeadersMiddleware(application, trusted) if trusted else application
