"""HAR files (HTTP Archive 1.2), as browsers and proxies export them."""

from __future__ import annotations

import base64
import binascii
import mmap
from pathlib import Path
from typing import Any, Final

import msgspec

from yardkit.protocol import HeaderPairs
from yardkit.recordings.base import Recorded, RecordingError
from yardkit.recordings.index import FetchIndex, Place

# The file holds bodies decoded and whole; ``content-type`` is written anew for texts.
_TRANSPORT_HEADERS: Final = frozenset({"content-encoding", "transfer-encoding", "content-length"})


class _Named(msgspec.Struct):
    name: str
    value: str = ""


class _PostData(msgspec.Struct):
    text: str = ""
    params: list[_Named] = []


class _Request(msgspec.Struct):
    url: str
    method: str = "GET"
    post_data: _PostData | None = msgspec.field(default=None, name="postData")


class _Content(msgspec.Struct, frozen=True):
    text: str = ""
    encoding: str = ""


class _Response(msgspec.Struct):
    status: int
    headers: list[_Named] = []
    content: _Content = _Content()
    version: str = msgspec.field(default="HTTP/1.1", name="httpVersion")


class _Entry(msgspec.Struct):
    request: _Request
    response: _Response
    peer: str = msgspec.field(default="", name="serverIPAddress")


class _Log(msgspec.Struct):
    entries: list[msgspec.Raw]


class _Har(msgspec.Struct):
    log: _Log


class HarFile:
    """One file, mapped into memory; entries are decoded on demand. Raises ``RecordingError``."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            with path.open("rb") as file:
                self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:
            raise RecordingError(f"{path}: {error}") from error

    def index(self, index: FetchIndex, file: int) -> None:
        start = 3 if self._map[:3] == b"\xef\xbb\xbf" else 0
        try:
            har = msgspec.json.decode(memoryview(self._map)[start:], type=_Har)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise RecordingError(f"{self._path}: no HAR file: {error}") from error
        position = 0
        for raw in har.log.entries:
            # A ``Raw`` does not say where it is in the file.
            text = bytes(raw)
            position = self._map.find(text, position)
            entry = self._entry(text)
            # Requests that the browser blocked or answered itself have no status.
            if entry.response.status:
                index.add_response(
                    entry.request.url,
                    Place(file, position, len(text)),
                    method=entry.request.method,
                    body=_request_body(entry.request),
                )
            position += len(text)

    def read(self, place: Place, limit: int) -> tuple[Recorded, str]:
        entry = self._entry(self._map[place.position : place.position + place.size])
        headers, body = self._content(entry.response)
        version = entry.response.version.upper()
        recorded = Recorded(
            entry.response.status,
            headers,
            body[: limit + 1],
            protocol=version if version.startswith("HTTP/") else "HTTP/1.1",
            peer=entry.peer.strip("[]"),
        )
        return recorded, ""

    def close(self) -> None:
        self._map.close()

    def _entry(self, text: bytes) -> _Entry:
        try:
            return msgspec.json.decode(text, type=_Entry)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise RecordingError(f"{self._path}: {error}") from error

    def _content(self, response: _Response) -> tuple[HeaderPairs, bytes]:
        """Return headers and body. Texts are UTF-8, and their Content-Type says so."""
        content = response.content
        is_text = bool(content.text) and content.encoding != "base64"
        try:
            body = content.text.encode() if is_text else base64.b64decode(content.text)
        except (binascii.Error, UnicodeEncodeError) as error:
            raise RecordingError(f"{self._path}: a body cannot be read: {error}") from error
        headers: HeaderPairs = []
        for header in response.headers:
            name, value = header.name, header.value
            if name.startswith(":") or name.lower() in _TRANSPORT_HEADERS:
                continue
            if name.lower() == "content-type" and is_text:
                value = f"{value.partition(';')[0].strip()}; charset=utf-8"
            # Some browsers join headers of one name by line breaks.
            headers += [(name.encode(), line.encode()) for line in value.split("\n")]
        return headers, body


def _request_body(request: _Request) -> bytes:
    data: Any = request.post_data
    if data is None:
        return b""
    if data.text or not data.params:
        return str(data.text).encode("utf-8", "surrogateescape")
    return "&".join(f"{each.name}={each.value}" for each in data.params).encode()
