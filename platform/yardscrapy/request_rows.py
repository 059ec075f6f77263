"""Rows of the ended requests of a crawl; what of a request is saved makes it again."""

from __future__ import annotations

from base64 import b64encode
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec
from scrapy import Request, Spider

from yardkit.items.requests import RequestOutcome, RequestRow, saved
from yardkit.protocol import FailureKind
from yardscrapy.client import ClientResult
from yardspider.callbacks import callback_name
from yardspider.request_log import ROBOTS, described, failure_group

# Keys of ``Request.meta``: what the last download was, and the number of the request whose page the
# request was made from.
DOWNLOAD: Final = "crawlyard_download"
PARENT: Final = "crawlyard_parent"
# Failure before or after the download: an exception of a downloader middleware.
MIDDLEWARE: Final = "middleware"
# What a repeated request must not begin with.
_TRANSIENT: Final = (
    DOWNLOAD,
    PARENT,
    "crawlyard_agent",
    "download_latency",
    "download_slot",
    "retry_times",
)


@dataclass(frozen=True, slots=True)
class EndedRequest:
    """A request that has ended, with ``reason`` and ``kind`` if it has failed.

    ``error``: exception of the project's code, if one is the reason.
    """

    request: Request
    url: str
    status: int = 0
    reason: str = ""
    kind: str = ""
    error: BaseException | None = None
    items: int = 0


def note_download(request: Request, answer: ClientResult) -> None:
    """Note in the request what its download was."""
    result = answer.result
    failed = answer.kind is not FailureKind.NONE
    request.meta[DOWNLOAD] = {
        "id": answer.number,
        "attempts": answer.attempts,
        "agent": answer.agent,
        "kind": str(answer.kind) if failed else "",
        "elapsed_ms": 0 if result is None else round(result.elapsed_ms),
        "bytes": 0 if result is None else result.size,
    }


def number_of(request: Request) -> int:
    """Return the number of a downloaded request, 0 if it was not downloaded by an agent."""
    return int(request.meta.get(DOWNLOAD, {}).get("id", 0))


def row_of(ended: EndedRequest, spider: Spider | None) -> RequestRow:
    """Return the row of an ended request."""
    request = ended.request
    download = request.meta.get(DOWNLOAD, {})
    kind = ended.kind
    row = RequestRow(
        id=download.get("id", 0),
        parent=request.meta.get(PARENT, 0),
        url=ended.url,
        host=_host(ended.url),
        method=request.method,
        outcome=_outcome(kind),
        status=ended.status,
        attempts=request.meta.get("retry_times", 0) + download.get("attempts", 1),
        elapsed_ms=download.get("elapsed_ms", 0),
        bytes=download.get("bytes", 0),
        depth=request.meta.get("depth", 0),
        items=ended.items,
        agent=download.get("agent", ""),
        callback="parse" if request.callback is None else callback_name(request.callback),
    )
    if kind:
        row.kind, row.error = kind, ended.reason
        row.group = failure_group(kind, ended.reason)
        if ended.error is not None:
            row.group, row.traceback = described(ended.error)
        row.request, row.not_saved = _saved(request, spider)
    row.limit()
    return row


def failure_kind(request: Request, *, robots: bool) -> str:
    """Return the kind of a request that has no response."""
    if robots:
        return ROBOTS
    return request.meta.get(DOWNLOAD, {}).get("kind", "") or MIDDLEWARE


def _outcome(kind: str) -> RequestOutcome:
    if not kind:
        return RequestOutcome.SUCCESS
    return RequestOutcome.REFUSED if kind == ROBOTS else RequestOutcome.FAILED


def _saved(request: Request, spider: Spider | None) -> tuple[msgspec.Raw | msgspec.UnsetType, str]:
    try:
        values: dict[str, Any] = request.to_dict(spider=spider)
    except ValueError as error:
        return msgspec.UNSET, str(error)
    headers = [
        [name.decode("latin-1"), value.decode("latin-1")]
        for name, found in values["headers"].items()
        for value in found
    ]
    meta = {name: value for name, value in request.meta.items() if name not in _TRANSIENT}
    body = b64encode(request.body).decode()
    return saved({**values, "headers": headers, "body": body, "meta": meta})


def _host(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""
