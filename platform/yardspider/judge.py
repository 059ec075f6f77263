"""Judges an answer: success, retry, or failed."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import NamedTuple
from urllib.parse import unquote

from yardkit.protocol import RETRYABLE_FAILURES, DownloadResult, FailureKind
from yardspider.callbacks import describe_error
from yardspider.links import quoted
from yardspider.request import Request
from yardspider.response import Response
from yardspider.transports.bodies import FiledResult

# Statuses of a server that may answer properly a moment later.
_TOO_MANY_REQUESTS = 429
_SERVER_ERRORS = range(500, 600)
LONGEST_RETRY_AFTER_SECONDS = 60.0


class VerdictKind(enum.Enum):
    SUCCESS = "success"
    RETRY = "retry"  # counts against download_retries
    LOST = "lost"  # no agent took it: counts against request_timeout_retries
    FAILED = "failed"


class ResponseVerdict(NamedTuple):
    """Judgement of one answer.

    ``response``: set when there was an HTTP status. ``wait_seconds``: what the server asked for.
    ``kind``: of a failure, as in ``RequestRow``. ``error``: what ``is_success`` raised.
    """

    judgement: VerdictKind
    reason: str = ""
    response: Response | None = None
    wait_seconds: float = 0.0
    kind: str = "http"
    error: BaseException | None = None


def judge(
    result: DownloadResult, request: Request, agent: str, is_success: Callable[[Response], bool]
) -> ResponseVerdict:
    """Judge one answer; ``is_success`` is the spider's."""
    if result.failure is not FailureKind.NONE:
        reason = f"{result.failure.value}: {result.error}" if result.error else result.failure.value
        if result.failure is FailureKind.DOWNLOADER_MISSING:
            return ResponseVerdict(VerdictKind.LOST, reason)
        retries = result.failure in RETRYABLE_FAILURES
        judgement = VerdictKind.RETRY if retries else VerdictKind.FAILED
        return ResponseVerdict(judgement, reason, kind=result.failure.value)
    response = Response(
        final_url(request.url, result.url),
        request=request,
        status=result.status,
        headers=result.headers,
        body=result.body,
        agent=agent,
        elapsed=result.elapsed_ms / 1000.0,
        truncated=result.truncated,
        latency=result.headers_ms / 1000.0,
        protocol=result.protocol,
        peer=result.peer,
        certificate=result.certificate,
        file=result.file if isinstance(result, FiledResult) else None,
    )
    try:
        success = is_success(response)
    except Exception as error:  # noqa: BLE001 - a spider's code: it fails this request only
        return ResponseVerdict(
            VerdictKind.FAILED,
            describe_error("is_success", error, is_success),
            response,
            kind="callback",
            error=error,
        )
    if success:
        return ResponseVerdict(VerdictKind.SUCCESS, "", response)
    if result.status == _TOO_MANY_REQUESTS or result.status in _SERVER_ERRORS:
        return ResponseVerdict(
            VerdictKind.RETRY, f"HTTP {result.status}", response, _retry_after(response)
        )
    refused = "" if result.status >= 400 else ", refused by is_success"
    return ResponseVerdict(VerdictKind.FAILED, f"HTTP {result.status}{refused}", response)


def final_url(asked: str, answered: str) -> str:
    """Return the URL of a page; a URL that the client only re-quoted is not a redirect.

    Links are resolved against it, so ``/%7Euser/`` must not turn into ``/~user/``: the same page
    would be found under two names.
    """
    if asked == answered or not answered:
        return asked
    same = unquote(asked) == unquote(answered) and all(
        asked.count(mark) == answered.count(mark) for mark in "/?"
    )
    return quoted(asked) if same else answered


def _retry_after(response: Response) -> float:
    """Return the seconds of ``Retry-After``; its other form, a date, is ignored."""
    value = response.headers.get("retry-after")
    return min(float(value), LONGEST_RETRY_AFTER_SECONDS) if value.isdecimal() else 0.0
