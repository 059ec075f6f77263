"""Downloaders of a fetcher: the interface, and direct downloads from this process."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import Any, Final, Protocol

import msgspec

from apps.requeststore.daemon.host_limits import HostThrottle, pause_of
from apps.requeststore.daemon.work import (
    LeasedRequest,
    RequestFailure,
    Result,
    download_of,
    host_of,
    result_of,
)
from apps.requeststore.engine.biz import Fetch
from apps.requeststore.engine.errors import BadSetting
from yardkit.fetcher import Fetcher
from yardkit.protocol import DownloaderSettings, DownloaderType
from yardkit.text_filters import TextFilter

logger = logging.getLogger(__name__)

Done = Callable[[LeasedRequest, Result], None]

_BUSY: Final = frozenset({HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE})


class TransportClosed(Exception):
    """The downloader is not available now; the text says why."""


class PageTransport(Protocol):
    """Downloader of one biz. Belongs to one event loop."""

    async def open(self) -> None:
        """Open it. Raises ``TransportClosed``: try again later."""

    def begin(self, work: LeasedRequest) -> None:
        """Start a download; its result is passed to ``done`` exactly once."""

    @property
    def problem(self) -> str:
        """Return why downloads get no answer; "" normally."""

    async def close(self) -> None:
        """Close it at once and drop active downloads."""


def downloader_settings(fetch: Fetch, networks: Sequence[str]) -> DownloaderSettings:
    """Return the downloader settings of a biz. Raises ``BadSetting``."""
    fields: dict[str, Any] = {
        **fetch.downloader,
        "timeout_seconds": fetch.timeout_seconds,
        "concurrency": fetch.concurrency,
        "allowed_networks": list(networks),
    }
    try:
        return msgspec.convert(fields, DownloaderSettings)
    except msgspec.ValidationError as error:
        raise BadSetting(f"fetch.downloader: {error}") from error


class DirectTransport:
    """Downloads in this process. Refuses private networks that the project may not reach."""

    problem = ""

    def __init__(
        self, fetch: Fetch, networks: Sequence[str], *, hosts: HostThrottle, done: Done
    ) -> None:
        """Raises ``BadSetting``."""
        settings = downloader_settings(fetch, networks)
        if settings.type is not DownloaderType.HTTP:
            raise BadSetting(
                f"fetch.downloader: type {settings.type.value} needs an agent; "
                "download through the center"
            )
        try:
            self._texts = TextFilter(settings)
            self._fetcher = Fetcher(settings)
        except ValueError as error:
            raise BadSetting(f"fetch.downloader: {error}") from error
        self._fetch = fetch
        self._networks = tuple(networks)
        self._hosts = hosts
        self._done = done
        self._tasks: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        """Do nothing: direct downloads need no connection."""

    def begin(self, work: LeasedRequest) -> None:
        task = asyncio.create_task(self._download(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._fetcher.close()

    async def _download(self, work: LeasedRequest) -> None:
        try:
            result = await self._result(work)
        except Exception as error:
            # Without an answer, it would occupy its slot until the process ends.
            logger.exception("a defect, met by request %d", work.request.id)
            result = RequestFailure(f"{type(error).__name__}: {error}")
        self._done(work, result)

    async def _result(self, work: LeasedRequest) -> Result:
        host = host_of(work.entity.url)
        if self._hosts.passes(host, self._networks):
            return await self._answer(work)
        reason = await self._hosts.enter(host, until=work.expires - self._fetch.timeout_seconds)
        if reason:
            return RequestFailure(reason, untried=True)
        try:
            return await self._answer(work, host)
        finally:
            self._hosts.leave(host)

    async def _answer(self, work: LeasedRequest, host: str = "") -> Result:
        left = work.expires - asyncio.get_running_loop().time()
        request = download_of(
            work.entity,
            headers=self._fetch.headers,
            timeout_seconds=max(0.1, min(self._fetch.timeout_seconds, left)),
        )
        response = await self._texts.apply(await self._fetcher.fetch(request))
        if host and response.status in _BUSY:
            self._hosts.spare(host, pause_of(response.headers))
        return result_of(
            url=response.url,
            status=response.status,
            headers=response.headers,
            body=response.body,
            failure=response.failure,
            error=response.error,
            elapsed_ms=response.elapsed_ms,
            truncated=response.truncated,
        )
