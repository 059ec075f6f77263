"""Octoparse (八爪鱼): its data API and its newer open API.

Both issue a token for a user name and a password, and return records of a task by offset and size.
They differ in paths, in the token request and in the place of the list.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, TypeVar
from urllib.parse import urlencode

import msgspec

from apps.sources.engine.clients.api_caller import Account, ApiCaller, Unauthorized
from apps.sources.engine.clients.base import BadAnswer, RecordPage, Secrets, whole
from apps.sources.engine.errors import ApiFailed
from apps.sources.engine.settings import Source
from yardkit.protocol import DownloadRequest

T = TypeVar("T")

# A token this close to its expiry is replaced: a request may take a while.
_SPARE_SECONDS: Final = 60.0
_FORM: Final = "application/x-www-form-urlencoded"
_JSON: Final = "application/json"


@dataclass(frozen=True, slots=True)
class _Dialect:
    all: str
    top: str
    mark: str
    list: str
    content_type: str


_DATA: Final = _Dialect(
    all="/api/alldata/GetDataOfTaskByOffset",
    top="/api/notexportdata/gettop",
    mark="/api/notexportdata/update",
    list="dataList",
    content_type=_FORM,
)
_OPEN: Final = _Dialect(
    all="/data/all",
    top="/data/notexported",
    mark="/data/markexported",
    list="data",
    content_type=_JSON,
)


class OctoparseClient:
    """``RecordClient`` for Octoparse."""

    def __init__(self, source: Source, secrets: Secrets, asker: ApiCaller) -> None:
        self._base = source.url
        self._task = source.task_id
        self._secrets = secrets
        self._asker = asker
        self._dialect = _OPEN if source.speaks_open else _DATA

    @property
    def latency(self) -> float:
        return self._asker.latency

    async def total(self) -> int:
        """Return the number of records; the API states it with every batch."""
        page = await self._page(self._dialect.all, {"offset": 0, "size": 1})
        if page.total is None:
            raise ApiFailed("the response has no total")
        return page.total

    async def batch(self, offset: int, size: int) -> RecordPage:
        """Return a batch; the rest of a short response is requested again."""
        records: list[Any] = []
        total: int | None = None
        while len(records) < size:
            at, wanted = offset + len(records), size - len(records)
            page = await self._page(self._dialect.all, {"offset": at, "size": wanted})
            total = page.total if page.total is not None else total
            if not page.records:
                break
            records += page.records[:wanted]
        return RecordPage(records, total)

    async def top(self, size: int) -> RecordPage:
        return await self._page(self._dialect.top, {"size": size})

    async def mark(self) -> None:
        open_api = self._dialect is _OPEN
        query = "" if open_api else f"?{urlencode({'taskId': self._task})}"
        body = msgspec.json.encode({"taskId": self._task}) if open_api else b""

        async def make() -> DownloadRequest:
            headers = await self._headers()
            if body:
                headers["Content-Type"] = _JSON
            return DownloadRequest(
                url=f"{self._base}{self._dialect.mark}{query}",
                method="POST",
                headers=headers,
                body=body,
            )

        await self._authorized(make, _succeeded)

    async def close(self) -> None:
        await self._asker.close()

    # --- asking -------------------------------------------------------------------------------

    async def _page(self, path: str, parameters: dict[str, int]) -> RecordPage:
        query = urlencode({"taskId": self._task, **parameters})
        offset = parameters.get("offset")

        async def make() -> DownloadRequest:
            return DownloadRequest(url=f"{self._base}{path}?{query}", headers=await self._headers())

        def read(answer: Any) -> RecordPage:
            page = self._read(answer)
            short = not page.records and offset is not None
            if short and page.total is not None and page.total > (offset or 0):
                raise BadAnswer(f"{page.total} records reported, but none returned at {offset}")
            return page

        return await self._authorized(make, read)

    def _read(self, answer: Any) -> RecordPage:
        data = _succeeded(answer)
        if not isinstance(data, dict):
            raise BadAnswer("the response has no data")
        records = data.get(self._dialect.list)
        if not isinstance(records, list):
            raise BadAnswer(f"{self._dialect.list} is no list")
        return RecordPage(records, whole(data.get("total"), "total"))

    async def _authorized(
        self, make: Callable[[], Awaitable[DownloadRequest]], read: Callable[[Any], T]
    ) -> T:
        """Send a request; retry once with a new token if the current one is rejected."""
        used = self._asker.account.token
        try:
            return await self._asker.ask(make, read)
        except Unauthorized:
            self._forget(used)
        try:
            return await self._asker.ask(make, read)
        except Unauthorized as error:
            text = f"the API rejects a new token: {error}"
            raise ApiFailed(text, "unauthorized") from None

    # --- the token ----------------------------------------------------------------------------

    async def _headers(self) -> dict[str, str]:
        return {"Authorization": f"bearer {await self._token()}"}

    async def _token(self) -> str:
        account = self._asker.account
        async with account.lock:
            if not account.token or time.monotonic() >= account.expires_at:
                await self._renew(account)
            return account.token

    def _forget(self, used: str) -> None:
        account = self._asker.account
        # Unless another source has already fetched a new token.
        if account.token == used or not used:
            account.token = account.refresh = ""

    async def _renew(self, account: Account) -> None:
        if account.refresh:
            form = {"refresh_token": account.refresh, "grant_type": "refresh_token"}
            account.refresh = ""
            try:
                return await self._ask_token(account, form)
            except (ApiFailed, Unauthorized):
                pass  # expired
        who = {"username": self._secrets.username, "password": self._secrets.password}
        try:
            await self._ask_token(account, {**who, "grant_type": "password"})
        except (Unauthorized, ApiFailed) as error:
            code = getattr(error, "code", "unauthorized")
            if isinstance(error, Unauthorized) or code == "status_400":
                text = f"the API rejects the user name or password: {error}"
                raise ApiFailed(text, "unauthorized") from None
            raise

    async def _ask_token(self, account: Account, form: dict[str, str]) -> None:
        is_form = self._dialect.content_type == _FORM
        body = urlencode(form).encode() if is_form else msgspec.json.encode(form)
        request = DownloadRequest(
            url=f"{self._base}/token",
            method="POST",
            headers={"Content-Type": self._dialect.content_type},
            body=body,
        )

        async def make() -> DownloadRequest:
            return request

        token, refresh, seconds = await self._asker.ask(make, _token_of)
        account.token, account.refresh = token, refresh
        # A token that lives shorter than the margin is used for half its life.
        account.expires_at = time.monotonic() + max(seconds - _SPARE_SECONDS, seconds / 2)


def _token_of(answer: Any) -> tuple[str, str, float]:
    data = answer.get("data", answer) if isinstance(answer, dict) else None
    token = data.get("access_token") if isinstance(data, dict) else None
    if not isinstance(token, str) or not token or not token.isascii() or "\n" in token:
        raise BadAnswer("the response has no access_token")
    seconds = data.get("expires_in", 0)  # type: ignore[union-attr]  # a token was in it
    if isinstance(seconds, str) and seconds.isascii() and seconds.isdecimal() and len(seconds) < 20:
        seconds = int(seconds)
    refresh = data.get("refresh_token")  # type: ignore[union-attr]  # as above
    return (
        token,
        refresh if isinstance(refresh, str) else "",
        float(seconds) if isinstance(seconds, int | float) and seconds > 0 else _SPARE_SECONDS,
    )


def _succeeded(answer: Any) -> Any:
    """Return ``data`` of a response. Raises for an error response."""
    if not isinstance(answer, dict):
        raise BadAnswer("the response is not an object")
    error = answer.get("error")
    if isinstance(error, str) and error.lower() not in ("", "success"):
        text = answer.get("error_Description")
        raise BadAnswer(f"the API says {error[:60]}: {text[:100] if isinstance(text, str) else ''}")
    return answer.get("data")
