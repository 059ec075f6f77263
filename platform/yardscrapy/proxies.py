"""Proxies that a project asks for, by ``CRAWLYARD_PROXY``."""

from __future__ import annotations

import base64
from typing import Final
from urllib.parse import quote, urlsplit

from scrapy import Request
from scrapy.settings import BaseSettings

from yardscrapy import options
from yardscrapy.failures import DownloadRefused

PROXY_AUTHORIZATION: Final = b"Proxy-Authorization"


class ProxyPolicy:
    """What becomes of ``meta["proxy"]``, which ``HttpProxyMiddleware`` and projects set."""

    def __init__(self, settings: BaseSettings) -> None:
        self._policy = options.choice(settings, options.PROXY)
        self._encoding = str(settings.get("HTTPPROXY_AUTH_ENCODING") or "latin-1")

    def proxy(self, request: Request) -> str:
        """Return the proxy that the agent is to dial; "" for its own way.

        Raises ``DownloadRefused``.
        """
        proxy = request.meta.get("proxy")
        if not proxy or self._policy == "agent":
            return ""
        if self._policy == "refuse":
            raise DownloadRefused(
                f"{request} asks for a proxy; set {options.PROXY} to 'agent' to ignore it, or to "
                "'pass' to have the agent use it"
            )
        proxy = str(proxy)
        return self._with_password(proxy if "://" in proxy else f"http://{proxy}", request)

    def _with_password(self, proxy: str, request: Request) -> str:
        header = request.headers.get(PROXY_AUTHORIZATION)
        if not header:
            return proxy
        kind, _, token = header.partition(b" ")
        if kind.lower() != b"basic":
            raise DownloadRefused(f"{request}: only Basic authentication of proxies can be passed")
        user, _, password = base64.b64decode(token).decode(self._encoding).partition(":")
        parts = urlsplit(proxy)
        netloc = f"{quote(user, safe='')}:{quote(password, safe='')}@{parts.netloc}"
        return parts._replace(netloc=netloc).geturl()
