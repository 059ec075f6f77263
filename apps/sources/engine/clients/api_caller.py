"""HTTP client of record APIs with rate limit and bounded retries.

Transient failures (5xx, 429, a broken connection, HTML instead of JSON, a truncated body, wrong
types) are retried ``retries`` times with back-off; then the import fails with the last reason and
resumes at its checkpoint when it is started again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import urlsplit

import msgspec

from apps.sources.engine.clients.base import BadAnswer
from apps.sources.engine.errors import ApiFailed
from apps.sources.engine.pacer import Pacer
from yardkit.backoff import back_off
from yardkit.nesting import check_json
from yardkit.protocol import DownloaderSettings, DownloadRequest, FailureKind

if TYPE_CHECKING:
    from yardkit.fetched import Fetched

T = TypeVar("T")

MAX_ANSWER_BYTES: Final = 64 * 1024 * 1024
# Longest pause that an API can impose.
LONGEST_PAUSE_SECONDS: Final = 300.0
_FORBIDDEN: Final = (401, 403)
_PASSING: Final = (408, 425, 429)
_WEIGHT: Final = 0.2
_TOLD: Final = 160


@dataclass(frozen=True, slots=True)
class RetryBackoff:
    """Back-off in seconds: doubling from the first pause to the longest."""

    first: float = 0.5
    longest: float = 30.0

    def after(self, failures: int) -> float:
        """Return the pause after this number of consecutive failures, with jitter of a half."""
        return back_off(failures, self.first, self.longest)


class Unauthorized(Exception):
    """The API rejected the credentials."""


@dataclass(slots=True)
class Account:
    """State that the sources of one account at one API share: rate limit and token."""

    pacer: Pacer = field(default_factory=lambda: Pacer(time.monotonic))
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    token: str = ""
    refresh: str = ""
    expires_at: float = 0.0


class ApiCaller:
    """Client of one source. The address guard is applied where sockets are created."""

    def __init__(
        self,
        *,
        account: Account,
        rate: Callable[[], float],
        retries: Callable[[], int],
        timeout_seconds: float,
        allowed_networks: list[str],
        patience: RetryBackoff,
        user_agent: str,
    ) -> None:
        # Imported here: it takes a quarter of a second, and every web process imports this module.
        from yardkit.fetcher import Fetcher

        self.account = account
        self.latency = 0.1
        self._rate = rate
        self._retries = retries
        self._patience = patience
        # Redirects are not followed: they would send the token to another host.
        self._fetcher = Fetcher(
            DownloaderSettings(
                timeout_seconds=timeout_seconds,
                max_body_bytes=MAX_ANSWER_BYTES,
                follow_redirects=False,
                use_cookies=False,
                user_agent=user_agent,
                allowed_networks=allowed_networks,
            )
        )

    async def ask(
        self, make: Callable[[], Awaitable[DownloadRequest]], read: Callable[[Any], T]
    ) -> T:
        """Return the result of ``read`` on the JSON response.

        Raises ``Unauthorized`` if the API rejects the credentials, ``ApiFailed`` after the last
        retry.
        """
        failures = 0
        while True:
            # Checked twice: before waiting for the rate limit, and again afterwards.
            await make()
            await self.account.pacer.turn(self._rate())
            request = await make()
            fetched = await self._fetcher.fetch(request)
            try:
                self._judge(fetched)
                result = read(_json(fetched))
            except BadAnswer as bad:
                failures += 1
                if failures > self._retries():
                    tries = f"{failures} attempts" if failures > 1 else "asked once"
                    raise ApiFailed(f"{bad} ({tries})") from None
                await self._wait(fetched, failures)
            else:
                self.latency += _WEIGHT * (fetched.elapsed_ms / 1000.0 - self.latency)
                return result

    async def close(self) -> None:
        """Close all connections."""
        await self._fetcher.close()

    async def _wait(self, fetched: Fetched, failures: int) -> None:
        seconds = self._patience.after(failures)
        if fetched.status in (429, 503):
            wait = _retry_after(fetched)
            seconds = seconds if wait is None else max(wait, seconds / 10)
            # The limit applies to the whole account, not to this request.
            self.account.pacer.pause(seconds)
            return
        await asyncio.sleep(seconds)

    def _judge(self, fetched: Fetched) -> None:
        if fetched.failure is FailureKind.ADDRESS_REFUSED:
            raise ApiFailed(
                f"{fetched.error}; see SOURCES_ALLOWED_NETWORKS and the project's networks",
                "address_refused",
            )
        if fetched.failure is FailureKind.BAD_REQUEST:
            raise ApiFailed(f"cannot send the request: {fetched.error}", "bad_request")
        if fetched.failure is not FailureKind.NONE:
            raise BadAnswer(f"no response ({fetched.failure.value}): {fetched.error}")
        status = fetched.status
        if fetched.truncated:
            text = f"response above {MAX_ANSWER_BYTES >> 20} MiB; use a smaller batch_size"
            raise ApiFailed(text, "too_large")
        if 200 <= status < 300:
            return
        if status in _FORBIDDEN:
            raise Unauthorized(f"status {status}{_response_text(fetched)}")
        if status in _PASSING or status >= 500:
            raise BadAnswer(f"status {status}{_response_text(fetched)}")
        if 300 <= status < 400:
            raise ApiFailed(f"redirect not followed: {_leads_to(fetched)}", "redirect")
        raise ApiFailed(f"status {status}{_response_text(fetched)}", f"status_{status}")


def _json(fetched: Fetched) -> Any:
    try:
        check_json(fetched.body)
        return msgspec.json.decode(fetched.body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        start = fetched.body[:200].lstrip().lower()
        kind = "an HTML page" if start.startswith((b"<!doctype", b"<html", b"<")) else "no JSON"
        raise BadAnswer(f"the response is {kind} ({len(fetched.body)} bytes)") from None


def _header(fetched: Fetched, name: str) -> str:
    return next((value for key, value in fetched.headers if key.lower() == name), "")


def _retry_after(fetched: Fetched) -> float | None:
    """Parse Retry-After, seconds or a date; None if it is absent or invalid."""
    header = _header(fetched, "retry-after").strip()
    if not header:
        return None
    try:
        seconds = float(header)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(header).timestamp() - time.time()
        except (ValueError, TypeError):
            return None
    return min(max(0.0, seconds), LONGEST_PAUSE_SECONDS) if seconds == seconds else None


def _leads_to(fetched: Fetched) -> str:
    # Scheme and host only: path and query may contain secrets.
    parts = urlsplit(_header(fetched, "location")[:500])
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}" if parts.netloc else "itself"


def _response_text(fetched: Fetched) -> str:
    """Return the API's error message, shortened, from its documented error fields only."""
    try:
        check_json(fetched.body)
        data = msgspec.json.decode(fetched.body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ""
    texts = [
        data[key]
        for key in ("error", "error_description", "error_Description", "message")
        if isinstance(data, dict) and isinstance(data.get(key), str)
    ]
    return f": {': '.join(texts)[:_TOLD]}" if texts else ""
