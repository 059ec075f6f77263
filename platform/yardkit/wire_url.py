"""URLs sent to servers exactly as they were written, and responses that know their connection.

A URL may be signed over its exact spelling, so "%7E" and "~" differ, although the HTTP client's URL
library would send both as "~".
"""

from __future__ import annotations

import re
import ssl
from http.cookies import BaseCookie
from typing import Any, Final
from urllib.parse import quote

import aiohttp
from aiohttp.connector import Connection
from yarl import URL

from yardkit.names import CONTROL

# Characters that RFC 3986 allows in a path or query, and "%" whatever follows it: the server gets
# what was written, not a corrected form.
_SENT_AS_IS: Final = "%/?:@!$&'()*+,;=-._~[]"
_SENDABLE: Final = re.compile(rf"/[A-Za-z0-9{re.escape(_SENT_AS_IS)}]*")
_PARTS: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/?#\\]*([^#]*)")
_NOWHERE: Final = URL()
_DOT_SEGMENT: Final = re.compile(r"/\.{1,2}(?=[/?]|$)")


class _Latest:
    """Cache of the last URL that ``as_written`` returned: usually the next one asked for."""

    url: URL | None = None


def as_written(text: str) -> URL:
    """Return ``text`` as a URL whose path and query are sent unchanged.

    Only characters that cannot be sent are quoted: blanks, non-ASCII characters, and characters
    that no URL may contain. Dot segments are resolved, scheme and host are normalised.

    Raises:
        aiohttp.InvalidURL: not a URL.
    """
    url = _Latest.url = _as_written(text)
    return url


def _as_written(text: str) -> URL:
    try:
        url = URL(text)
    except ValueError as error:
        raise aiohttp.InvalidURL(text, str(error)) from error
    if text.endswith(url.raw_path_qs):
        return url
    parts = _PARTS.match(text)
    if parts is None or not url.raw_host or CONTROL.search(text):
        return url
    wanted = parts[1] if parts[1].startswith("/") else f"/{parts[1]}"
    if _DOT_SEGMENT.search(wanted.partition("?")[0]):
        return url
    return URL(f"{url.scheme}://{url.raw_authority}{quote(wanted, safe=_SENT_AS_IS)}", encoded=True)


def sendable(url: URL) -> URL:
    """Return ``url`` where it can be sent, else the result of ``as_written``."""
    if url is _Latest.url:
        return url
    host = url.raw_host or ""
    if host.isascii() and host == host.lower() and _SENDABLE.fullmatch(url.raw_path_qs):
        return url
    return as_written(str(url))


class WireRequest(aiohttp.ClientRequest):
    """For sessions with ``requote_redirect_url=False``: follows redirects as written."""

    def __init__(self, method: str, url: URL, **options: Any) -> None:
        super().__init__(method, sendable(url), **options)


class WireResponse(aiohttp.ClientResponse):
    """Keeps what its connection knows, which is given back before a short body has been read.

    ``peer``: IP address of the other end.
    """

    peer = ""
    tls: ssl.SSLObject | None = None

    async def start(self, connection: Connection) -> aiohttp.ClientResponse:
        """Read status and headers."""
        transport = connection.transport
        if transport is not None:
            self.peer = (transport.get_extra_info("peername") or ("",))[0]
            self.tls = transport.get_extra_info("ssl_object")
        return await super().start(connection)

    def certificate(self) -> bytes:
        """Return the certificate of the server as DER; b"" without TLS."""
        return (self.tls.getpeercert(binary_form=True) or b"") if self.tls is not None else b""


class WireCookieJar(aiohttp.CookieJar):
    """Matches the host of a redirect regardless of letter case."""

    def filter_cookies(self, request_url: URL = _NOWHERE) -> BaseCookie[str]:
        """Return the cookies to send to ``request_url``."""
        return super().filter_cookies(sendable(request_url))
