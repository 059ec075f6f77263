"""The platform as a transport: requests to the center, answers from the agents, over the broker."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from yardkit import topology
from yardkit.bridge import in_daemon_thread
from yardkit.broker import (
    BadBrokerURL,
    Broker,
    BrokerError,
    Delivery,
    Outgoing,
    Subscription,
    aio,
    connect,
)
from yardkit.protocol import (
    Addresses,
    AddressesWanted,
    Allocate,
    Allocated,
    AnyMessage,
    Dispatched,
    DownloadBatch,
    DownloaderReady,
    DownloadResult,
    DownloadResults,
    DownloadsHeld,
    DownloadsRefused,
    FailureKind,
    Lifecycle,
    LifecycleAnswer,
    ObjectKind,
    Policy,
    ProtocolError,
    Release,
    RequestItem,
    RunCounters,
    Skipped,
    Withdraw,
    batches,
    decode,
    encode,
)
from yardspider.environment import RunEnvironment
from yardspider.errors import ReportLost, RunFailed, TransportLost
from yardspider.settings import SpiderSettings
from yardspider.transports.allocation import AllocationWait
from yardspider.transports.base import AgentAllocation, Answer
from yardspider.transports.bodies import MEMORY_BYTES, BodyFetcher
from yardspider.transports.commands import RunCommandQueue
from yardspider.transports.publisher import RepeatingPublisher, check_connected

log = logging.getLogger("yardspider")

# Bodies in the object store, also several in one object, and every kind of failure.
RESULT_VERSION = 4
BATCH_ITEMS = 50
_PREFETCH = 100
# Limit of a slow handshake, whatever the retries are.
_CONNECT_SECONDS = 5.0
_CONFIRM_SECONDS = 3.0
_RETRY_SECONDS = 1.0
_CLOSE_SECONDS = 0.3
_ADDRESSES_TTL_SECONDS = 10.0


class RemoteTransport:
    """The transport of one run on the platform. ``close`` releases its agents.

    Args:
        folder: of the files of large bodies; None: the system's for temporary files.
        body_memory_bytes: see ``BodyFetcher``.
    """

    def __init__(
        self,
        run: RunEnvironment,
        settings: SpiderSettings,
        *,
        folder: Path | None = None,
        body_memory_bytes: int | None = MEMORY_BYTES,
    ) -> None:
        self.run = run.run
        self.incarnation = run.incarnation
        self.chained = run.policy is Policy.CHAINED
        self._run = run
        self._settings = settings
        self._answers = topology.run_answers(run.run, run.incarnation)
        self._loop = asyncio.get_running_loop()
        self._arrived = asyncio.Event()
        self._broker: Broker | None = None
        self._subscription: Subscription | None = None
        self._allocate_sent = False
        self._publisher = RepeatingPublisher(
            self._connected, retries=settings.publish_retries, on_lost=self._publishing_lost
        )
        self._watching: asyncio.Task[None] | None = None
        self._lost: TransportLost | None = None
        self._commands: RunCommandQueue | None = None
        self._bodies = BodyFetcher(
            run=self.run,
            ask=self._ask_for_addresses,
            on_ready=self._arrived.set,
            memory_bytes=body_memory_bytes,
            folder=folder,
        )
        # Report queues of the centers that have held requests of this run.
        self._centers: set[str] = set()

    @property
    def away(self) -> bool:
        return self._broker is not None and not self._broker.connected

    # --- agents -------------------------------------------------------------------------------

    async def allocate(self) -> AgentAllocation:
        await in_daemon_thread(self._open)
        self._watching = asyncio.create_task(self._watch())
        seconds = self._settings.allocate_seconds
        wait = AllocationWait(asked=self._run.agents, seconds=seconds)
        await self._publish_until_confirmed(self._allocate_message())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not wait.is_complete:
                    for message in await self._messages():
                        if isinstance(message, (Allocated, DownloaderReady)):
                            wait.take(message)
        return wait.result()

    def _open(self) -> None:
        seconds = max(_CONNECT_SECONDS, self._settings.publish_retries * _RETRY_SECONDS)
        try:
            broker = connect(self._run.broker_url, name=f"run-{self.run}", timeout=seconds)
        except BadBrokerURL as error:
            raise RunFailed(f"BROKER_URL: {error}") from error
        except BrokerError as error:
            raise TransportLost(f"BROKER_URL: {error}") from error
        self._broker = broker
        self._subscribe(broker)

    def _subscribe(self, broker: Broker) -> None:
        """Subscribe, with a retry every second. Raises ``TransportLost``."""
        for attempt in range(self._settings.publish_retries + 1):
            if attempt:
                time.sleep(_RETRY_SECONDS)
            try:
                check_connected(broker)
                broker.declare(*topology.SHARED, self._answers)
                self._subscription = broker.subscribe(
                    self._answers.name, prefetch=_PREFETCH, on_ready=self._on_ready
                )
                if self._commands is not None:
                    self._commands.open(broker)
            except BrokerError as error:
                failure = error
            else:
                return
        times = f"tried {self._settings.publish_retries + 1} times"
        raise TransportLost(f"cannot subscribe to {self._answers.name}, {times}: {failure}")

    def _allocate_message(self) -> Outgoing:
        self._allocate_sent = True
        message = Allocate(
            run=self.run,
            token=self._run.token,
            reply_to=self._answers.name,
            policy=self._run.policy,
            agents=self._run.agents,
            settings=msgspec.structs.replace(self._run.downloader, result_version=RESULT_VERSION),
            sent_at=time.time(),
        )
        # Without a time to live: the center counts questions that are too old.
        return Outgoing(
            encode(message), key=topology.CENTER_CONTROL.name, reply_to=self._answers.name
        )

    async def _publish_until_confirmed(self, message: Outgoing) -> None:
        """Publish, with a retry every second. Raises ``TransportLost``."""
        for attempt in range(self._settings.publish_retries + 1):
            if attempt:
                await asyncio.sleep(_RETRY_SECONDS)
            try:
                # A confirm that arrives later only repeats the question.
                async with asyncio.timeout(_CONFIRM_SECONDS):
                    await self._publish([message])
            except TimeoutError:
                failure: Exception = TimeoutError(f"no word within {_CONFIRM_SECONDS:g} s")
            except BrokerError as error:
                failure = error
            else:
                return
            if self._lost is not None:
                raise self._lost
        raise self._given_up(failure)

    async def _watch(self) -> None:
        """Give up when the connection has stayed lost for too long.

        The broker's own thread reconnects and keeps what it could not publish meanwhile.
        """
        tried = 0
        while tried <= self._settings.publish_retries:
            await asyncio.sleep(_RETRY_SECONDS)
            tried = tried + 1 if self.away else 0
        self._lost = TransportLost(
            f"the broker is gone: {self._connected().url} did not answer, tried {tried} times"
        )
        self._arrived.set()

    def _publishing_lost(self, error: BaseException) -> None:
        self._lost = self._given_up(error)
        self._arrived.set()

    def _given_up(self, error: BaseException) -> TransportLost:
        times = self._settings.publish_retries + 1
        return TransportLost(f"the broker took no message, tried {times} times: {error}")

    async def _publish(self, messages: Sequence[Outgoing]) -> None:
        await aio.publish(self._connected(), messages)

    def _connected(self) -> Broker:
        if self._broker is None:
            raise TransportLost("there is no connection to the broker")
        return self._broker

    # --- requests -----------------------------------------------------------------------------

    def send(self, items: Sequence[RequestItem]) -> None:
        now = time.time()
        messages = [
            Outgoing(
                encode(
                    DownloadBatch(
                        run=self.run,
                        token=self._run.token,
                        reply_to=self._answers.name,
                        items=batch,
                        sent_at=now,
                    )
                ),
                key=topology.CENTER_REQUESTS.name,
                ttl_seconds=topology.DOWNLOAD_EXPIRES_SECONDS,
                persistent=False,
            )
            for batch in batches(items, BATCH_ITEMS)
        ]

        self._publisher.publish(messages, expires_seconds=self._settings.request_timeout_seconds)

    def publish(
        self, messages: Sequence[Outgoing], on_confirmed: Callable[[], None] | None = None
    ) -> None:
        self._publisher.publish(messages, on_confirmed=on_confirmed)

    # --- answers ------------------------------------------------------------------------------

    def _on_ready(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._arrived.set)

    async def receive(self) -> Sequence[Answer]:
        while True:
            answers = [self._answer(message) for message in await self._messages()]
            useful = [answer for answer in answers if answer is not None]
            if useful:
                return useful

    async def _messages(self) -> list[AnyMessage]:
        """Return the next messages for this run, acknowledged; takes at least one delivery."""
        subscription = self._subscription
        if subscription is None:
            raise TransportLost("there is no connection to the broker")
        while True:
            if self._lost is not None:
                raise self._lost
            self._arrived.clear()
            if ready := self._bodies.take_ready():
                return list(ready)
            try:
                deliveries = subscription.take(_PREFETCH)
            except BrokerError as error:
                raise TransportLost(f"the queue of answers is gone: {error}") from error
            if deliveries:
                return self._decoded(subscription, deliveries)
            await self._arrived.wait()

    def _decoded(
        self, subscription: Subscription, deliveries: Sequence[Delivery]
    ) -> list[AnyMessage]:
        messages, good = [], []
        for delivery in deliveries:
            try:
                messages.append(decode(delivery.body))
            except ProtocolError as error:
                log.warning("unreadable message dead-lettered: %s", error)
                subscription.dead_letter(delivery, str(error))
            else:
                good.append(delivery)
        # The queue dies with this process, so nothing is gained by acknowledging later.
        subscription.ack(good)
        return messages

    def _answer(self, message: AnyMessage) -> Answer | None:
        if isinstance(message, DownloadResults):
            if any(result.compressed for result in message.items):
                items = [self._inflated(result) for result in message.items]
                return msgspec.structs.replace(message, items=items)
            if any(result.stored is not None for result in message.items):
                return self._bodies.take(message)
            return message
        if isinstance(message, Addresses):
            self._bodies.take_addresses(message)
            return None
        if isinstance(message, DownloadsHeld) and message.center:
            self._centers.add(message.center)
        return (
            message
            if isinstance(message, Skipped | DownloadsRefused | DownloadsHeld | Dispatched)
            else None
        )

    def _ask_for_addresses(self, keys: list[str]) -> None:
        question = AddressesWanted(
            run=self.run,
            kind=ObjectKind.BODIES,
            keys=keys,
            reply_to=self._answers.name,
            token=self._run.token,
        )
        with contextlib.suppress(BrokerError):
            self._connected().publish(
                [
                    Outgoing(
                        encode(question),
                        key=topology.CENTER_ADDRESSES.name,
                        ttl_seconds=_ADDRESSES_TTL_SECONDS,
                        persistent=False,
                        mandatory=False,
                    )
                ]
            )

    def _inflated(self, result: DownloadResult) -> DownloadResult:
        if not result.compressed:
            return result
        limit = self._run.downloader.max_body_bytes
        inflater = zlib.decompressobj()
        problem = "a compressed body that stops in the middle"
        try:
            body = inflater.decompress(result.body, limit + 1)
        except zlib.error as error:
            body, problem = b"", str(error)
        cut = len(body) > limit
        if not (cut or inflater.eof):
            return msgspec.structs.replace(
                result, status=0, body=b"", failure=FailureKind.BAD_CONTENT, error=problem
            )
        return msgspec.structs.replace(
            result, body=body[:limit], compressed=False, truncated=result.truncated or cut
        )

    # --- lifecycle ----------------------------------------------------------------------------

    def listen(self, on_command: Callable[[Lifecycle], None]) -> None:
        if self._run.topic:
            self._commands = RunCommandQueue(
                run=self.run,
                incarnation=self.incarnation,
                topic=self._run.topic,
                on_command=on_command,
            )

    def answer_command(self, answer: LifecycleAnswer) -> None:
        if self._commands is not None:
            self._commands.answer(answer)

    def withdraw(self) -> None:
        """Ask for held requests. Not repeated when lost: the next ``DownloadsHeld`` repeats it."""
        body = encode(Withdraw(run=self.run, token=self._run.token))
        messages = [
            Outgoing(
                body,
                key=center,
                ttl_seconds=topology.DOWNLOAD_EXPIRES_SECONDS,
                persistent=False,
                mandatory=False,
            )
            for center in self._centers
        ]
        if messages and not self.away:
            with contextlib.suppress(BrokerError):
                self._connected().publish(messages)

    # --- the end ------------------------------------------------------------------------------

    async def report(self, counters: RunCounters) -> None:
        if self._broker is None:
            return  # never connected
        try:
            await self._publish([Outgoing(encode(counters), key=topology.STATISTICS.name)])
        except BrokerError as error:
            raise ReportLost(str(error)) from error

    async def close(self) -> None:
        self._publisher.close()
        if self._watching is not None:
            self._watching.cancel()
        await self._bodies.close(_CLOSE_SECONDS)
        broker = self._broker
        if broker is None:
            return
        if self._commands is not None:
            await self._commands.close(_CLOSE_SECONDS)
        if self._allocate_sent:
            release = Release(run=self.run, token=self._run.token)
            with contextlib.suppress(BrokerError, TimeoutError):
                async with asyncio.timeout(_CLOSE_SECONDS):
                    await self._publish(
                        [Outgoing(encode(release), key=topology.CENTER_CONTROL.name)]
                    )
        await in_daemon_thread(broker.close, _CLOSE_SECONDS)
