"""URLs that go over the wire as they were written.

A URL may be signed over its exact spelling, and "%7E" and "~" are then two different addresses,
whatever they mean to the HTTP client's URL library, which would send both as "~".
"""

from __future__ import annotations

import re
from http.cookies import BaseCookie
from typing import Any, Final
from urllib.parse import quote

import aiohttp
from yarl import URL

# What RFC 3986 lets stand in a path or query, and "%" with whatever follows it: the server gets
# what was written, not what we think it ought to mean.
_SENT_AS_IS: Final = "%/?:@!$&'()*+,;=-._~[]"
_SENDABLE: Final = re.compile(rf"/[A-Za-z0-9{re.escape(_SENT_AS_IS)}]*")
_PARTS: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/?#\\]*([^#]*)")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
_NOWHERE: Final = URL()
_DOT_SEGMENT: Final = re.compile(r"/\.{1,2}(?=[/?]|$)")


class _Latest:
    """The URL that ``as_written`` made last: nearly always the one that is asked about next."""

    url: URL | None = None


def as_written(text: str) -> URL:
    """``text`` as a URL whose path and query are sent as they stand there.

    Only what could not be sent is quoted: blanks, what is no ASCII, and characters that no URL
    may hold. Dot segments are resolved, scheme and host are put into their usual form.

    Raises:
        aiohttp.InvalidURL: it is no URL at all.
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
    if parts is None or not url.raw_host or _CONTROL.search(text):
        return url
    wanted = parts[1] if parts[1].startswith("/") else f"/{parts[1]}"
    if _DOT_SEGMENT.search(wanted.partition("?")[0]):
        return url
    return URL(f"{url.scheme}://{url.raw_authority}{quote(wanted, safe=_SENT_AS_IS)}", encoded=True)


def sendable(url: URL) -> URL:
    """``url`` itself where it can be sent, else what ``as_written`` makes of it."""
    if url is _Latest.url:
        return url
    host = url.raw_host or ""
    if host.isascii() and host == host.lower() and _SENDABLE.fullmatch(url.raw_path_qs):
        return url
    return as_written(str(url))


class WireRequest(aiohttp.ClientRequest):
    """For sessions with ``requote_redirect_url=False``: redirects as the server wrote them."""

    def __init__(self, method: str, url: URL, **options: Any) -> None:
        super().__init__(method, sendable(url), **options)


class WireCookieJar(aiohttp.CookieJar):
    """Knows the host of a redirect again, whatever letters the server wrote it in."""

    def filter_cookies(self, request_url: URL = _NOWHERE) -> BaseCookie[str]:
        """The cookies that go to ``request_url``."""
        return super().filter_cookies(sendable(request_url))
