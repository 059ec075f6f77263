"""A page to fetch, as a spider asks for it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import AsyncIterable, Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from yardkit.names import HTTP_TOKEN
from yardkit.protocol import (
    MAX_CONTENT_BYTES,
    DownloadRequest,
    HeaderPairs,
    header_pairs,
    header_texts,
)
from yardspider.links import checked_url

if TYPE_CHECKING:
    from yardspider.response import Response
    from yardspider.seeds.seed import Seed
    from yardspider.seeds.task import SeedTask

_BREAK = re.compile(r"[\x00\r\n\ud800-\udfff]")

# What a callback may yield, and its forms: function or generator, async or not.
Output: TypeAlias = "Request | Seed | dict[str, Any]"
Outputs: TypeAlias = (
    "Iterable[Output] | AsyncIterable[Output] | Awaitable[Iterable[Output] | Output | None]"
    " | Output | None"
)
Callback: TypeAlias = "Callable[[Response], Outputs] | str"


class Request:
    """A page to fetch.

    Args:
        url: absolute, http or https; its fragment is dropped.
        callback: gets the ``Response``; a function or the name of a method of the spider.
            None is the spider's ``parse``.
        method, headers, body: sent as they are; ``headers`` by name, or as pairs in their order
            where a name is repeated; ``body`` text is sent as UTF-8.
        priority: higher goes first; equal ones go in the order they were made.
        dont_filter: fetch it even if the same request was made before in this run.
        meta: anything; comes back as ``response.meta``.
        depth: links between this request and a start request; set by the engine.
        detached: it does not belong to the seed of the page it is made from, whose end then does
            not wait for it.
        timeout_seconds: how long the agent may take, instead of the run's own limit.
        max_bytes: a longer body fails as ``too_large``, by its ``Content-Length`` before it is
            received; None: it is cut at the run's own limit.
        timeout_retries, download_retries: instead of the spider's settings.

    ``agent`` is the one that must fetch it, where the run's policy is "chained"; ``seed`` the seed
    it belongs to, if any; ``number`` counts the sent requests from 1, ``parent`` is that of the
    page it was made from; ``attempts``, ``received`` (bytes) and ``items`` are what has come of it.
    All of these are the engine's.

    Raises:
        ValueError: the URL is malformed or neither http nor https (the text names it), method or
            headers cannot be sent, or the body is too long for a message.
    """

    __slots__ = (
        "agent",
        "attempts",
        "body",
        "callback",
        "depth",
        "detached",
        "dont_filter",
        "download_retries",
        "headers",
        "host",
        "items",
        "max_bytes",
        "meta",
        "method",
        "number",
        "parent",
        "priority",
        "received",
        "seed",
        "timeout_retries",
        "timeout_seconds",
        "url",
    )

    def __init__(
        self,
        url: str,
        callback: Callback | None = None,
        *,
        method: str = "GET",
        headers: Mapping[str, str] | Sequence[tuple[str | bytes, str | bytes]] | None = None,
        body: bytes | str = b"",
        priority: int = 0,
        dont_filter: bool = False,
        meta: dict[str, Any] | None = None,
        depth: int | None = None,
        timeout_seconds: float | None = None,
        max_bytes: int | None = None,
        timeout_retries: int | None = None,
        download_retries: int | None = None,
        detached: bool = False,
    ) -> None:
        self.url, self.host = checked_url(url)
        self.callback = callback
        self.method = method.upper()
        self.headers: dict[str, str] | HeaderPairs = _checked_headers(headers) if headers else {}
        self.body = body.encode() if isinstance(body, str) else bytes(body)
        self.priority = priority
        self.dont_filter = dont_filter
        self.meta = meta if meta is not None else {}
        self.depth = depth
        self.timeout_seconds = timeout_seconds
        self.max_bytes = max_bytes
        self.timeout_retries = timeout_retries
        self.download_retries = download_retries
        self.detached = detached
        self.agent = ""
        self.seed: SeedTask | None = None
        self.number = 0
        self.parent = 0
        self.attempts = 0
        self.received = 0
        self.items = 0
        if not HTTP_TOKEN.fullmatch(self.method):
            raise ValueError(f"{method!r} is no HTTP method, in the request for {url!r}")
        if len(self.body) > MAX_CONTENT_BYTES:
            size = len(self.body)
            raise ValueError(
                f"the body of {size} bytes cannot be sent, at most {MAX_CONTENT_BYTES},"
                f" in the request for {url[:200]!r}"
            )

    def fingerprint(self, owner: str) -> bytes:
        """Return 16 bytes: MD5 of owner, URL, method, body and cookie."""
        digest = hashlib.md5(usedforsecurity=False)
        # Lengths separate the parts: no two different requests write the same bytes.
        digest.update(f"{owner}\n{self.method}\n{self._cookie()!r}\n{self.url}\n".encode())
        digest.update(self.body)
        return digest.digest()

    def download(self) -> DownloadRequest:
        """Return the part that an agent needs."""
        return DownloadRequest(
            url=self.url,
            method=self.method,
            headers=self.headers,
            body=self.body,
            timeout_seconds=self.timeout_seconds,
            max_bytes=self.max_bytes,
        )

    def _cookie(self) -> str:
        if not self.headers:
            return ""
        pairs = header_texts(header_pairs(self.headers))
        return next((value for name, value in pairs if name.lower() == "cookie"), "")

    def __repr__(self) -> str:
        return f"<Request {self.method} {self.url}>"


def _checked_headers(
    headers: Mapping[str, str] | Sequence[tuple[str | bytes, str | bytes]],
) -> dict[str, str] | HeaderPairs:
    pairs = list(headers.items()) if isinstance(headers, Mapping) else list(headers)
    for name, value in pairs:
        if not isinstance(name, str | bytes) or not isinstance(value, str | bytes):
            raise ValueError(f"header {name!r} cannot be sent with the value {value!r}")
        text = name if isinstance(name, str) else name.decode("latin-1")
        shown = value if isinstance(value, str) else value.decode("latin-1")
        if not HTTP_TOKEN.fullmatch(text) or _BREAK.search(shown):
            raise ValueError(f"header {name!r} cannot be sent with the value {value!r}")
    return dict(headers) if isinstance(headers, Mapping) else header_pairs(pairs)
