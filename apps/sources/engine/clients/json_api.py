"""Client of any API that returns records as JSON, by offset and size."""

from __future__ import annotations

import base64
from typing import Any
from urllib.parse import urlencode

from apps.sources.engine import paths
from apps.sources.engine.clients.api_caller import ApiCaller, Unauthorized
from apps.sources.engine.clients.base import BadAnswer, RecordPage, Secrets, whole
from apps.sources.engine.errors import ApiFailed
from apps.sources.engine.settings import Auth, Source
from yardkit.protocol import DownloadRequest


class JsonClient:
    """``RecordClient`` for JSON APIs; ``top`` and ``mark`` are not supported."""

    def __init__(self, source: Source, secrets: Secrets, asker: ApiCaller) -> None:
        self._url = source.url
        self._api = source.json
        self._asker = asker
        self._headers = {"Accept": "application/json", **_authorization(source.json.auth, secrets)}

    @property
    def latency(self) -> float:
        return self._asker.latency

    async def total(self) -> int:
        page = await self._page(0, 1)
        if page.total is None:
            raise ApiFailed(f"no value at {self._api.total}; check json.total")
        return page.total

    async def batch(self, offset: int, size: int) -> RecordPage:
        """Return a batch; the rest of a short response is requested again."""
        records: list[Any] = []
        total: int | None = None
        while len(records) < size:
            page = await self._page(offset + len(records), size - len(records))
            total = page.total if page.total is not None else total
            if not page.records:
                break
            records += page.records[: size - len(records)]
        return RecordPage(records, total)

    async def top(self, size: int) -> RecordPage:
        """Raise ``ApiFailed``: only Octoparse marks exported records."""
        raise ApiFailed("this API has no export marks", "not_supported")

    async def mark(self) -> None:
        """Raise ``ApiFailed``: only Octoparse marks exported records."""
        raise ApiFailed("this API has no export marks", "not_supported")

    async def close(self) -> None:
        await self._asker.close()

    async def _page(self, offset: int, size: int) -> RecordPage:
        api = self._api
        query = urlencode(
            {**api.parameters, api.offset_parameter: offset, api.size_parameter: size}
        )
        sign = "&" if "?" in self._url else "?"
        request = DownloadRequest(url=f"{self._url}{sign}{query}", headers=self._headers)

        async def make() -> DownloadRequest:
            return request

        def read(answer: Any) -> RecordPage:
            records = paths.find(api.records, answer)
            total = paths.find(api.total, answer)
            if not isinstance(records, list):
                raise BadAnswer(f"no list at {api.records}; check json.records")
            page = RecordPage(records, None if total is None else whole(total, api.total))
            if not records and page.total is not None and page.total > offset:
                raise BadAnswer(f"{page.total} records reported, but none returned at {offset}")
            return page

        try:
            return await self._asker.ask(make, read)
        except Unauthorized as error:
            text = f"the API rejects the credentials: {error}"
            raise ApiFailed(text, "unauthorized") from None


def _authorization(auth: Auth, secrets: Secrets) -> dict[str, str]:
    if auth is Auth.BASIC:
        pair = f"{secrets.username}:{secrets.password}".encode()
        return {"Authorization": f"Basic {base64.b64encode(pair).decode()}"}
    if auth is Auth.BEARER:
        return {"Authorization": f"Bearer {secrets.token}"}
    return dict(secrets.headers) if auth is Auth.HEADERS else {}
