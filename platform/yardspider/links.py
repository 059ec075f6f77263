"""Resolves the ``href`` of a page to an absolute URL, and defines "same origin".

A crawl resolves far more links than it fetches pages, so the usual kinds of ``href`` take a fast
path. The result is always that of ``urllib.parse.urljoin``; a test compares both.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final
from urllib.parse import quote, urljoin, urlsplit

_SPACE: Final = "".join(map(chr, range(0x21)))  # stripped at both ends, as browsers do
_LINE_BREAKS: Final = str.maketrans("", "", "\t\n\r")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")
_AUTHORITY: Final = re.compile(r"https?://[^/?#]*", re.IGNORECASE)
_SCHEME: Final = re.compile(r"[a-zA-Z][a-zA-Z0-9+.\-]*:")
_BAD_HOST: Final = re.compile(r"[\x00-\x20#/:<>?@\[\\\]^|%\"]")
_URL_CHARACTERS: Final = "%/:?#[]@!$&'()*+,;=~"
_WEB_SCHEMES: Final = frozenset({"http:", "https:"})
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}


@lru_cache(maxsize=4096)
def origin_of_authority(authority: str) -> tuple[str, str, int] | None:
    """Return (scheme, host, port) of ``scheme://host:port``; None when malformed."""
    try:
        parts = urlsplit(authority)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return None
    if not host.strip(".") or (":" not in host and _BAD_HOST.search(host)):
        return None
    return parts.scheme, host, port or _DEFAULT_PORTS[parts.scheme]


def origin_of(url: str) -> tuple[str, str, int] | None:
    """Return (scheme, host, port) of an http or https URL; None for others and malformed ones."""
    match = _AUTHORITY.match(url)
    return None if match is None else origin_of_authority(match.group())


def checked_url(url: str) -> tuple[str, str]:
    """Return the URL without its fragment and with its host in lower case.

    Raises ``ValueError`` that names the URL when it is malformed or not http(s).
    """
    bare = url.partition("#")[0].strip(_SPACE)
    match = _AUTHORITY.match(bare)
    if match is None:
        raise ValueError(f"not an http or https URL: {url!r}")
    origin = origin_of_authority(match.group())
    if origin is None or _CONTROL.search(bare):
        raise ValueError(f"malformed URL: {url!r}")
    return bare, origin[1]


def quoted(url: str) -> str:
    """Return the URL as it is sent: non-ASCII characters and blanks percent-encoded."""
    match = _AUTHORITY.match(url)
    end = match.end() if match else 0
    return url[:end] + quote(url[end:], safe=_URL_CHARACTERS)


class Resolver:
    """Resolves the links of one page against its base URL."""

    __slots__ = ("_base", "_folders", "_origin", "_site")

    def __init__(self, base: str) -> None:
        self._base = base.partition("#")[0]
        match = _AUTHORITY.match(self._base)
        authority = match.group() if match else ""
        self._origin = origin_of_authority(authority) if match else None
        scheme, separator, host = authority.partition("://")
        self._site = scheme.lower() + separator + host
        # [0] is the page's folder, [1] its parent, and so on, each ending in "/".
        self._folders: list[str] = []

    def resolve(self, href: str) -> tuple[str, tuple[str, str, int]] | None:
        """Return the absolute URL of an href without fragment, and its origin.

        None for what is not fetched: ``mailto:``, ``javascript:``, malformed addresses.
        """
        quick = self._quick(href)
        if quick is not None and self._origin is not None:
            return quick, self._origin
        scheme = _SCHEME.match(href)
        if scheme is not None and scheme.group().lower() not in _WEB_SCHEMES:
            return None
        try:
            url = urljoin(self._base, href)
        except ValueError:
            return None
        origin = origin_of(url)
        return None if origin is None else (url, origin)

    def _quick(self, href: str) -> str | None:
        """Resolve paths without dots; None when ``urljoin`` is needed."""
        level = 0
        while href.startswith("../"):
            href = href[3:]
            level += 1
        if (
            not href
            or href[0] in ".?"
            or href[-1] == "?"
            or ":" in href
            or ";" in href
            or "/." in href
            or "//" in href
        ):
            return None
        if href[0] == "/":
            return self._site + href if level == 0 else None
        while len(self._folders) <= level:
            self._folders.append(urljoin(self._base, "../" * len(self._folders) + "x")[:-1])
        return self._folders[level] + href


def clean_href(href: str) -> str:
    """Return an href without fragment, surrounding blanks and line breaks."""
    return href.partition("#")[0].strip(_SPACE).translate(_LINE_BREAKS)


def resolve_all(
    base: str, hrefs: list[str | None], *, only: tuple[str, str, int] | None = None
) -> list[str]:
    """Return absolute http(s) URLs without fragments, each once, in order; optionally of one
    origin.
    """
    # An attribute without a value is an empty href: the page itself.
    texts = [href or "" for href in hrefs]
    if _CONTROL.search(" ".join(texts)):
        cleaned = [clean_href(text) for text in texts]
        raw = dict.fromkeys([text for text in cleaned if not _CONTROL.search(text)])
    else:
        raw = dict.fromkeys([text.partition("#")[0].strip(" ") for text in texts])
    resolve = Resolver(base).resolve
    found: dict[str, None] = {}
    for href in raw:
        resolved = resolve(href)
        if resolved is not None and (only is None or resolved[1] == only):
            found[resolved[0]] = None
    return list(found)
