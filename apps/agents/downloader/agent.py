"""The agent: registers, says that it is alive, and does what its queue tells it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Final

from apps.agents.downloader.commands import Work
from apps.agents.downloader.downloader import Downloader, failed
from apps.agents.downloader.fetchers import Equipment
from apps.agents.downloader.options import AgentOptions, Identity
from apps.agents.downloader.results import ResultSender
from apps.agents.downloader.slots import Slots
from apps.agents.downloader.vitals import Counters, Vitals
from yardkit import failpoints, topology
from yardkit.bridge import in_daemon_thread
from yardkit.broker import (
    Broker,
    BrokerClosed,
    BrokerError,
    Delivery,
    Outgoing,
)
from yardkit.broker.aio import AsyncSubscription, publish
from yardkit.clock import Clock, SystemClock
from yardkit.daemon import back_off
from yardkit.protocol import (
    AllocateDownloader,
    DownloadCommand,
    DownloaderReady,
    DownloaderSettings,
    ExitAgent,
    FailureKind,
    ProtocolError,
    ReleaseDownloader,
    decode,
    encode,
)

logger = logging.getLogger(__name__)

SWEEP_SECONDS: Final = 1.0
TAKE: Final = 100
# How long an agent that was asked to exit goes on with what it holds.
EXIT_SECONDS: Final = 30.0
DRAIN_SECONDS: Final = 1.0
ACK_AGAIN_SECONDS: Final = 0.5
# A heartbeat that is not confirmed by then has failed; the next one is due.
CONFIRM_SECONDS = 5.0
_LONGEST_NAME_BYTES: Final = 255
_MISSING: Final = "this agent has no downloader for the run"


class Agent:
    """One agent on one broker. ``run`` ends after ``stop`` is set or an ``ExitAgent`` came."""

    def __init__(
        self,
        *,
        identity: Identity,
        broker: Broker,
        options: AgentOptions,
        clock: Clock | None = None,
    ) -> None:
        self.identity = identity
        self.options = options
        self.counters = Counters()
        self._broker = broker
        self._clock = clock or SystemClock()
        self._queue = topology.agent_commands(identity.agent)
        self._equipment = Equipment(options.fetching, self._clock)
        self._vitals = Vitals(identity, self._clock)
        self._results = ResultSender(broker, identity.agent, options, self.counters)
        self._slots = Slots(self._make_downloader, options.idle_seconds)
        self._subscription: AsyncSubscription | None = None
        self._leaving = False
        self._held = 0
        self._told_missing: set[int] = set()
        self._done: list[Delivery] = []
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def downloaders(self) -> Mapping[int, Downloader]:
        """Those that are ready or at work, by run."""
        return self._slots.active

    @property
    def held(self) -> int:
        """Commands taken from the queue and not yet done with."""
        return self._held

    # --- life -----------------------------------------------------------------------------------

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until asked to stop. A broker that is away is waited for, for ever (seed S1.47).

        Raises ``BrokerClosed`` when somebody else closes the broker.
        """
        working = asyncio.ensure_future(self._work())
        stopping = asyncio.ensure_future(stop.wait())
        background = [
            working,
            stopping,
            asyncio.ensure_future(self._keep_sweeping()),
        ]
        try:
            await asyncio.wait([working, stopping], return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                working.result()
        finally:
            for task in background:
                task.cancel()
            await asyncio.gather(*background, return_exceptions=True)
            await self._end(stop)

    async def _work(self) -> None:
        await self._for_ever("declare its queue", self._declare)
        await self._for_ever("register", self._register)
        await self._for_ever("subscribe to its queue", self._subscribe)
        logger.info(
            "agent %s (%s) serves %s", self.identity.agent, self.identity.name, self._broker.url
        )
        beating = asyncio.ensure_future(self._keep_beating())
        try:
            await self._serve()
        finally:
            beating.cancel()

    async def _declare(self) -> None:
        await in_daemon_thread(self._broker.declare, self._queue, topology.CENTER_REGISTER)
        await in_daemon_thread(self._broker.declare_exchange, topology.HEARTBEATS, "fanout")

    async def _register(self) -> None:
        body = encode(self._vitals.register())
        await publish(self._broker, [Outgoing(body=body, key=topology.CENTER_REGISTER.name)])

    async def _subscribe(self) -> None:
        self._subscription = await AsyncSubscription.open(
            self._broker, self._queue.name, prefetch=self.options.prefetch
        )

    async def _for_ever(self, what: str, action: Callable[[], Awaitable[None]]) -> None:
        failures = 0
        while True:
            try:
                await action()
            except BrokerClosed:
                raise
            except BrokerError as error:
                failures += 1
                delay = back_off(
                    failures,
                    self.options.first_delay_seconds,
                    self.options.longest_delay_seconds,
                )
                logger.warning("cannot %s: %s; again in %.1f s", what, error, delay)
                await asyncio.sleep(delay)
            else:
                return

    async def _end(self, stop: asyncio.Event) -> None:
        """Finish or give up what is held; unacknowledged commands go back to the queue."""
        await self._finish_downloads(stop)
        await asyncio.gather(*(one.close() for one in self.downloaders.values()))
        await self._results.drain(DRAIN_SECONDS)
        self._acknowledge()
        await self._results.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._subscription is not None:
            with contextlib.suppress(BrokerError):
                await self._subscription.close()
        await self._equipment.close()
        logger.info("agent %s leaves: %s", self.identity.agent, self.counters)

    async def _finish_downloads(self, stop: asyncio.Event) -> None:
        """Asked to exit: finish everything. Told to stop: what runs, for 2 s."""
        loop = asyncio.get_running_loop()
        until = loop.time() + EXIT_SECONDS
        told = False
        while any(downloader.busy for downloader in self.downloaders.values()):
            if stop.is_set() and not told:
                told = True
                until = loop.time() + self.options.stop_seconds
                for downloader in self.downloaders.values():
                    downloader.forget_waiting()
            if loop.time() >= until:
                return
            await asyncio.gather(*(one.settle(0.1) for one in self.downloaders.values()))

    # --- on a timer -----------------------------------------------------------------------------

    async def _keep_beating(self) -> None:
        """A heartbeat every 5 s; failures are told once, and nothing ends it (seed S1.22)."""
        failing = False
        while True:
            try:
                async with asyncio.timeout(CONFIRM_SECONDS):
                    await self._beat()
            except BrokerClosed:
                return
            except Exception as error:  # noqa: BLE001 - nothing may end this loop; logged once
                if not failing:
                    logger.warning("heartbeats fail: %s", _why(error))
                failing = True
            else:
                if failing:
                    logger.info("heartbeats work again")
                failing = False
            await asyncio.sleep(topology.HEARTBEAT_SECONDS)

    async def _beat(self) -> None:
        message = Outgoing(
            body=encode(self._vitals.heartbeat(len(self.downloaders))),
            key="",
            exchange=topology.HEARTBEATS,
            ttl_seconds=topology.AGENT_ALIVE_SECONDS,
            persistent=False,
            # Without any center there is no queue, and that is no failure of the agent.
            mandatory=False,
        )
        await publish(self._broker, [message])

    async def _keep_sweeping(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            await self.sweep()

    async def sweep(self) -> None:
        """Release downloaders nobody has used for 600 s (seed S1.26)."""
        await self._slots.sweep()

    # --- commands -------------------------------------------------------------------------------

    async def _serve(self) -> None:
        assert self._subscription is not None  # noqa: S101 - _work has subscribed
        while not self._leaving:
            deliveries = await self._subscription.take(TAKE)
            self._held += len(deliveries)
            for delivery in deliveries:
                try:
                    self._handle(delivery)
                except Exception as error:  # the last guard: one command must not end the agent
                    logger.exception("a command failed in an unforeseen way")
                    self._refuse(delivery, f"{type(error).__name__}: {error}")

    def _handle(self, delivery: Delivery) -> None:
        try:
            message = decode(delivery.body)
        except ProtocolError as error:
            self._refuse(delivery, str(error))
            return
        if isinstance(message, DownloadCommand | AllocateDownloader) and not _is_queue(
            message.reply_to
        ):
            self._refuse(delivery, "reply_to names no queue")
        elif isinstance(message, DownloadCommand):
            self._on_download(delivery, message)
        elif isinstance(message, AllocateDownloader):
            self._on_allocate(delivery, message)
        elif isinstance(message, ReleaseDownloader):
            self._background(delivery, self._on_release(delivery, message))
        elif isinstance(message, ExitAgent):
            logger.info("asked to exit: %s", message.reason or "no reason given")
            self._acknowledge_later(delivery)
            self._leaving = True
        else:
            self._refuse(delivery, f"{type(message).__name__} is no command to an agent")

    def _on_download(self, delivery: Delivery, message: DownloadCommand) -> None:
        count = len(message.items)
        void_at = message.dispatched_at + topology.DOWNLOAD_EXPIRES_SECONDS
        if not count or self._clock.time() >= void_at:
            self.counters.expired += count
            self._acknowledge_later(delivery)
            return
        work = Work(
            delivery=delivery,
            run=message.run,
            reply_to=message.reply_to,
            requests=count,
            void_at=void_at,
            on_done=self._acknowledge_later,
        )
        downloader = self._slots.find(message.run)
        if downloader is not None:
            downloader.submit(message.items, work)
            return
        self._note_missing(message.run)
        self.counters.missing += count
        for item in message.items:
            self._results.add(work, failed(item, FailureKind.DOWNLOADER_MISSING, _MISSING))

    def _note_missing(self, run: int) -> None:
        if run not in self._told_missing:
            logger.warning("run %d: requests, but no downloader", run)
            self._told_missing.add(run)

    def _on_allocate(self, delivery: Delivery, message: AllocateDownloader) -> None:
        # At once, and not in the task that answers: the next command may need it already.
        reason = ""
        try:
            if self._slots.open(message.run, message.settings):
                self._told_missing.discard(message.run)
            else:
                logger.warning("run %d: allocated again, the downloader is kept", message.run)
        except ValueError as error:
            reason = f"bad downloader settings: {error}"
            logger.warning("run %d: %s", message.run, reason)
        ready = DownloaderReady(
            run=message.run, agent=self.identity.agent, ok=not reason, reason=reason
        )
        self._background(delivery, self._say_ready(delivery, message.reply_to, ready))

    async def _say_ready(self, delivery: Delivery, reply_to: str, ready: DownloaderReady) -> None:
        outgoing = Outgoing(
            body=encode(ready),
            key=reply_to,
            ttl_seconds=topology.ALLOCATE_EXPIRES_SECONDS,
            persistent=False,
        )
        await self._results.deliver(outgoing, f"downloader of run {ready.run}", 0)
        failpoints.hit("agent.allocated")
        self._acknowledge_later(delivery)

    def _make_downloader(self, run: int, settings: DownloaderSettings) -> Downloader:
        return Downloader(
            run=run,
            settings=settings,
            results=self._results,
            counters=self.counters,
            rate=self._vitals.rate,
            clock=self._clock,
            equipment=self._equipment,
        )

    async def _on_release(self, delivery: Delivery, message: ReleaseDownloader) -> None:
        await self._slots.release(message.run)
        self._acknowledge_later(delivery)

    def _refuse(self, delivery: Delivery, reason: str) -> None:
        logger.warning("refused a message: %s", reason)
        self.counters.refused += 1
        self._start(self._dead_letter(delivery, reason))

    async def _dead_letter(self, delivery: Delivery, reason: str) -> None:
        assert self._subscription is not None  # noqa: S101 - the delivery came from it
        self._held -= 1
        try:
            await in_daemon_thread(self._subscription.dead_letter, delivery, reason)
        except BrokerError as error:
            logger.warning("a message could not be set aside, it will come again: %s", error)

    # --- helpers --------------------------------------------------------------------------------

    def _background(self, delivery: Delivery, action: Awaitable[None]) -> None:
        """Do what a command asks; it is settled however that ends, or its place is lost."""

        async def guarded() -> None:
            try:
                await action
            except BrokerError as error:
                # The broker is closed or lost, and with it the delivery: it comes again.
                logger.warning("a command failed, it will come again: %s", error)
                self._held -= 1
            except Exception as error:  # the last guard: one command must not end the agent
                logger.exception("a command failed in an unforeseen way")
                self._refuse(delivery, f"{type(error).__name__}: {error}")

        self._start(guarded())

    def _start(self, action: Coroutine[None, None, None]) -> None:
        task = asyncio.ensure_future(action)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _acknowledge_later(self, delivery: Delivery) -> None:
        """Acknowledge together with what else gets done in this turn of the loop."""
        self._done.append(delivery)
        if len(self._done) == 1:
            asyncio.get_running_loop().call_soon(self._acknowledge)

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
        self._held -= len(done)


def _why(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "no confirmation in time"
    return str(error) if isinstance(error, BrokerError) else f"{type(error).__name__}: {error}"


def _is_queue(name: str) -> bool:
    """Whether a broker could have a queue of this name."""
    return 0 < len(name.encode()) <= _LONGEST_NAME_BYTES
