"""Targets over HTTP: ClickHouse, and webhooks signed by Standard Webhooks."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from apps.datasets.engine.targets.base import (
    Chunk,
    TargetUnavailable,
    as_json,
    identified,
    message,
    stamp,
)
from yardkit.protocol import DownloaderSettings, DownloadRequest, FailureKind
from yardkit.standard_webhooks import signed_headers

if TYPE_CHECKING:
    from yardkit.fetched import Fetched

TIMEOUT_SECONDS: Final = 30.0
# Bytes of items in one call; a larger single item goes alone.
CALL_BYTES: Final = 4 * 1024 * 1024
# Statuses that concern the message, not the address, the login or the load.
_REFUSALS: Final = frozenset({400, 413, 415, 422})
_TEXT: Final = 300
_CODE: Final = re.compile(r"Code: ([0-9]{1,9})\b")
# ClickHouse's errors about values; others concern the table, the login or the load.
_CLICKHOUSE_DATA: Final = frozenset(
    {6, 25, 26, 27, 38, 41, 53, 69, 70, 72, 117, 131, 190, 349, 376, 675, 676, 691}
)


class HttpClient:
    """POST to one host, restricted to public addresses and the given networks.

    ``check`` is called before each POST.
    """

    def __init__(self, networks: Sequence[str], check: Callable[[], None] = lambda: None) -> None:
        self._check = check
        self._settings = DownloaderSettings(
            concurrency=1,
            timeout_seconds=TIMEOUT_SECONDS,
            max_body_bytes=64 * 1024,
            follow_redirects=False,
            use_cookies=False,
            user_agent="crawlyard",
            allowed_networks=list(networks),
        )

    def post(self, url: str, body: bytes, headers: Mapping[str, str]) -> tuple[int, str]:
        """Send; return status and text of the answer. Raises ``TargetUnavailable`` without one."""
        self._check()
        request = DownloadRequest(
            url=url,
            method="POST",
            headers=dict(headers),
            body=body,
            timeout_seconds=TIMEOUT_SECONDS,
        )
        got = asyncio.run(self._send(request))
        if got.failure is not FailureKind.NONE:
            raise TargetUnavailable(f"no answer: {got.failure} {got.error}".strip())
        return got.status, " ".join(got.body[:_TEXT].decode("utf-8", "replace").split())

    async def _send(self, request: DownloadRequest) -> Fetched:
        # Imported on demand: the import takes 0.25 s.
        from yardkit.fetcher import Fetcher

        fetcher = Fetcher(self._settings)
        try:
            return await fetcher.fetch(request)
        finally:
            await fetcher.close()


class CallTarget:
    """Sends slices of a chunk, each in one call; finds the items that make it refused."""

    by_place = True

    def write(self, chunk: Chunk) -> Mapping[int, str]:
        refused: dict[int, str] = {}
        left = list(reversed(parts(chunk)))
        while left:
            begin, end = left.pop()
            reason = self.send(chunk, begin, end)
            if reason and end - begin > 1:
                middle = (begin + end) // 2
                left += [(middle, end), (begin, middle)]
            elif reason:
                refused[begin] = reason
        return refused

    def send(self, chunk: Chunk, begin: int, end: int) -> str:
        """Send items; return why the receiver refuses them, "" if it has taken them."""
        raise NotImplementedError

    def close(self) -> None:
        """Nothing is open between calls."""


class WebhookTarget(CallTarget):
    """POST of ``{"type": "items", "timestamp": .., "dataset": .., "items": [..]}``, signed.

    The webhook ID is the place of the items, so that a receiver recognises a repeat.
    """

    most_items = 1000

    def __init__(self, client: HttpClient, url: str, secrets: Sequence[str], delivery: int) -> None:
        self._client = client
        self._url = url
        self._secrets = secrets
        self._delivery = delivery

    def send(self, chunk: Chunk, begin: int, end: int) -> str:
        head = as_json(
            {"type": "items", "timestamp": stamp(chunk.items[begin].at), "dataset": chunk.dataset}
        )
        items = b",".join(message(item) for item in chunk.items[begin:end])
        body = head[:-1] + b',"items":[' + items + b"]}"
        identity = f"items_{self._delivery}_{chunk.id}_{begin}_{end}"
        headers = {"Content-Type": "application/json"}
        if self._secrets:
            headers |= signed_headers(self._secrets, identity, int(time.time()), body)
        status, text = self._client.post(self._url, body, headers)
        return _refusal(status, text, by_item=status in _REFUSALS)


class ClickHouseTarget(CallTarget):
    """Rows of a ClickHouse table by its HTTP interface, ``INSERT .. FORMAT JSONEachRow``.

    Columns that the table does not have are skipped. A token lets the table drop a repeat
    (``non_replicated_deduplication_window``, or a replicated table).
    """

    most_items = 10_000

    def __init__(
        self, client: HttpClient, url: str, table: str, headers: Mapping[str, str], delivery: int
    ) -> None:
        self._client = client
        self._url = url.rstrip("/")
        self._table = table
        self._headers = headers
        self._delivery = delivery

    def send(self, chunk: Chunk, begin: int, end: int) -> str:
        rows = b"\n".join(as_json(identified(item)) for item in chunk.items[begin:end])
        names = ".".join(f"`{part}`" for part in self._table.split("."))
        settings = {
            "query": f"INSERT INTO {names} FORMAT JSONEachRow",
            "input_format_skip_unknown_fields": "1",
            "date_time_input_format": "best_effort",
            "insert_deduplication_token": f"{self._delivery}-{chunk.id}-{begin}-{end}",
        }
        query = "&".join(f"{name}={quote(value)}" for name, value in settings.items())
        status, text = self._client.post(f"{self._url}/?{query}", rows, self._headers)
        code = _CODE.match(text)
        by_item = int(code[1]) in _CLICKHOUSE_DATA if code else status == 413
        return _refusal(status, text, by_item=by_item)


def _refusal(status: int, text: str, *, by_item: bool) -> str:
    if 200 <= status < 300:
        return ""
    reason = f"HTTP {status}: {text}" if text else f"HTTP {status}"
    if not by_item:
        raise TargetUnavailable(reason)
    return reason


def parts(chunk: Chunk) -> list[tuple[int, int]]:
    """Return slices of a chunk's items of at most ``CALL_BYTES``."""
    found: list[tuple[int, int]] = []
    begin, size = 0, 0
    for place, item in enumerate(chunk.items):
        if place > begin and size + len(item.json) > CALL_BYTES:
            found.append((begin, place))
            begin, size = place, 0
        size += len(item.json)
    return [*found, (begin, len(chunk.items))]
