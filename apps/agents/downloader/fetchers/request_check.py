"""Validates a request before it reaches a client that would send anything."""

from __future__ import annotations

import re
from typing import Final

from yardkit.names import HTTP_TOKEN
from yardkit.protocol import DownloaderSettings, DownloadRequest, header_pairs
from yardkit.wire_url import as_written

_NOT_IN_A_VALUE: Final = re.compile(rb"[\r\n\0]")


def checked_request(request: DownloadRequest, settings: DownloaderSettings) -> tuple[str, float]:
    """Return (URL to send, timeout in seconds). Raises ``ValueError``."""
    url = as_written(request.url)
    if url.scheme not in ("http", "https") or not url.raw_host:
        raise ValueError("bad URL: neither http:// nor https://")
    if not HTTP_TOKEN.fullmatch(request.method):
        raise ValueError("bad method")
    if request.proxy:
        raise ValueError("bad proxy: this type of downloader takes none of a request")
    for name, value in header_pairs(request.headers):
        text = name.decode("latin-1")
        if not HTTP_TOKEN.fullmatch(text) or _NOT_IN_A_VALUE.search(value):
            raise ValueError(f"bad header {text[:40]!r}")
        if not value.isascii():
            _check_utf8(text, value)
    seconds = request.timeout_seconds
    seconds = settings.timeout_seconds if seconds is None else seconds
    if not 0 < seconds < float("inf"):
        raise ValueError(f"timeout_seconds is {seconds}; use more than 0")
    return str(url), seconds


def _check_utf8(name: str, value: bytes) -> None:
    try:
        value.decode()
    except UnicodeDecodeError as error:
        raise ValueError(
            f"bad header {name[:40]!r}: no UTF-8, which only the downloader http sends as it is"
        ) from error
