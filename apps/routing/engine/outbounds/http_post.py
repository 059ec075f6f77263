"""Outbound for an HTTP service that accepts items as JSON, one or several per request."""

from __future__ import annotations

import asyncio
import hashlib
import re
import threading
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final

from apps.routing.engine.outbounds.base import (
    CLOSED,
    DELIVERED,
    Batch,
    Encoded,
    Outcome,
    SendStatus,
    Sent,
    Settings,
    away,
    refused,
)
from apps.routing.engine.outbounds.parameters import Parameter, between, read, url_of
from apps.routing.engine.rules import Outbound as Rule
from yardkit.bridge import LoopThread
from yardkit.names import is_header_value, is_token
from yardkit.protocol import DownloaderSettings, DownloadRequest, FailureKind

if TYPE_CHECKING:
    from yardkit.fetched import Fetched
    from yardkit.fetcher import Fetcher

IDEMPOTENCY_KEY: Final = "Idempotency-Key"
# These statuses concern the URL, the login or the current load, not the message. They are retried,
# so that no item fails until an operator has corrected the configuration.
_NOT_THE_MESSAGE: Final = frozenset({401, 402, 403, 404, 405, 407, 408, 410, 421, 425, 426, 429})
_TOO_LARGE: Final = frozenset({413, 431})
_ANSWER_BYTES: Final = 64 * 1024
_MOST_PAUSE_SECONDS: Final = 60.0
_MOST_REQUEST_BYTES: Final = 8 * 1024 * 1024
_KEY: Final = re.compile(r"[\x21-\x7e]{1,200}")
_OUR_HEADERS: Final = frozenset(
    {"host", "content-length", "content-type", "transfer-encoding", "connection", "expect"}
) | {"accept-encoding", IDEMPOTENCY_KEY.lower()}


def _check_headers(headers: Mapping[Any, Any]) -> str:
    for name, value in headers.items():
        if not is_token(name, 100):
            return "the name of a header has letters, digits and hyphens"
        if name.lower() in _OUR_HEADERS:
            return f"the header {name} is set by the outbound itself"
        # The value is not shown, because it may be a secret token.
        if not is_header_value(value, 4000):
            return f"the value of the header {name} is no line of ASCII"
    return ""


class HttpOutbound:
    """Outbound that sends messages by POST; any 2xx means delivered. Redirects are not followed.

    Private addresses are rejected unless they are in ``Settings.allowed_networks``. The resolved
    address is checked when the connection is made.
    """

    parameters: ClassVar[Mapping[str, Parameter]] = {
        "url": Parameter(str, required=True, check=url_of(("http", "https"), "https://host/path")),
        "headers": Parameter(dict, default={}, check=_check_headers),
        # Maximum number of messages per request, as a JSON array; 0: one message, as an object.
        "batch": Parameter(int, default=0, check=between(0, 1000)),
        # Number of concurrent requests. More than one is faster but does not keep the order.
        "concurrency": Parameter(int, default=1, check=between(1, 64)),
    }
    default_expects_result: ClassVar[bool] = False

    def __init__(self, rule: Rule, settings: Settings) -> None:
        """Raise ``ValueError`` for parameters that ``registry.check`` rejects."""
        values = read(rule.init, self.parameters)
        self._url: str = values["url"]
        self._headers: dict[str, str] = dict(values["headers"])
        self._batch: int = values["batch"]
        self._concurrency: int = values["concurrency"]
        self._timeout = settings.timeout_seconds
        self._downloader = DownloaderSettings(
            concurrency=self._concurrency,
            timeout_seconds=settings.timeout_seconds,
            max_body_bytes=_ANSWER_BYTES,
            follow_redirects=False,
            use_cookies=False,
            user_agent=settings.client_name,
            allowed_networks=list(settings.allowed_networks),
        )
        self._lock = threading.Lock()
        self._loop = LoopThread("http outbound")
        self._fetcher: Fetcher | None = None
        self._pause_until = 0.0
        self._is_closed = False

    def send(self, batch: Sequence[Sent]) -> list[Outcome]:
        """See ``Outbound``."""
        with self._lock:
            if self._is_closed:
                return [CLOSED] * len(batch)
            work = Batch(batch)
            if time.monotonic() < self._pause_until:
                return work.finish(away("busy", "the service has asked for a pause"))
            return self._loop.submit(self._send(work)).result()

    def depth(self) -> int | None:
        """Return None: the backlog of a service is unknown."""
        return None

    def close(self) -> None:
        """See ``Outbound``."""
        with self._lock:
            self._is_closed = True
            fetcher, self._fetcher = self._fetcher, None
            if fetcher is not None:
                self._loop.submit(fetcher.close()).result(self._timeout)
            self._loop.close()

    # --- runs in the thread of the event loop --------------------------------------------------

    async def _send(self, work: Batch) -> list[Outcome]:
        # Imported here, because it takes 0.25 s and every web process imports this module.
        from yardkit.fetcher import Fetcher

        # Created here, because it is bound to the event loop of this thread.
        fetcher = self._fetcher = self._fetcher or Fetcher(self._downloader)
        waiting = list(reversed(self._groups(work.ready)))
        deadline = time.monotonic() + self._timeout
        late = away("timeout", "the service did not take the batch in time")
        stopped: list[Outcome] = []

        async def work_off() -> None:
            while waiting and not stopped:
                group = waiting.pop()
                answer = await self._post(fetcher, group, deadline)
                outcome = self._outcome(answer)
                if len(group) > 1 and outcome.code in ("refused", "too_large"):
                    # At least one message is rejected: bisect the batch to find it.
                    middle = len(group) // 2
                    waiting.extend((group[middle:], group[:middle]))
                    continue
                work.settle(group, outcome)
                if outcome.verdict is SendStatus.AWAY:
                    # Stop: further messages would fail too, or overtake this one.
                    stopped.append(outcome)

        await asyncio.gather(*(work_off() for _ in range(self._concurrency)))
        return work.finish(stopped[0] if stopped else late)

    def _groups(self, messages: Sequence[Encoded]) -> list[list[Encoded]]:
        groups: list[list[Encoded]] = []
        size = 0
        for message in messages:
            full = not groups or len(groups[-1]) >= max(self._batch, 1)
            if full or size + len(message.body) > _MOST_REQUEST_BYTES:
                groups.append([])
                size = 0
            groups[-1].append(message)
            size += len(message.body) + 1
        return groups

    async def _post(self, fetcher: Fetcher, group: list[Encoded], deadline: float) -> Fetched:
        body = group[0].body
        key = "\n".join(message.sent.task_uuid for message in group)
        if self._batch:
            body = b"[" + b",".join(message.body for message in group) + b"]"
        if self._batch or not _KEY.fullmatch(key):
            key = hashlib.sha256(key.encode("utf-8", "backslashreplace")).hexdigest()
        headers = {
            **self._headers,
            "Content-Type": "application/json; charset=utf-8",
            # A response that cannot be decompressed would hide that the message was accepted.
            "Accept-Encoding": "identity",
            IDEMPOTENCY_KEY: key,
        }
        return await fetcher.fetch(
            DownloadRequest(
                url=self._url,
                method="POST",
                headers=headers,
                body=body,
                timeout_seconds=max(deadline - time.monotonic(), 0.001),
            )
        )

    def _outcome(self, answer: Fetched) -> Outcome:
        if answer.failure is FailureKind.ADDRESS_REFUSED:
            return away(
                str(answer.failure),
                f"not connected to {answer.error}; ROUTING_ALLOWED_NETWORKS opens networks",
            )
        if answer.failure is not FailureKind.NONE:
            # The service may have accepted the message, but the response is unreadable: retry.
            return away(str(answer.failure), f"no answer from the service: {answer.error}")
        status = answer.status
        if 200 <= status < 300:
            return DELIVERED
        text = f"the service answers HTTP {status}"
        if status in _TOO_LARGE:
            return refused("too_large", f"{text}: too large for it")
        if 400 <= status < 500 and status not in _NOT_THE_MESSAGE:
            return refused("refused", text)
        if status in (429, 503):
            self._pause_until = time.monotonic() + _retry_after(answer.headers)
        return away("busy" if status in (429, 503) else "status", text)


def _retry_after(headers: Sequence[tuple[str, str]]) -> float:
    """Return the seconds of a Retry-After header, at most 60; 0 if it is missing or a date."""
    for name, value in headers:
        if name.lower() == "retry-after" and value.strip().isdecimal():
            return min(float(value), _MOST_PAUSE_SECONDS)
    return 0.0
