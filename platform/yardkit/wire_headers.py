"""Header values that are no UTF-8, sent as the bytes that they are.

The HTTP client takes texts and writes them as UTF-8; it drops lone surrogates. Here such a value is
a text with surrogates for the other bytes (``surrogateescape``), and they are sent as these bytes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from aiohttp import http_writer

from yardkit.protocol import HeaderPairs

_ESCAPED: Final = re.compile("[\udc80-\udcff]")
_CONTROL: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
# Private: the client has no way to be given bytes. The tests of exact headers fail if it changes.
_writer: Final[Any] = http_writer
_serialized: Final = _writer._serialize_headers


def sendable_headers(
    headers: Mapping[str, str] | HeaderPairs,
) -> Mapping[str, str] | list[tuple[str, str]]:
    """Return headers as the client takes them. Raises ``ValueError`` if a name is no ASCII."""
    if isinstance(headers, Mapping):
        return headers
    try:
        return [
            (name.decode("ascii"), value.decode(errors="surrogateescape"))
            for name, value in headers
        ]
    except UnicodeDecodeError as error:
        raise ValueError(f"bad header name {error.object[:40]!r}: no ASCII") from error


def _serialize(status_line: str, headers: Mapping[str, str]) -> bytes:
    if not any(_ESCAPED.search(value) for value in headers.values() if not value.isascii()):
        return bytes(_serialized(status_line, headers))
    lines = [status_line, *(f"{name}: {value}" for name, value in headers.items())]
    if any(_CONTROL.search(line) for line in lines):
        raise ValueError("control characters in a header")
    return "\r\n".join([*lines, "\r\n"]).encode(errors="surrogateescape")


_writer._serialize_headers = _serialize
