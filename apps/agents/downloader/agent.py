"""The agent: registers, sends heartbeats, and carries out the commands in its queue."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

from apps.agents.downloader.addresses import AddressBook
from apps.agents.downloader.bodies import BodyStore
from apps.agents.downloader.commands import AgentCommandQueue, DownloadWork, opened, read_command
from apps.agents.downloader.downloader import Downloader, failed
from apps.agents.downloader.fetchers import Equipment, available_types
from apps.agents.downloader.heartbeat_sender import HeartbeatSender
from apps.agents.downloader.kept import PageKeeper
from apps.agents.downloader.kept.store import SignedPageStore
from apps.agents.downloader.options import AgentIdentity, AgentOptions
from apps.agents.downloader.reports import HostReports
from apps.agents.downloader.results import ResultSender
from apps.agents.downloader.roster import Roster
from apps.agents.downloader.slots import Slots
from apps.agents.downloader.store import AllocationStore
from apps.agents.downloader.vitals import AgentCounters, AgentVitals
from yardkit import failpoints, topology
from yardkit.bridge import in_daemon_thread
from yardkit.broker import Broker, BrokerClosed, BrokerError, Delivery, Outgoing
from yardkit.clock import Clock, SystemClock
from yardkit.outage import Outage
from yardkit.protocol import (
    AllocateDownloader,
    DownloadCommand,
    DownloaderReady,
    DownloaderSettings,
    ExitAgent,
    FailureKind,
    Heartbeat,
    ProtocolError,
    ReleaseDownloader,
    encode,
)
from yardkit.seals import SealKey
from yardkit.secretbox import SecretError

logger = logging.getLogger(__name__)

SWEEP_SECONDS: Final = 1.0
# How long an agent that was asked to exit continues with what it holds.
EXIT_SECONDS: Final = 30.0
DRAIN_SECONDS: Final = 1.0
REGISTER_AGAIN_SECONDS: Final = 2.0
# Runs without a downloader that are logged once; beyond, some are logged a second time.
MOST_LOGGED: Final = 1000
_MISSING: Final = "this agent has no downloader for the run"


class DownloadAgent:
    """One agent on one broker. ``run`` ends after ``stop`` is set or an ``ExitAgent`` came."""

    def __init__(
        self,
        *,
        identity: AgentIdentity,
        broker: Broker,
        options: AgentOptions,
        clock: Clock | None = None,
    ) -> None:
        self.identity = identity
        self.options = options
        self.counters = AgentCounters()
        self._broker = broker
        self._clock = clock or SystemClock()
        self._spec = topology.agent_commands(identity.agent)
        self._addresses = AddressBook(broker, identity.agent, self._clock)
        self._equipment = Equipment(options.fetching, self._clock, self._addresses)
        self._bodies = BodyStore(self._addresses, self.counters, self._clock)
        self._seal_key = SealKey()
        self._vitals = AgentVitals(
            identity, self._clock, available_types(options.fetching), self._seal_key.public
        )
        self._pulse = HeartbeatSender(broker, self._vitals, self._heartbeat)
        self._commands = AgentCommandQueue(broker, self._spec.name, self.counters)
        self._results = ResultSender(broker, identity.agent, options, self.counters)
        self._reports = HostReports(self._results.deliver, identity.agent, self._clock)
        folder = options.allocations
        self._roster = Roster(AllocationStore(folder) if folder else None)
        self._keeper = self._make_keeper()
        self._slots = Slots(self._make_downloader, options.idle_seconds, self._roster)
        self._leaving = False
        self._logged_missing: set[int] = set()
        self._register_at = 0.0

    @property
    def downloaders(self) -> Mapping[int, Downloader]:
        """Open downloaders by run."""
        return self._slots.active

    @property
    def held(self) -> int:
        """Number of commands taken from the queue and not settled."""
        return self._commands.held

    @property
    def problems(self) -> list[str]:
        """Problems to report to the operator."""
        return self._roster.problems

    # --- life -----------------------------------------------------------------------------------

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until asked to stop. An unreachable broker is retried without limit.

        Raises ``BrokerClosed`` when the broker is closed from outside.
        """
        working = asyncio.ensure_future(self._work())
        stopping = asyncio.ensure_future(stop.wait())
        background = [working, stopping, asyncio.ensure_future(self._keep_sweeping())]
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
        # First the downloaders of an earlier process: requests for them may be queued.
        await self._slots.load(self._clock.time())
        await self._for_ever("declaration", self._declare)
        await self._for_ever("registration", self._pulse.register)
        await self._for_ever("subscription for addresses", self._addresses.open)
        await self._for_ever("subscription", self._subscribe)
        if self._keeper is not None:
            self._keeper.start()
        logger.info(
            "agent %s (%s) serves %s", self.identity.agent, self.identity.name, self._broker.url
        )
        beating = asyncio.ensure_future(self._pulse.keep_beating())
        try:
            await self._serve()
        finally:
            beating.cancel()

    async def _declare(self) -> None:
        await in_daemon_thread(self._broker.declare, self._spec, topology.CENTER_REGISTER)
        await in_daemon_thread(self._broker.declare_exchange, topology.HEARTBEATS, "fanout")

    async def _subscribe(self) -> None:
        await self._commands.open(self.options.prefetch)

    def _heartbeat(self) -> Heartbeat:
        return self._vitals.heartbeat(len(self.downloaders), self.problems)

    async def _for_ever(self, what: str, action: Callable[[], Awaitable[None]]) -> None:
        options = self.options
        outage = Outage(
            logger,
            f"{what} of the agent",
            first=options.first_delay_seconds,
            longest=options.longest_delay_seconds,
        )
        while True:
            try:
                await action()
            except BrokerClosed:
                raise
            except BrokerError as error:
                await asyncio.sleep(outage.failed(error))
            else:
                outage.recovered()
                return

    async def _end(self, stop: asyncio.Event) -> None:
        """Finish or give up held commands; unacknowledged ones return to the queue."""
        self._handle_each(await self._commands.last())
        # Downloads with a free slot start before the waiting ones are given up.
        await asyncio.sleep(0)
        await self._finish_downloads(stop)
        await asyncio.gather(*(downloader.close() for downloader in self.downloaders.values()))
        await asyncio.gather(
            self._results.drain(DRAIN_SECONDS),
            self._reports.drain(DRAIN_SECONDS),
            self._close_keeper(),
        )
        await self._addresses.close()
        await self._results.close()
        await self._commands.close()
        await self._bodies.close()
        await self._equipment.close()
        logger.info("agent %s exits: %s", self.identity.agent, self.counters)

    async def _finish_downloads(self, stop: asyncio.Event) -> None:
        """After ``ExitAgent`` finish everything; after a stop finish running downloads, for 2 s."""
        loop = asyncio.get_running_loop()
        until = loop.time() + EXIT_SECONDS
        stopping = False
        while any(downloader.busy for downloader in self.downloaders.values()):
            if stop.is_set() and not stopping:
                stopping = True
                until = loop.time() + self.options.stop_seconds
                for downloader in self.downloaders.values():
                    downloader.forget_waiting()
            if loop.time() >= until:
                return
            await asyncio.gather(*(one.settle(0.1) for one in self.downloaders.values()))

    # --- on a timer -----------------------------------------------------------------------------

    async def _keep_sweeping(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            await self.sweep()

    async def sweep(self) -> None:
        """Release downloaders idle for 600 s (seed S1.26); notify runs of held requests."""
        await self._slots.sweep()
        for downloader in list(self.downloaders.values()):
            notices = list(downloader.notices())
            if notices:
                self._results.notify(notices, "notices of held requests")

    # --- commands -------------------------------------------------------------------------------

    async def _serve(self) -> None:
        while not self._leaving:
            self._handle_each(await self._commands.take())

    def _handle_each(self, deliveries: Sequence[Delivery]) -> None:
        for delivery in deliveries:
            try:
                self._handle(delivery)
            except Exception as error:  # the last guard: one command must not end the agent
                logger.exception("command failed unexpectedly")
                self._commands.refuse(delivery, f"{type(error).__name__}: {error}")

    def _handle(self, delivery: Delivery) -> None:
        try:
            message = read_command(delivery.body)
        except ProtocolError as error:
            self._commands.refuse(delivery, str(error))
            return
        if isinstance(message, DownloadCommand):
            self._on_download(delivery, message)
        elif isinstance(message, AllocateDownloader):
            self._on_allocate(delivery, message)
        elif isinstance(message, ReleaseDownloader):
            self._addresses.forget(message.run)
            # The next command may be the next allocation of the same run.
            released = self._slots.release(message.run)
            if self._keeper is not None:
                self._keeper.release(message.run)
            self._commands.background(delivery, self._finish_release(delivery, released))
        elif isinstance(message, ExitAgent):
            logger.info("asked to exit: %s", message.reason or "no reason given")
            self._commands.done(delivery)
            self._leaving = True
        else:
            self._commands.refuse(delivery, f"{type(message).__name__} is no command to an agent")

    def _on_download(self, delivery: Delivery, message: DownloadCommand) -> None:
        count = len(message.items)
        work = DownloadWork(
            delivery=delivery,
            command=message,
            void_at=message.dispatched_at + topology.DOWNLOAD_EXPIRES_SECONDS,
            reports=self._reports,
            on_done=self._commands.done,
        )
        if not count or self._clock.time() >= work.void_at:
            self.counters.expired += count
            for item in message.items:
                work.report(item.host)
            self._commands.done(delivery)
            return
        downloader = self._slots.find(message.run)
        if downloader is not None:
            downloader.submit(message.items, work)
            return
        self._note_missing(message.run)
        self.counters.missing += count
        for item in message.items:
            work.report(item.host)
            self._results.add(work, failed(item, FailureKind.DOWNLOADER_MISSING, _MISSING))

    def _note_missing(self, run: int) -> None:
        if run not in self._logged_missing:
            logger.warning("run %d: requests for a missing downloader", run)
            if len(self._logged_missing) >= MOST_LOGGED:
                self._logged_missing.clear()
            self._logged_missing.add(run)

    def _on_allocate(self, delivery: Delivery, message: AllocateDownloader) -> None:
        age = self._clock.time() - message.allocated_at
        if message.allocated_at and age > topology.ALLOCATE_EXPIRES_SECONDS:
            logger.warning(
                "run %d: an allocation of %.0f s ago, dropped; if it is new the clocks of the"
                " center's and this host differ",
                message.run,
                age,
            )
            self.counters.stale += 1
            self._commands.done(delivery)
            return
        try:
            message = opened(message, self._seal_key)
        except SecretError as error:
            self._on_sealed_for_another(delivery, message.run, error)
            return
        # At once, and not in the task that answers: the next command may need it.
        reason = ""
        try:
            if self._slots.open(message):
                self._logged_missing.discard(message.run)
            else:
                logger.warning("run %d: allocated again, the downloader is kept", message.run)
        except ValueError as error:
            reason = f"bad downloader settings: {error}"
            logger.warning("run %d: %s", message.run, reason)
        ready = DownloaderReady(
            run=message.run, agent=self.identity.agent, ok=not reason, reason=reason
        )
        self._commands.background(delivery, self._say_ready(delivery, message.reply_to, ready))

    def _on_sealed_for_another(self, delivery: Delivery, run: int, error: SecretError) -> None:
        """Drop cookies sealed for an earlier process, and register again to get them again."""
        logger.warning("run %d: the cookies cannot be opened, dropped: %s", run, error)
        self.counters.stale += 1
        now = self._clock.monotonic()
        if now < self._register_at:
            self._commands.done(delivery)
            return
        self._register_at = now + REGISTER_AGAIN_SECONDS
        self._commands.background(delivery, self._register_again(delivery))

    async def _register_again(self, delivery: Delivery) -> None:
        await self._pulse.register()
        self._commands.done(delivery)

    async def _say_ready(self, delivery: Delivery, reply_to: str, ready: DownloaderReady) -> None:
        # Without its file the run is served until this process ends: a problem for the
        # operator, and no reason to refuse the run.
        await self._roster.settle(ready.run)
        outgoing = Outgoing(
            body=encode(ready),
            key=reply_to,
            ttl_seconds=topology.ALLOCATE_EXPIRES_SECONDS,
            persistent=False,
        )
        await self._results.deliver([outgoing], f"downloader of run {ready.run}", 0)
        failpoints.hit("agent.allocated")
        self._commands.done(delivery)

    def _make_downloader(self, run: int, settings: DownloaderSettings) -> Downloader:
        return Downloader(
            run=run,
            settings=settings,
            results=self._results,
            counters=self.counters,
            rate=self._vitals.rate,
            clock=self._clock,
            equipment=self._equipment,
            keeper=self._keeper,
            bodies=self._bodies,
        )

    def _make_keeper(self) -> PageKeeper | None:
        options = self.options
        if options.pages is None:
            return None
        return PageKeeper(
            folder=options.pages,
            agent=self.identity.agent,
            max_bytes=options.pages_bytes,
            deliver=self._results.deliver,
            store=SignedPageStore(self._addresses),
            clock=self._clock,
        )

    async def _close_keeper(self) -> None:
        if self._keeper is not None:
            await self._keeper.close(DRAIN_SECONDS)

    async def _finish_release(self, delivery: Delivery, released: Awaitable[None]) -> None:
        await released
        self._commands.done(delivery)
