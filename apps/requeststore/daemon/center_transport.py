"""Downloads through the center: by its agents and under its politeness limits."""

from __future__ import annotations

import asyncio
import itertools
import logging
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from apps.requeststore.daemon.transports import Done, TransportClosed, downloader_settings
from apps.requeststore.daemon.work import (
    LeasedRequest,
    RequestFailure,
    download_of,
    host_of,
    result_of,
)
from apps.requeststore.engine.biz import Fetch
from yardkit.protocol import (
    Dispatched,
    DownloadResult,
    DownloadResults,
    DownloadsHeld,
    DownloadsRefused,
    Policy,
    RequestItem,
    Skipped,
    encode_request,
    header_texts,
)
from yardspider.environment import RunEnvironment
from yardspider.errors import RunFailed
from yardspider.settings import SpiderSettings
from yardspider.transports.base import Answer
from yardspider.transports.remote import RemoteTransport

logger = logging.getLogger(__name__)

# Margin beyond the download timeout for transport and queueing.
SLACK_SECONDS: Final = 10.0
# Delay before a skipped request is sent again.
SKIPPED_SECONDS: Final = 1.0
# After this long without a living agent, new agents are requested.
NOBODY_SECONDS: Final = 3.0
WATCH_SECONDS: Final = 0.5
ALLOCATE_SECONDS: Final = 15.0
# Attempts for a request without an answer.
MOST_SENT: Final = 3


@dataclass(slots=True)
class _Flight:
    work: LeasedRequest
    # Deadline of the answer, by the loop's clock.
    answer_by: float
    attempt: int = 1


class CenterTransport:
    """Allocation of agents for one biz of one fetcher; the center knows it as run ``-slot``."""

    def __init__(
        self,
        fetch: Fetch,
        networks: Sequence[str],
        *,
        slot: int,
        token: str,
        broker_url: str,
        done: Done,
    ) -> None:
        """Raises ``BadSetting``."""
        self._fetch = fetch
        # Networks are only validated here; the center applies its own copy.
        self._settings = downloader_settings(fetch, networks)
        self._slot = slot
        self._token = token
        self._broker_url = broker_url
        self._done = done
        self._flights: dict[int, _Flight] = {}
        self._numbers = itertools.count(1)
        self._transport: RemoteTransport | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._nobody_since: float | None = None
        self.problem = ""

    async def open(self) -> None:
        transport = self._new_transport()
        try:
            allocation = await transport.allocate()
        except RunFailed as error:
            await transport.close()
            raise TransportClosed(str(error)) from error
        except BaseException:
            await transport.close()
            raise
        if allocation.warning:
            logger.info("fetcher:%d: %s", self._slot, allocation.warning)
        self._transport = transport
        self._nobody_since = None
        self.problem = ""
        if not self._tasks:
            self._tasks = [asyncio.create_task(self._receive()), asyncio.create_task(self._watch())]

    def _new_transport(self) -> RemoteTransport:
        environment = RunEnvironment(
            run=-self._slot,
            token=self._token,
            incarnation=secrets.token_hex(8),
            broker_url=self._broker_url,
            policy=Policy(self._fetch.policy),
            agents=self._fetch.agents,
            downloader=self._settings,
            arguments={},
            settings={},
        )
        settings = SpiderSettings(allocate_seconds=ALLOCATE_SECONDS)
        return RemoteTransport(environment, settings, body_memory_bytes=None)

    def begin(self, work: LeasedRequest) -> None:
        number = next(self._numbers)
        self._flights[number] = _Flight(work, 0.0)
        self._send(number)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.withdraw()
            await transport.close()

    # --- requests -------------------------------------------------------------------------------

    def _send(self, number: int) -> None:
        """Send the request, first or repeated, unless it has ended meanwhile."""
        flight = self._flights.get(number)
        if flight is None:
            return
        now = asyncio.get_running_loop().time()
        flight.answer_by = min(
            flight.work.expires, now + self._fetch.timeout_seconds + SLACK_SECONDS
        )
        if self._transport is None:
            # Sent once agents are available again.
            return
        request = download_of(
            flight.work.entity,
            headers=self._fetch.headers,
            timeout_seconds=self._fetch.timeout_seconds,
        )
        host = host_of(flight.work.entity.url)
        item = RequestItem(number, flight.attempt, host, "", encode_request(request))
        self._transport.send([item])

    def _end(self, number: int, trouble: RequestFailure) -> None:
        flight = self._flights.pop(number, None)
        if flight is not None:
            self._done(flight.work, trouble)

    # --- answers --------------------------------------------------------------------------------

    async def _receive(self) -> None:
        """Receive answers while there are agents, and ask for new agents when there are none."""
        while True:
            transport = self._transport
            if transport is None:
                await self._reopen()
                continue
            try:
                answers = await transport.receive()
            except RunFailed as error:
                self._lost(str(error))
                await transport.close()
                continue
            for answer in answers:
                try:
                    self._take(answer)
                except Exception:
                    # A malformed answer is skipped; its requests are repeated after their timeout.
                    logger.exception("fetcher:%d: a defect, met by an answer", self._slot)

    async def _reopen(self) -> None:
        try:
            await self.open()
        except TransportClosed as error:
            self.problem = str(error)
            await asyncio.sleep(SKIPPED_SECONDS)
        else:
            for number in list(self._flights):
                self._send_again(number)

    def _lost(self, reason: str) -> None:
        logger.warning("fetcher:%d: other agents are asked for: %s", self._slot, reason)
        self.problem = reason
        self._transport = None

    def _take(self, answer: Answer) -> None:
        now = asyncio.get_running_loop().time()
        if isinstance(answer, DownloadResults):
            self._nobody_since = None
            self.problem = ""
            for result in answer.items:
                self._arrived(result)
        elif isinstance(answer, DownloadsRefused):
            for number, _attempt in answer.items:
                self._end(number, RequestFailure(f"refused: {answer.reason}", lasting=True))
        elif isinstance(answer, DownloadsHeld):
            self._wait_for(answer.items, now + answer.wait_seconds + SLACK_SECONDS)
        elif isinstance(answer, Dispatched):
            self._wait_for(answer.items, now + self._fetch.timeout_seconds + SLACK_SECONDS)
        elif isinstance(answer, Skipped):
            self._skipped(answer, now)

    def _arrived(self, result: DownloadResult) -> None:
        flight = self._flights.get(result.id)
        if flight is None:
            return
        extraction = result_of(
            url=result.url,
            status=result.status,
            headers=header_texts(result.headers),
            body=result.body,
            failure=result.failure,
            error=result.error,
            elapsed_ms=result.elapsed_ms,
            truncated=result.truncated,
        )
        del self._flights[result.id]
        self._done(flight.work, extraction)

    def _wait_for(self, items: Sequence[tuple[int, int]], until: float) -> None:
        for number, attempt in items:
            flight = self._flights.get(number)
            if flight is not None and flight.attempt == attempt:
                flight.answer_by = min(until, flight.work.expires)

    def _skipped(self, answer: Skipped, now: float) -> None:
        self._nobody_since = self._nobody_since or now
        self.problem = answer.reason
        loop = asyncio.get_running_loop()
        for number, attempt in answer.items:
            flight = self._flights.get(number)
            if flight is not None and flight.attempt == attempt:
                loop.call_later(SKIPPED_SECONDS, self._send_again, number, attempt)

    def _send_again(self, number: int, attempt: int | None = None) -> None:
        flight = self._flights.get(number)
        if flight is not None and attempt in (None, flight.attempt):
            flight.attempt += 1
            self._send(number)

    async def _watch(self) -> None:
        """Give up requests without an answer, and ask for other agents when all are dead."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            now = loop.time()
            for number, flight in list(self._flights.items()):
                try:
                    self._look_at(number, flight, now)
                except Exception:
                    logger.exception("fetcher:%d: a defect, met by a request", self._slot)
            since = self._nobody_since
            if since is not None and now - since > NOBODY_SECONDS and self._flights:
                await self._change_agents()

    def _look_at(self, number: int, flight: _Flight, now: float) -> None:
        if now >= flight.work.expires:
            text = self.problem or "no agent had answered by the deadline"
            self._end(number, RequestFailure(text, untried=bool(self.problem)))
        elif now >= flight.answer_by and self._transport is not None:
            if flight.attempt >= MOST_SENT:
                self._end(number, RequestFailure("no agent has answered"))
            else:
                self._send_again(number)

    async def _change_agents(self) -> None:
        self._nobody_since = None
        transport = self._transport
        if transport is None:
            return
        self._tasks[0].cancel()
        await asyncio.gather(self._tasks[0], return_exceptions=True)
        self._lost(self.problem)
        # Released first, so that the center frees the old agents before it allocates new ones.
        await transport.close()
        self._tasks[0] = asyncio.create_task(self._receive())
