"""Downloads that are answered from a recording, without a connection and without waiting."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Final, Protocol
from urllib.parse import urljoin

from yardkit.content import BadContent, decode
from yardkit.fetched import Fetched
from yardkit.protocol import DownloaderSettings, DownloadRequest, FailureKind
from yardkit.recordings.base import Recorded, Recording, RecordingError

_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
# A recording keeps none larger; 0 in a request asks for no limit.
_MOST_BODY_BYTES: Final = 256 * 1024 * 1024
_ERROR_CHARACTERS: Final = 300


class LiveFetcher(Protocol):
    """Fetches from the network what is not recorded."""

    async def fetch(self, request: DownloadRequest) -> Fetched: ...

    async def close(self) -> None: ...


class Replay:
    """Answers of one run from a recording, as ``Fetcher`` would answer. Thread-safe.

    The n-th fetch of a request gets the n-th recorded response, later ones the last. A HEAD that
    is not recorded gets the headers of the GET. Proxies, cookies and request headers do not
    matter.
    """

    def __init__(self, recording: Recording, settings: DownloaderSettings) -> None:
        self._recording = recording
        self._settings = settings
        # Of requests with several responses: how many were given.
        self._given: dict[tuple[str, str, bytes], int] = {}
        self._lock = threading.Lock()

    def answer(self, request: DownloadRequest) -> Fetched:
        """Return the recorded response, or failure ``not_recorded``. Reads files; never raises."""
        started = time.perf_counter()
        try:
            fetched = self._answer(request, started)
        except (RecordingError, BadContent) as error:
            fetched = _failed(request, FailureKind.BAD_CONTENT, str(error))
        except ValueError as error:
            fetched = _failed(request, FailureKind.BAD_REQUEST, f"bad URL: {error}")
        return fetched

    def _answer(self, request: DownloadRequest, started: float) -> Fetched:
        method, url, body = request.method.upper(), request.url, request.body
        limit = self._settings.max_body_bytes
        if request.max_bytes is not None:
            limit = request.max_bytes or _MOST_BODY_BYTES
        for _ in range(self._settings.max_redirects + 1):
            found = self._find(method, url, body, limit)
            if found is None:
                return _failed(request, FailureKind.NOT_RECORDED, f"{method} {url} is not recorded")
            target = found.header(b"location") if found.status in _REDIRECTS else ""
            if not (target and self._settings.follow_redirects):
                return self._fetched(request, found.url or url, found, limit, started)
            url = urljoin(url, target)
            if found.status == 303 or (found.status in (301, 302) and method == "POST"):
                method, body = "HEAD" if method == "HEAD" else "GET", b""
        return _failed(request, FailureKind.TOO_MANY_REDIRECTS, "too many redirects")

    def _find(self, method: str, url: str, body: bytes, limit: int) -> Recorded | None:
        key = (method, url, body)
        with self._lock:
            nth = self._given.get(key, 0)
            found = self._recording.find(method, url, body, nth, limit)
            if found is not None and not found.is_last:
                self._given[key] = nth + 1
        if found is None and method == "HEAD":
            return self._recording.find("GET", url, body, 0, 0)
        return found

    def _fetched(
        self, request: DownloadRequest, url: str, found: Recorded, limit: int, started: float
    ) -> Fetched:
        body = b"" if request.method.upper() == "HEAD" else found.body
        length = found.header(b"content-length")
        stated = int(length) if length.isdecimal() else -1
        truncated = len(body) > limit
        failure, error = FailureKind.NONE, ""
        if request.max_bytes is not None and body and (truncated or stated > limit):
            failure = FailureKind.TOO_LARGE
            error = (
                f"the body has {stated} bytes; the request takes {limit}"
                if stated > limit
                else f"the body has more than the {limit} bytes of the request"
            )
            body, truncated = b"", False
        elif found.cut and found.cut != "length":
            failure, error = FailureKind.DATA_LOSS, f"the recording holds a part: {found.cut}"
        body, truncated = body[:limit], truncated or found.cut == "length"
        headers = list(found.headers)
        encoding = found.header(b"content-encoding")
        settings = self._settings
        if encoding and body and (not settings.raw_bodies or settings.cut or settings.decode_html):
            partial = truncated or failure == FailureKind.DATA_LOSS
            body, was_cut = decode(body, encoding, limit, partial=partial)
            truncated = truncated or was_cut
            if settings.raw_bodies:
                headers = [pair for pair in headers if pair[0].lower() != b"content-encoding"]
        elapsed = (time.perf_counter() - started) * 1000.0
        return Fetched(
            url,
            found.status,
            headers,
            body,
            failure,
            error,
            elapsed,
            truncated,
            headers_ms=elapsed,
            length=stated,
            protocol=found.protocol,
            peer=found.peer,
        )


class ReplayFetcher:
    """Fetcher of one downloader over a recording.

    ``live`` fetches what is not recorded; without it such a request fails.
    """

    def __init__(
        self, recording: Recording, settings: DownloaderSettings, live: LiveFetcher | None = None
    ) -> None:
        self._replay = Replay(recording, settings)
        self._live = live

    async def fetch(self, request: DownloadRequest) -> Fetched:
        """Answer one request. Raises nothing but ``asyncio.CancelledError``."""
        fetched = await asyncio.to_thread(self._replay.answer, request)
        if fetched.failure == FailureKind.NOT_RECORDED and self._live is not None:
            return await self._live.fetch(request)
        return fetched

    async def close(self) -> None:
        """Close the live fetcher; the recording belongs to the caller."""
        if self._live is not None:
            await self._live.close()


def _failed(request: DownloadRequest, kind: FailureKind, error: str) -> Fetched:
    return Fetched(request.url, 0, [], b"", kind, error[:_ERROR_CHARACTERS], 0.0, False)
