"""What recordings hold, and how their fetches are looked up."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Final, Protocol
from urllib.parse import urlsplit, urlunsplit

from w3lib.url import canonicalize_url

from yardkit.protocol import HeaderPairs

_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
_KEY_BYTES: Final = 16


class RecordingError(Exception):
    """A recording that cannot be read: names the file and the problem."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """One recorded response.

    ``headers`` and ``body`` are as received; the body is cut one byte above the limit of the
    reader. ``url``: the address after redirects that the recorder followed, else "". ``cut``: why
    the recorder kept only a part of the body, as WARC names it ("length", "disconnect"), else "".
    ``is_last``: no later response to the same request is recorded.
    """

    status: int
    headers: HeaderPairs
    body: bytes
    protocol: str = "HTTP/1.1"
    url: str = ""
    peer: str = ""
    cut: str = ""
    is_last: bool = True

    def header(self, name: bytes) -> str:
        """Return the first value of a header, given in lower case; "" without one."""
        found = (value for key, value in self.headers if key.lower() == name)
        return next(found, b"").decode("utf-8", "replace")


class Recording(Protocol):
    """Recorded responses by request. Thread-safe; bodies are read on demand."""

    def find(self, method: str, url: str, body: bytes, nth: int, limit: int) -> Recorded | None:
        """Return the ``nth`` response (from 0) to a request, the last one beyond; None without any.

        ``limit``: largest body that the caller uses. Raises ``RecordingError`` for damaged files
        and ``ValueError`` for an invalid URL.
        """

    def close(self) -> None:
        """Close its files."""


def canonical(url: str) -> str:
    """Return the form in which addresses are compared. Raises ``ValueError``.

    Scheme and host in lower case, no user, default port or fragment, dot segments resolved, query
    parameters sorted, percent-encoding normalised.
    """
    parts = urlsplit(canonicalize_url(url))
    host = parts.netloc.rpartition("@")[2]
    if parts.port is not None and parts.port == _DEFAULT_PORTS.get(parts.scheme):
        host = host.rpartition(":")[0]
    return urlunsplit(parts._replace(netloc=host))


def digest(body: bytes) -> str:
    """Return the digest of a request body; "" for none."""
    return hashlib.sha256(body).hexdigest() if body else ""


def fetch_key(method: str, url: str, body_digest: str) -> bytes:
    """Return the key of a request. Raises ``ValueError`` for an invalid URL."""
    text = f"{method.upper()} {canonical(url)} {body_digest}"
    return hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=_KEY_BYTES).digest()
