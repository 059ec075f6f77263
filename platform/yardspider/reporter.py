"""Publishes the counters of a run, without holding up the crawl; the last ones reliably."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from itertools import islice

from yardkit.protocol import RunCounters
from yardspider.accounting import COUNTED, NOTES_PER_MESSAGE, CrawlAccounting, Depths
from yardspider.errors import ReportLost
from yardspider.transports.base import RunTransport

log = logging.getLogger("yardspider")

_RETRY_SECONDS = 0.2


class Reporter:
    """Publishes ``CrawlAccounting`` over a transport.

    Counters are absolute, so a lost or repeated message does no harm. Failure notes are numbered
    and stay in the accounting until the message that carried them is confirmed.

    Args:
        depths: returns the current queue depths.
        before: called before each message: sends the rows of the requests that it counts.
    """

    def __init__(
        self,
        transport: RunTransport,
        accounting: CrawlAccounting,
        depths: Callable[[], Depths],
        before: Callable[[], None],
    ) -> None:
        self._before = before
        self._transport = transport
        self._accounting = accounting
        self._depths = depths
        self._seq = 0
        self._confirmed: RunCounters | None = None
        self._task: asyncio.Task[None] | None = None

    def publish(self) -> None:
        """Publish changes in the background, unless a publish is under way."""
        if (self._task is None or self._task.done()) and self._changed():
            self._task = asyncio.create_task(self._publish_all())

    async def finish(self, *, limit_seconds: float) -> RunCounters:
        """Publish the last counters until they are confirmed; return them.

        Gives up after ``limit_seconds`` with one warning; the counters are returned all the same.
        """
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        try:
            async with asyncio.timeout(limit_seconds):
                while True:
                    with contextlib.suppress(ReportLost):
                        return await self._send_last()
                    await asyncio.sleep(_RETRY_SECONDS)
        except TimeoutError:
            log.warning("the last counters were not confirmed within %.0f s", limit_seconds)
        return self._message(final=True)

    async def _send_last(self) -> RunCounters:
        while len(self._accounting.notes) > NOTES_PER_MESSAGE:
            await self._send(self._message(final=False))
        message = self._message(final=True)
        await self._send(message)
        return message

    async def _publish_all(self) -> None:
        # Lost counters are replaced at the next interval.
        with contextlib.suppress(ReportLost):
            await self._send(self._message(final=False))
            while self._accounting.notes:
                await self._send(self._message(final=False))

    async def _send(self, message: RunCounters) -> None:
        await self._transport.report(message)
        for _ in message.failures:
            self._accounting.notes.popleft()
        self._confirmed = message

    def _message(self, *, final: bool) -> RunCounters:
        self._seq += 1
        self._before()
        return self._accounting.snapshot(
            run=self._transport.run,
            incarnation=self._transport.incarnation,
            seq=self._seq,
            depths=self._depths(),
            failures=list(islice(self._accounting.notes, NOTES_PER_MESSAGE)),
            final=final,
        )

    def _changed(self) -> bool:
        if self._confirmed is None or self._accounting.notes:
            return True
        last = self._confirmed
        return {name: getattr(last, name) for name in COUNTED} != self._accounting.counts() or any(
            getattr(last, name) != depth for name, depth in self._depths()._asdict().items()
        )
