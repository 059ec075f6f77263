"""Rows of ended requests, for the platform: how each has ended, and what makes it again."""

from __future__ import annotations

import os
import traceback
from base64 import b64encode
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from yardkit.items.requests import RequestOutcome, RequestRow, generalized, saved
from yardkit.protocol import header_pairs
from yardspider.callbacks import callback_name
from yardspider.outputs import ItemSink
from yardspider.request import Request
from yardspider.response import Response
from yardspider.spider import Spider

ROBOTS: Final = "robots"
LOST: Final = "lost"
HTTP: Final = "http"
CALLBACK: Final = "callback"
# Frames of a traceback that are kept, and those that tell groups of failures apart.
_FRAMES: Final = 12
_GROUP_FRAMES: Final = 3


@dataclass(frozen=True, slots=True)
class RequestFailure:
    """Why a request has failed. ``error``: exception of the spider's code, if one is the reason.

    ``agent`` and ``elapsed_ms``: of the last answer, if any.
    """

    reason: str
    kind: str
    status: int = 0
    agent: str = ""
    elapsed_ms: float = 0.0
    error: BaseException | None = None


class RequestLog:
    """Makes the row of each ended request of a spider, if the sink keeps them."""

    def __init__(self, spider: Spider, sink: ItemSink) -> None:
        self._spider = spider
        self._sink = sink

    def succeeded(self, response: Response) -> RequestRow | None:
        """Return the row of a page whose callback has ended; ``put`` it when it is a success."""
        if not self._sink.keeps_requests:
            return None
        row = self._row(response.request, RequestOutcome.SUCCESS)
        row.status = response.status
        row.elapsed_ms = round(response.elapsed * 1000)
        row.agent = response.agent
        return row

    def failed(self, request: Request, failure: RequestFailure) -> None:
        """Put the row of a failed request."""
        if not self._sink.keeps_requests:
            return
        refused = failure.kind == ROBOTS
        row = self._row(request, RequestOutcome.REFUSED if refused else RequestOutcome.FAILED)
        row.status = failure.status
        row.elapsed_ms = round(failure.elapsed_ms)
        row.agent = failure.agent
        row.kind, row.error = failure.kind, failure.reason
        if failure.error is not None:
            row.group, row.traceback = described(failure.error)
        else:
            row.group = failure_group(failure.kind, failure.reason)
        row.request, row.not_saved = self._saved(request)
        row.limit()
        self._sink.put_request(row)

    def put(self, row: RequestRow | None) -> None:
        """Put the row of a success."""
        if row is not None:
            self._sink.put_request(row)

    def _row(self, request: Request, outcome: RequestOutcome) -> RequestRow:
        callback = request.callback
        return RequestRow(
            id=request.number,
            parent=request.parent,
            url=request.url,
            host=request.host,
            method=request.method,
            outcome=outcome,
            status=0,
            attempts=request.attempts,
            elapsed_ms=0,
            bytes=request.received,
            depth=request.depth or 0,
            items=request.items,
            callback="parse"
            if callback is None
            else callback
            if isinstance(callback, str)
            else callback_name(callback),
        )

    def _saved(self, request: Request) -> tuple[msgspec.Raw | msgspec.UnsetType, str]:
        if request.seed is not None:
            return msgspec.UNSET, "it belongs to a seed: open the seed again"
        callback = request.callback
        name = "" if callback is None else callback
        if not isinstance(name, str):
            name = callback_name(callback)
            if getattr(callback, "__self__", None) is not self._spider:
                return msgspec.UNSET, f"its callback {name} is no method of the spider"
        return saved(_values(request, name))


def failure_group(kind: str, reason: str) -> str:
    """Return the group of a failure that no code of the spider has raised."""
    # As often as it was tried, the cause is the same.
    cause = reason.partition(", tried ")[0]
    if kind == HTTP:
        return cause
    return f"{kind}: {generalized(cause).removeprefix(f'{kind}: ')}"


def described(error: BaseException) -> tuple[str, str]:
    """Return the group of an error of the spider's code, and its traceback."""
    frames = traceback.extract_tb(error.__traceback__)[-_GROUP_FRAMES:]
    places = " < ".join(
        f"{os.path.basename(frame.filename)}:{frame.lineno} {frame.name}"
        for frame in reversed(frames)
    )
    text = "".join(traceback.format_exception(error, limit=-_FRAMES))
    return f"{type(error).__name__}: {generalized(str(error))} ({places})", text


def _values(request: Request, callback: str) -> dict[str, Any]:
    headers = [
        [name.decode("latin-1"), value.decode("latin-1")]
        for name, value in header_pairs(request.headers)
    ]
    values = {
        "url": request.url,
        "callback": callback,
        "method": request.method,
        "headers": headers,
        "body": b64encode(request.body).decode(),
        "priority": request.priority,
        "meta": request.meta,
        "depth": request.depth or 0,
        "timeout_seconds": request.timeout_seconds,
        "max_bytes": request.max_bytes,
        "timeout_retries": request.timeout_retries,
        "download_retries": request.download_retries,
    }
    return {name: value for name, value in values.items() if value or value == 0}
