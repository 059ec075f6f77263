"""Validation of requests: refuses what a downloader could never send."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import urlsplit

from apps.requeststore.engine.entity import MAX_URL, Entity
from yardkit.names import is_token

_METHOD: Final = re.compile(r"[A-Z]{1,20}")
BREAKS: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_IN_URL: Final = re.compile(r"[\x00-\x20\x7f]")
# Fast path for ordinary URLs: the full check takes five times as long.
_PLAIN: Final = re.compile(r"https?://[a-z0-9-]{1,63}(\.[a-z0-9-]{1,63}){0,20}([/?#][!-~]*)?")
_MOST_HEADERS: Final = 100
_MOST_CHARACTERS: Final = 16_000


def refusal(entity: Entity) -> tuple[str, str]:
    """Return (field, reason), or ("", "") for a valid request."""
    for field, why in (
        ("url", _url(entity.url)),
        ("method", "" if _METHOD.fullmatch(entity.method) else "a word such as GET or POST"),
        ("headers", _headers(entity)),
        ("params", _params(entity)),
    ):
        if why:
            return field, why
    return "", ""


def _url(url: str) -> str:
    if not url or len(url) > MAX_URL:
        return f"an address has 1 to {MAX_URL} characters"
    if _PLAIN.fullmatch(url):
        return ""
    if _IN_URL.search(url):
        return "the address has a blank or a control character"
    try:
        url.encode()
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return "the address cannot be read"
    if parts.scheme.lower() not in {"http", "https"} or not parts.hostname or port == 0:
        return "not an address such as https://example.com/page"
    return ""


def _headers(entity: Entity) -> str:
    if len(entity.headers) > _MOST_HEADERS:
        return f"at most {_MOST_HEADERS} headers"
    for name, value in entity.headers.items():
        if not is_token(name, 200):
            return f"{name[:60]!r} cannot be the name of a header"
        if BREAKS.search(value) or len(value) > _MOST_CHARACTERS:
            return f"the value of {name} cannot be sent as a header"
    return ""


def _params(entity: Entity) -> str:
    size = sum(len(name) + len(value) for name, value in entity.params.items())
    return f"at most {_MOST_CHARACTERS} characters" if size > _MOST_CHARACTERS else ""
