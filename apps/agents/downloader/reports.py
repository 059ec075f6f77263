"""Reports of an agent to the centers about the hosts of its requests."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Final

from yardkit.broker import BrokerClosed, Outgoing
from yardkit.clock import Clock
from yardkit.fetched import Fetched
from yardkit.protocol import DownloadsFinished, HostResult, encode
from yardkit.topology import DOWNLOAD_EXPIRES_SECONDS

logger = logging.getLogger(__name__)

REPORT_SECONDS: Final = 0.1
MAX_HOSTS: Final = 500
MAX_RETRY_AFTER_SECONDS: Final = 3600.0
BUSY: Final = frozenset({429, 503})
_LONGEST_NUMBER: Final = 10

Deliver = Callable[[Sequence[Outgoing], str, int], Awaitable[bool]]


@dataclass(slots=True)
class _Tally:
    finished: int = 0
    busy: int = 0
    retry_after_seconds: float = 0.0


class HostReports:
    """Collects the ends of requests by center, run and host; sends them ten times a second.

    Every request of a command with a report queue is counted once when it ends: answered, failed,
    expired, discarded, or without a downloader. A process that stops before that is the exception:
    its commands come again, and then all of their requests count.

    Args:
        deliver: publishes messages; gets their description and the number of answers in them.
    """

    def __init__(self, deliver: Deliver, agent: str, clock: Clock) -> None:
        self._deliver = deliver
        self._agent = agent
        self._clock = clock
        self._pending: dict[tuple[str, int], dict[str, _Tally]] = {}
        self._sending: asyncio.Task[None] | None = None
        self._hurry = asyncio.Event()

    def add(self, report_to: str, run: int, host: str, fetched: Fetched | None) -> None:
        """Count the end of a request to ``host``; ``fetched`` is None when it was never sent."""
        hosts = self._pending.setdefault((report_to, run), {})
        tally = hosts.get(host)
        if tally is None:
            tally = hosts[host] = _Tally()
        tally.finished += 1
        if fetched is not None and (fetched.busy_status or fetched.status) in BUSY:
            tally.busy += 1
            wait = retry_after_seconds(_retry_after(fetched), self._clock.time())
            tally.retry_after_seconds = max(tally.retry_after_seconds, wait)
        if self._sending is None or self._sending.done():
            self._sending = asyncio.ensure_future(self._send_all())

    async def drain(self, seconds: float) -> None:
        """Send everything now, and wait up to ``seconds``."""
        self._hurry.set()
        if self._sending is not None:
            await asyncio.wait([self._sending], timeout=seconds)
            self._sending.cancel()

    async def _send_all(self) -> None:
        with contextlib.suppress(BrokerClosed):
            while self._pending:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(REPORT_SECONDS):
                        await self._hurry.wait()
                pending, self._pending = self._pending, {}
                await self._send(pending)

    async def _send(self, pending: dict[tuple[str, int], dict[str, _Tally]]) -> None:
        try:
            messages = [
                message
                for (report_to, run), hosts in pending.items()
                for message in self._messages(report_to, run, hosts)
            ]
            # 0 requests: a report contains no answers.
            await self._deliver(messages, "reports on hosts", 0)
        except BrokerClosed:
            raise
        except Exception:  # the last guard: these reports must not end the later ones
            logger.exception("host reports failed unexpectedly")

    def _messages(self, report_to: str, run: int, hosts: dict[str, _Tally]) -> Iterator[Outgoing]:
        results = [
            HostResult(host, tally.finished, tally.busy, tally.retry_after_seconds)
            for host, tally in hosts.items()
        ]
        for start in range(0, len(results), MAX_HOSTS):
            message = DownloadsFinished(
                run=run, agent=self._agent, hosts=results[start : start + MAX_HOSTS]
            )
            yield Outgoing(
                body=encode(message),
                key=report_to,
                ttl_seconds=DOWNLOAD_EXPIRES_SECONDS,
                persistent=False,
                # A center that is gone has no use for it.
                mandatory=False,
            )


def _retry_after(fetched: Fetched) -> str:
    return fetched.retry_after or fetched.header(b"retry-after")


def retry_after_seconds(value: str, now: float) -> float:
    """Return the seconds of a ``Retry-After``: 0 for nonsense, an hour at most.

    ``value``: a number of seconds or an HTTP date; ``now``: in Unix seconds.
    """
    value = value.strip()
    if value.isdecimal():
        wait = float(value) if len(value) <= _LONGEST_NUMBER else MAX_RETRY_AFTER_SECONDS
    else:
        try:
            wait = parsedate_to_datetime(value).timestamp() - now
        except (ValueError, TypeError, OverflowError, IndexError):
            return 0.0
    return min(max(wait, 0.0), MAX_RETRY_AFTER_SECONDS)
