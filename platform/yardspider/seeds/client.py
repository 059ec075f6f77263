"""The engine's client of the frontier."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from yardspider.clock import EngineClock
from yardspider.errors import RunFailed
from yardspider.seeds.initial import load_seeds
from yardspider.seeds.leases import Leases
from yardspider.seeds.outbox import PendingSeeds, SeedOutbox
from yardspider.seeds.port import RunFrontier, SeedCounts
from yardspider.seeds.seed import Seed
from yardspider.seeds.serial_caller import SerialCaller
from yardspider.seeds.task import SeedTask
from yardspider.settings import SpiderSettings

log = logging.getLogger("yardspider")

_LOG_SECONDS: Final = 30.0
_CLOSE_SECONDS: Final = 1.0
NO_FRONTIER: Final = "this run has no frontier to take seeds; choose one in its job"


class RunSeeds:
    """Adds, leases and finishes the seeds of one run. Without a frontier it refuses seeds.

    Args:
        takes_seeds: whether the run works on seeds, not only finds them.
        before_finish: makes items durable; called before seeds are finished.
        ring: called when there is something to do.
    """

    def __init__(
        self,
        frontier: RunFrontier | None,
        settings: SpiderSettings,
        *,
        takes_seeds: bool,
        clock: EngineClock,
        before_finish: Callable[[], None],
        ring: Callable[[], None],
    ) -> None:
        self._frontier = frontier
        self._settings = settings
        self._takes = takes_seeds
        self._clock = clock
        self._ring = ring
        self.counts = SeedCounts()
        self._loading: asyncio.Task[int] | None = None
        self._stopping = False
        self._paused = False
        self._log_at = 0.0
        self._logged = ""
        self._outbox: SeedOutbox | None = None
        self._leases: Leases | None = None
        if frontier is not None:
            self._callers = [
                SerialCaller(clock, ring, settings.seed_service_seconds) for _ in range(3)
            ]
            sending, leasing, extending = self._callers
            self._leases = Leases(
                frontier, leasing, extending, self.counts, ahead=settings.seeds_ahead
            )
            self._outbox = SeedOutbox(
                frontier,
                sending,
                self.counts,
                before_finish=before_finish,
                ended=self._leases.ended,
                news=self._leases.news,
            )

    async def open(self) -> None:
        """Connect to the frontier. Raises ``RunFailed``."""
        if self._frontier is None:
            if self._takes or self._settings.initial_seeds:
                raise RunFailed(NO_FRONTIER)
            return
        await self._frontier.open()
        self._log_at = self._clock.now() + _LOG_SECONDS
        if self._settings.initial_seeds:
            path = Path(self._settings.initial_seeds)
            self._loading = asyncio.create_task(load_seeds(path, self.add))
            self._loading.add_done_callback(lambda _: self._ring())

    # --- what the spider says -----------------------------------------------------------------

    def add(self, seeds: Sequence[Seed]) -> PendingSeeds:
        """Add seeds with the next batch. Raises ``RunFailed`` without a frontier."""
        outbox, now = self._ready()
        adding = PendingSeeds(len(seeds))
        outbox.add([seed.message(now) for seed in seeds], adding)
        self._ring()
        return adding

    def found(self, seed: Seed, task: SeedTask | None) -> None:
        """Add a seed with the finish of the seed on whose page it was found."""
        outbox, now = self._ready()
        if task is None:
            outbox.add([seed.message(now)])
        else:
            task.find(seed.message(now))
            outbox.overflow(task)

    def _ready(self) -> tuple[SeedOutbox, int]:
        if self._frontier is None or self._outbox is None:
            raise RunFailed(NO_FRONTIER)
        return self._outbox, self._frontier.now()

    # --- what becomes of seeds ----------------------------------------------------------------

    def take(self) -> SeedTask | None:
        """Return the next seed to work on; making its requests counts as one open request."""
        if self._leases is None or self._paused or self._stopping:
            return None
        task = self._leases.take()
        if task is not None:
            task.open = 1
        return task

    def settled(self, task: SeedTask, failure: str = "") -> None:
        """End one open request of a seed; the last one ends the seed."""
        if failure:
            task.request_failed(failure)
        task.open -= 1
        if task.open == 0 and self._outbox is not None:
            if task.failure:
                log.warning("seed %s: %s", task.data, task.failure)
            self._outbox.finish(task)
            self._ring()

    # --- the engine's -------------------------------------------------------------------------

    @property
    def busy(self) -> bool:
        """Whether the run must not end by itself."""
        if self._outbox is None or self._leases is None:
            return False
        loading = self._loading is not None and not self._loading.done()
        return loading or self._outbox.busy or (self._takes and self._leases.busy)

    @property
    def crowded(self) -> bool:
        """Whether too many seeds are unconfirmed to request a new page."""
        return self._outbox is not None and self._outbox.crowded

    def step(self, now: float) -> None:
        """Make the calls that are due. Raises ``RunFailed`` when the service stays unreachable."""
        if self._outbox is None or self._leases is None:
            return
        loading = self._loading
        if loading is not None and loading.done() and not loading.cancelled():
            self._loading = None
            loading.result()
        self._outbox.step(now)
        if self._stopping or self._paused:
            # It was on its way when the pause began.
            self._leases.give_back_unbegun()
            self._leases.step(now, more=False)
        else:
            self._leases.step(now, more=self._takes)
        if now >= self._log_at:
            self._log_at = now + _LOG_SECONDS
            self._log_progress()

    def next_wake(self, now: float) -> float | None:
        """Return when ``step``, called at ``now``, is due again, if nothing rings before."""
        if self._outbox is None or self._leases is None:
            return None
        times = self._leases.next_wake() if self._takes else []
        telling = self._outbox.next_wake()
        if telling is not None:
            times.append(telling)
        # A call that is due and not made waits for a running one, which rings.
        return min((time for time in times if time > now), default=None)

    def pause(self) -> None:
        """Give back seeds that have not begun; keep the leases of the others."""
        self._paused = True
        if self._leases is not None:
            self._leases.give_back_unbegun()

    def resume(self) -> None:
        """Lease seeds again."""
        self._paused = False

    def stop(self) -> None:
        """Lease nothing more, and give back seeds that have not begun."""
        self._stopping = True
        if self._loading is not None:
            self._loading.cancel()
        if self._leases is not None:
            self._leases.give_back_unbegun()

    async def finish(self, limit_seconds: float) -> RunFailed | None:
        """Make the last calls to the service, within some seconds.

        Returns the error that the run must report, if any.
        """
        frontier, outbox, leases = self._frontier, self._outbox, self._leases
        if frontier is None or outbox is None or leases is None:
            return None
        failure = None
        self._stopping = True
        if self._loading is not None:
            self._loading.cancel()
        try:
            async with asyncio.timeout(limit_seconds):
                await leases.wait_for_reply()
                await outbox.drain(self._clock.now)
                await leases.give_back_all(self._clock.now())
        except (TimeoutError, RunFailed) as error:
            why = str(error) or f"no answer within {limit_seconds:g} s"
            log.error("seeds could not be reported completely: %s", why)
            if outbox.unconfirmed:
                text = f"{outbox.unconfirmed} seeds may not have been added: {why}"
                failure = RunFailed(text)
        for caller in self._callers:
            caller.cancel()
        self.counts.left = leases.held
        self.counts.unconfirmed = outbox.unconfirmed
        if self.counts.any:
            log.info("seeds: %s", self.counts)
        try:
            async with asyncio.timeout(_CLOSE_SECONDS):
                await frontier.close()
        except TimeoutError:
            log.warning("the connection to the seed service could not be closed in time")
        return failure

    def _log_progress(self) -> None:
        counts_text = str(self.counts)
        if self._leases is not None and self._leases.pending is not None:
            counts_text += f"; {self._leases.pending} wait in the frontier"
        if self.counts.any and counts_text != self._logged:
            self._logged = counts_text
            log.info("seeds: %s", counts_text)
