"""Downloads in the spider's own process, without center, agents and broker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from yardkit.fetched import result_of
from yardkit.fetcher import Fetcher
from yardkit.protocol import (
    DownloaderSettings,
    DownloadResult,
    DownloadResults,
    Lifecycle,
    LifecycleAnswer,
    RequestItem,
    RunCounters,
    decode_request,
)
from yardkit.recordings.replay import LiveFetcher
from yardkit.text_filters import TextFilter
from yardspider.errors import RunFailed
from yardspider.transports.base import AgentAllocation, Answer

AGENT = "local"
# The agents' guard keeps projects out of an operator's networks. Here the author's own process
# fetches, with the author's rights.
ANYWHERE = ["0.0.0.0/0", "::/0"]


class LocalTransport:
    """Fetches with the agents' fetcher, one task a request; the engine keeps the window.

    ``make_fetcher``: called inside the event loop; another one replays a recording.
    """

    run = 0
    incarnation = "local"
    chained = False
    away = False

    def __init__(
        self,
        settings: DownloaderSettings,
        make_fetcher: Callable[[DownloaderSettings], LiveFetcher] = Fetcher,
    ) -> None:
        self._settings = settings
        self._make_fetcher = make_fetcher
        self._fetcher: LiveFetcher | None = None
        self._texts: TextFilter | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._results: list[DownloadResult] = []
        self._arrived = asyncio.Event()

    async def allocate(self) -> AgentAllocation:
        try:
            self._texts = TextFilter(self._settings)
            self._fetcher = self._make_fetcher(self._settings)
        except ValueError as error:
            raise RunFailed(f"bad downloader settings: {error}") from error
        return AgentAllocation([AGENT])

    def send(self, items: Sequence[RequestItem]) -> None:
        for item in items:
            task = asyncio.create_task(self._fetch(item))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _fetch(self, item: RequestItem) -> None:
        if self._fetcher is None or self._texts is None:
            raise RuntimeError("send before allocate")
        fetched = await self._texts.apply(await self._fetcher.fetch(decode_request(item.request)))
        self._results.append(result_of(item.id, item.attempt, fetched, fetched.body))
        self._arrived.set()

    async def receive(self) -> Sequence[Answer]:
        await self._arrived.wait()
        self._arrived.clear()
        results, self._results = self._results, []
        return [DownloadResults(run=self.run, agent=AGENT, items=results)] if results else []

    def listen(self, on_command: Callable[[Lifecycle], None]) -> None:
        """No commands: the author stops it by a signal."""

    def answer_command(self, answer: LifecycleAnswer) -> None:
        pass

    def withdraw(self) -> None:
        """No request is held."""

    async def report(self, counters: RunCounters) -> None:
        """The counters are shown at the end only."""

    async def close(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._fetcher is not None:
            await self._fetcher.close()
