"""An agent's command queue: settled one by one, acknowledged together."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Final

import msgspec

from apps.agents.downloader.reports import HostReports
from apps.agents.downloader.vitals import AgentCounters
from yardkit import failpoints
from yardkit.bridge import in_daemon_thread
from yardkit.broker import Broker, BrokerError, Delivery
from yardkit.broker.aio import AsyncSubscription
from yardkit.broker.outgoing import check_name
from yardkit.fetched import Fetched
from yardkit.protocol import (
    MAX_MESSAGE_BYTES,
    AllocateDownloader,
    AnyMessage,
    DownloadCommand,
    ProtocolError,
    decode,
)
from yardkit.seals import SealKey
from yardkit.secretbox import SecretError

logger = logging.getLogger(__name__)

TAKE: Final = 100
ACK_AGAIN_SECONDS: Final = 0.5


class DownloadWork:
    """One download command: acknowledged once every request in it is answered or given up."""

    __slots__ = ("_command", "_left", "_on_done", "_reports", "delivery", "void_at")

    def __init__(
        self,
        *,
        delivery: Delivery,
        command: DownloadCommand,
        void_at: float,
        reports: HostReports,
        on_done: Callable[[Delivery], None],
    ) -> None:
        self.delivery = delivery
        self.void_at = void_at
        self._command = command
        self._left = len(command.items)
        self._reports = reports
        self._on_done = on_done

    @property
    def run(self) -> int:
        """The run of the requests."""
        return self._command.run

    @property
    def reply_to(self) -> str:
        """Queue of the answers."""
        return self._command.reply_to

    def settle(self, requests: int = 1) -> None:
        """Settle a number of its requests."""
        self._left -= requests
        if self._left == 0:
            self._on_done(self.delivery)

    def report(self, host: str, fetched: Fetched | None = None) -> None:
        """Report the end of a request to the center; its answer may still be unsent."""
        if self._command.report_to:
            self._reports.add(self._command.report_to, self._command.run, host, fetched)


class AgentCommandQueue:
    """Consumer of the agent's queue; ``done`` or ``refuse`` settles each command."""

    def __init__(self, broker: Broker, queue: str, counters: AgentCounters) -> None:
        self._broker = broker
        self._queue = queue
        self._counters = counters
        self._subscription: AsyncSubscription | None = None
        self._done: list[Delivery] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._prefetch = TAKE
        self.held = 0

    async def open(self, prefetch: int) -> None:
        """Start consuming. Raises ``BrokerError``."""
        self._prefetch = prefetch
        self._subscription = await AsyncSubscription.open(
            self._broker, self._queue, prefetch=prefetch
        )

    async def take(self) -> Sequence[Delivery]:
        """Wait for the next ones. Raises ``BrokerError``."""
        deliveries = await self._opened().take(TAKE)
        self.held += len(deliveries)
        return deliveries

    def done(self, delivery: Delivery) -> None:
        """Acknowledge, together with others settled in the same turn of the loop."""
        self._done.append(delivery)
        if len(self._done) == 1:
            asyncio.get_running_loop().call_soon(self._acknowledge)

    def refuse(self, delivery: Delivery, reason: str) -> None:
        """Dead-letter a command."""
        logger.warning("refused a message: %s", reason)
        self._counters.refused += 1
        self._start(self._dead_letter(delivery, reason))

    def background(self, delivery: Delivery, action: Awaitable[None]) -> None:
        """Run the action of a command; it is settled at any outcome."""

        async def guarded() -> None:
            try:
                await action
            except BrokerError as error:
                # The broker is closed or lost, and with it the delivery: it comes again.
                logger.warning("command failed, it will be redelivered: %s", error)
                self.held -= 1
            except Exception as error:  # the last guard: one command must not end the agent
                logger.exception("command failed unexpectedly")
                self.refuse(delivery, f"{type(error).__name__}: {error}")

        self._start(guarded())

    async def last(self) -> Sequence[Delivery]:
        """Stop consuming; return what has been received."""
        if self._subscription is None:
            return ()
        with contextlib.suppress(BrokerError):
            await self._subscription.cancel()
            deliveries = await self._subscription.take(self._prefetch, timeout=0.0)
            self.held += len(deliveries)
            return deliveries
        return ()

    async def close(self) -> None:
        """Acknowledge what is done; the rest returns to the queue."""
        self._acknowledge()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._subscription is not None:
            with contextlib.suppress(BrokerError):
                await self._subscription.close()

    async def _dead_letter(self, delivery: Delivery, reason: str) -> None:
        self.held -= 1
        try:
            await in_daemon_thread(self._opened().dead_letter, delivery, reason)
        except BrokerError as error:
            logger.warning("message could not be dead-lettered, it will be redelivered: %s", error)

    def _opened(self) -> AsyncSubscription:
        assert self._subscription is not None  # noqa: S101 - open() comes first
        return self._subscription

    def _start(self, action: Coroutine[None, None, None]) -> None:
        task = asyncio.ensure_future(action)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _acknowledge(self) -> None:
        done, self._done = self._done, []
        if not done or self._subscription is None:
            return
        try:
            failpoints.hit("agent.before_ack")
            self._subscription.ack(done)
        except BrokerError as error:
            logger.info("%d commands not acknowledged: %s", len(done), error)
        except Exception:  # the last guard: without an acknowledgement their places are lost
            logger.exception("%d commands not acknowledged, again in a moment", len(done))
            self._done[:0] = done
            asyncio.get_running_loop().call_later(ACK_AGAIN_SECONDS, self._acknowledge)
            return
        self.held -= len(done)


def read_command(body: bytes) -> AnyMessage:
    """Decode and validate a command. Raises ``ProtocolError``."""
    if len(body) > MAX_MESSAGE_BYTES:
        raise ProtocolError(f"{len(body)} bytes; a command has up to {MAX_MESSAGE_BYTES}")
    message = decode(body)
    if isinstance(message, DownloadCommand):
        _check_queue("reply_to", message.reply_to)
        if message.report_to:
            _check_queue("report_to", message.report_to)
        _check_time("dispatched_at", message.dispatched_at)
    elif isinstance(message, AllocateDownloader):
        _check_queue("reply_to", message.reply_to)
        _check_time("allocated_at", message.allocated_at)
    return message


def opened(message: AllocateDownloader, key: SealKey) -> AllocateDownloader:
    """Return the allocation with its cookies decrypted. Raises ``SecretError``."""
    if not message.sealed_cookies:
        return message
    text = key.open(message.sealed_cookies, purpose=f"run {message.run}")
    try:
        cookies = msgspec.json.decode(text, type=dict[str, str])
    except msgspec.DecodeError as error:
        raise SecretError("what was sealed are no cookies") from error
    settings = msgspec.structs.replace(message.settings, cookies=cookies)
    return msgspec.structs.replace(message, settings=settings, sealed_cookies=b"")


def _check_queue(field: str, name: str) -> None:
    try:
        check_name("a queue", name)
    except ValueError as error:
        raise ProtocolError(f"{field} names no queue: {name[:40]!r}") from error


def _check_time(field: str, seconds: float) -> None:
    # Compared with NaN or infinity, no deadline would ever pass.
    if not math.isfinite(seconds):
        raise ProtocolError(f"{field} is {seconds}")
