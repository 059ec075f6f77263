"""Targets over HTTP: ClickHouse, and webhooks signed by Standard Webhooks."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from apps.datasets.engine.targets.base import Chunk, TargetUnavailable, as_json, message, stamp
from yardkit.protocol import DownloaderSettings, DownloadRequest, FailureKind
from yardkit.standard_webhooks import signed_headers

if TYPE_CHECKING:
    from yardkit.fetcher import Fetched

TIMEOUT_SECONDS: Final = 30.0
# Bytes of items in one call; a larger single item goes alone.
CALL_BYTES: Final = 4 * 1024 * 1024
# Statuses that concern the message, not the address, the login or the load.
_REFUSALS: Final = frozenset({400, 413, 415, 422})
_TEXT: Final = 300


class HttpClient:
    """POST to one host, restricted to public addresses and the given networks."""

    def __init__(self, networks: Sequence[str]) -> None:
        self._settings = DownloaderSettings(
            concurrency=1,
            timeout_seconds=TIMEOUT_SECONDS,
            max_body_bytes=64 * 1024,
            follow_redirects=False,
            use_cookies=False,
            user_agent="crawlyard",
            allowed_networks=list(networks),
        )

    def post(self, url: str, body: bytes, headers: Mapping[str, str]) -> str:
        """Send; return why the receiver refuses this body, "" if it has taken it.

        Raises ``TargetUnavailable``.
        """
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
        if 200 <= got.status < 300:
            return ""
        said = " ".join(got.body[:_TEXT].decode("utf-8", "replace").split())
        text = f"HTTP {got.status}: {said}" if said else f"HTTP {got.status}"
        if got.status in _REFUSALS:
            return text
        raise TargetUnavailable(text)

    async def _send(self, request: DownloadRequest) -> Fetched:
        # Imported on demand: the import takes 0.25 s.
        from yardkit.fetcher import Fetcher

        fetcher = Fetcher(self._settings)
        try:
            return await fetcher.fetch(request)
        finally:
            await fetcher.close()


class WebhookTarget:
    """POST of ``{"type": "items", "timestamp": .., "dataset": .., "items": [..]}``, signed.

    The webhook ID is the place of the first item, so that a receiver recognises a repeat.
    """

    def __init__(self, client: HttpClient, url: str, secrets: Sequence[str], delivery: int) -> None:
        self._client = client
        self._url = url
        self._secrets = secrets
        self._delivery = delivery

    def write(self, chunk: Chunk) -> Mapping[int, str]:
        refused: dict[int, str] = {}
        for begin, end in parts(chunk):
            head = as_json(
                {
                    "type": "items",
                    "timestamp": stamp(chunk.items[begin].at),
                    "dataset": chunk.dataset,
                }
            )
            items = b",".join(message(item) for item in chunk.items[begin:end])
            body = head[:-1] + b',"items":[' + items + b"]}"
            identity = f"items_{self._delivery}_{chunk.id}_{begin}"
            headers = {"Content-Type": "application/json"}
            if self._secrets:
                headers |= signed_headers(self._secrets, identity, int(time.time()), body)
            reason = self._client.post(self._url, body, headers)
            if reason:
                refused |= dict.fromkeys(range(begin, end), reason)
        return refused

    def close(self) -> None:
        pass


class ClickHouseTarget:
    """Rows of a ClickHouse table by its HTTP interface, ``INSERT .. FORMAT JSONEachRow``.

    Columns that the table does not have are skipped. A token lets the table drop a repeat
    (``non_replicated_deduplication_window``, or a replicated table).
    """

    def __init__(
        self, client: HttpClient, url: str, table: str, headers: Mapping[str, str], delivery: int
    ) -> None:
        self._client = client
        self._url = url.rstrip("/")
        self._table = table
        self._headers = headers
        self._delivery = delivery

    def write(self, chunk: Chunk) -> Mapping[int, str]:
        refused: dict[int, str] = {}
        for begin, end in parts(chunk):
            rows = b"\n".join(
                as_json({**item.data, "_id": item.id, "_run": item.run, "_url": item.url})
                for item in chunk.items[begin:end]
            )
            names = ".".join(f"`{part}`" for part in self._table.split("."))
            settings = {
                "query": f"INSERT INTO {names} FORMAT JSONEachRow",
                "input_format_skip_unknown_fields": "1",
                "date_time_input_format": "best_effort",
                "insert_deduplication_token": f"{self._delivery}-{chunk.id}-{begin}",
            }
            query = "&".join(f"{name}={quote(value)}" for name, value in settings.items())
            reason = self._client.post(f"{self._url}/?{query}", rows, self._headers)
            if reason:
                refused |= dict.fromkeys(range(begin, end), reason)
        return refused

    def close(self) -> None:
        pass


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
