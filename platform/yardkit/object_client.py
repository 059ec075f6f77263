"""Transfers objects by their signed addresses, with the standard library alone: runs have no more.

Connections are kept and shared by threads. A store may be slow or away: each call ends within
``TIMEOUT_SECONDS`` without any byte.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import http.client
import ssl
import threading
from collections.abc import Callable, Iterator
from typing import BinaryIO, Final
from urllib.parse import urlsplit

TIMEOUT_SECONDS: Final = 20.0
CHUNK_BYTES: Final = 256 * 1024
# Idle connections to one server that are kept.
_KEPT: Final = 32
_ERROR_CHARACTERS: Final = 200

_Connections = list[http.client.HTTPConnection]


class TransferFailed(Exception):
    """An object could not be transferred; the text says why, without the address."""


class StoreAway(TransferFailed):
    """The store does not answer, is full or broken. A repeat may help."""


class AddressExpired(TransferFailed):
    """The store refuses the address: mostly because it has expired."""


class ObjectGone(TransferFailed):
    """There is no such object, or no longer."""


class ObjectClient:
    """Client of object stores. Thread-safe; a forked process needs its own."""

    def __init__(self, timeout_seconds: float = TIMEOUT_SECONDS) -> None:
        self._timeout_seconds = timeout_seconds
        self._idle: dict[tuple[str, str], _Connections] = {}
        self._busy: set[http.client.HTTPConnection] = set()
        self._lock = threading.Lock()
        self._tls: ssl.SSLContext | None = None
        self._closed = False

    def put(self, address: str, content: bytes | BinaryIO, size: int, sha256: bytes) -> None:
        """Write an object of ``size`` bytes with this digest. Raises ``TransferFailed``."""
        digest = base64.b64encode(sha256).decode()
        headers = {"Content-Length": str(size), "Content-Digest": f"sha-256=:{digest}:"}

        def rewound() -> bytes | BinaryIO:
            if not isinstance(content, bytes):
                content.seek(0)
            return content

        with self._request("PUT", address, rewound, headers) as (response, attempt):
            # Refused as existing after a first attempt of which no answer came: that one wrote it.
            if response.status != http.client.CONFLICT or attempt == 1:
                _check(response)
            response.read()

    def get(self, address: str) -> Iterator[bytes]:
        """Yield an object in pieces. Raises ``TransferFailed``, also between pieces."""
        with self._request("GET", address) as (response, _):
            _check(response)
            while piece := response.read(CHUNK_BYTES):
                yield piece
            # Python ends without an error when the connection does.
            if response.length:
                raise StoreAway(f"the object ended {response.length} bytes too early")

    def delete(self, address: str) -> None:
        """Delete an object; one that is missing is deleted. Raises ``TransferFailed``."""
        with self._request("DELETE", address) as (response, _):
            if response.status != http.client.NOT_FOUND:
                _check(response)
            response.read()

    def close(self) -> None:
        """Close every connection; transfers that are on their way fail."""
        with self._lock:
            self._closed = True
            connections = [*self._busy, *(one for many in self._idle.values() for one in many)]
            self._idle.clear()
        for connection in connections:
            # A blocked read of another thread ends by this.
            if connection.sock is not None:
                with contextlib.suppress(OSError):
                    connection.sock.shutdown(2)
            with contextlib.suppress(OSError):
                connection.close()

    @contextlib.contextmanager
    def _request(
        self,
        method: str,
        address: str,
        body: Callable[[], bytes | BinaryIO] | None = None,
        headers: dict[str, str] | None = None,
    ) -> Iterator[tuple[http.client.HTTPResponse, int]]:
        """Send a request; yield the response and the number of the attempt, 1 or 2."""
        parts = urlsplit(address)
        place = (parts.scheme, parts.netloc)
        target = f"{parts.path}?{parts.query}"
        attempt, connection = 1, self._take(place)
        clean = False
        try:
            while True:
                fresh = connection.sock is None
                try:
                    connection.request(
                        method, target, body=body() if body else None, headers=headers or {}
                    )
                    response = connection.getresponse()
                except (OSError, http.client.HTTPException) as error:
                    connection.close()
                    # The server may have closed a connection that was idle; once more.
                    if fresh or isinstance(error, TimeoutError) or self._closed:
                        raise StoreAway(_text(error)) from error
                    attempt += 1
                else:
                    break
            try:
                yield response, attempt
            except (OSError, http.client.HTTPException) as error:
                raise StoreAway(_text(error)) from error
            clean = response.isclosed()
        finally:
            self._give_back(place, connection, usable=clean)

    def _take(self, place: tuple[str, str]) -> http.client.HTTPConnection:
        with self._lock:
            if self._closed:
                raise StoreAway("the client is closed")
            idle = self._idle.get(place)
            connection = idle.pop() if idle else self._made(place)
            self._busy.add(connection)
            return connection

    def _made(self, place: tuple[str, str]) -> http.client.HTTPConnection:
        scheme, host = place
        if scheme == "https":
            self._tls = self._tls or ssl.create_default_context()
            return http.client.HTTPSConnection(
                host, timeout=self._timeout_seconds, context=self._tls
            )
        return http.client.HTTPConnection(host, timeout=self._timeout_seconds)

    def _give_back(
        self, place: tuple[str, str], connection: http.client.HTTPConnection, *, usable: bool
    ) -> None:
        with self._lock:
            self._busy.discard(connection)
            idle = self._idle.setdefault(place, [])
            if usable and not self._closed and len(idle) < _KEPT:
                idle.append(connection)
                return
        connection.close()


def sha256_of(content: bytes) -> bytes:
    """Return the digest of a body."""
    return hashlib.sha256(content).digest()


def _check(response: http.client.HTTPResponse) -> None:
    """Raise ``TransferFailed`` for an error, by its status."""
    status = response.status
    if status < 300:
        return
    said = response.read(_ERROR_CHARACTERS).decode("utf-8", "replace")
    text = f"the object store answered {status} {response.reason}: {' '.join(said.split())}"
    if status == http.client.FORBIDDEN:
        raise AddressExpired(text)
    if status in (http.client.NOT_FOUND, http.client.GONE):
        raise ObjectGone(text)
    raise StoreAway(text)


def _text(error: Exception) -> str:
    words = str(error) or type(error).__name__
    return f"the object store does not answer: {words[:_ERROR_CHARACTERS]}"
