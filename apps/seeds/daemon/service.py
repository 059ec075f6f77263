"""run_seeds: takes calls from the queue, answers and then acknowledges them.

The main thread answers quick calls. Other threads reload frontiers, expire leases, write reports
and answer slow calls. A call is redelivered until its answer is sent, so each may arrive twice.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from typing import Any, Final

from django.db import connections

from apps.runtime.errors import DATABASE_AWAY
from apps.seeds.daemon.call_handler import SeedCallHandler
from apps.seeds.daemon.calls import CallDispatcher
from apps.seeds.daemon.frontiers import ActiveFrontier, Frontiers
from apps.seeds.daemon.long_poll import LongPollQueue
from apps.seeds.daemon.refusals import SeedCallRefused
from apps.seeds.daemon.replies import CallReplies
from apps.seeds.daemon.reports import SegmentReporter
from apps.seeds.daemon.resources import SWEEP_SECONDS, sweep
from apps.seeds.daemon.slow_calls import HANDLERS, manage
from apps.seeds.daemon.upkeep import PeriodicThreads
from apps.seeds.engine.errors import (
    InvalidFrontierSetting,
    SeedError,
    SeedStoreUnavailable,
    StoreInUse,
)
from apps.seeds.stores.base import CLOCK_TOLERANCE_MS, SeedStore
from yardkit import failpoints, topology
from yardkit.broker import Broker, Delivery, Subscription
from yardkit.clock import Clock
from yardkit.daemon import CannotStart
from yardkit.protocol import AnyMessage, ManageSeeds
from yardkit.shared_queues import declare_shared
from yardkit.timers import Timers

logger = logging.getLogger(__name__)

# Limit of unacknowledged calls, each up to a megabyte; waiting leases are included.
PREFETCH: Final = 128
TAKE: Final = 32
POLL_SECONDS: Final = 0.2
LOOK_SECONDS: Final = 0.5
EXPIRE_SECONDS: Final = 1.0
# Interval at which waiting leases are retried on a shared store, whose other processes send no
# wake-ups.
SHARED_SECONDS: Final = 1.0
# Extension of leases after an outage, in which they could not be extended.
GRACE_SECONDS: Final = 60.0
# How long a second process waits for the owner of the store to end.
_OWNER_SECONDS: Final = 2.0
# A longer pause between two steps counts as a standstill.
STILL_SECONDS: Final = 5.0
# Longest delay of lease expiry while calls that may refer to the leases are waiting.
LATER_SECONDS: Final = 30.0
# Part of the 4 s within which the process must end; the rest is for closing connections.
_END_SECONDS: Final = 2.0
_FLUSH_SECONDS: Final = 1.0


class SeedStoreAway(OSError):
    """The store cannot be reopened; an ``OSError``, so that the daemon retries."""


class SeedDaemon:
    """Daemon of the seed service.

    Args:
        open_store: may raise ``SeedError``; called again when a store has failed.
        secret: secret of the installation, which signs tokens.
        shared: other processes change the same store.
        threads: False does everything in ``step``, for tests and for databases that threads cannot
            share.
    """

    def __init__(
        self,
        *,
        broker: Broker,
        clock: Clock,
        open_store: Callable[[], SeedStore],
        secret: str,
        shared: bool,
        threads: bool,
    ) -> None:
        self.broker = broker
        self.clock = clock
        self._open_store = open_store
        self._shared = shared
        self.frontiers = Frontiers(secret=secret, clock=clock, on_change=self._changed)
        self.handler: SeedCallHandler | None = None
        self.long_poll = LongPollQueue()
        self.reporter = SegmentReporter(self.frontiers, clock)
        self._failed_store: SeedStore | None = None
        self._subscription: Subscription | None = None
        self._news = threading.Event()
        self._with_threads = threads
        self._out = CallReplies(broker)
        self._upkeep = PeriodicThreads()
        # Separate, so that calls without seeds do not wait behind calls that scan a segment.
        self._aside: SimpleQueue[tuple[Delivery, AnyMessage] | None] = SimpleQueue()
        self._beside: SimpleQueue[tuple[Delivery, AnyMessage] | None] = SimpleQueue()
        self._timers = Timers(lambda: self.clock.monotonic())
        # Times on the monotonic clock: when the queue was last empty, and when leases were last
        # expired.
        self._caught_up_at = self._watched_at = time.monotonic()
        self._is_cut_off = False
        # Wall clock minus monotonic clock, in seconds.
        self._ahead = _ahead_of_monotonic(clock)
        self._calls: CallDispatcher | None = None

    # --- life cycle -------------------------------------------------------------------------------

    def setup(self) -> None:
        """Load the frontiers, open the store, subscribe to the queue."""
        self._unsubscribe()
        self.frontiers.look()
        if self.handler is None:
            self.handler = SeedCallHandler(self._open_prepared(), self.frontiers)
            self._calls = CallDispatcher(
                self.handler,
                self._out,
                self.long_poll,
                self.reporter,
                self.clock,
                aside=self._put_aside,
                on_failure=self._note_failure,
                still_seconds=STILL_SECONDS,
            )
        declare_shared(self.broker)
        self._subscription = self._out.subscription = self.broker.subscribe(
            topology.SEEDS.name, prefetch=PREFETCH, on_ready=self._news.set
        )
        if self._with_threads and not self._upkeep.started:
            for name, work, seconds in self._duties():
                self._upkeep.start(name, work, seconds)
            for name, queue in (("aside", self._aside), ("beside", self._beside)):
                self._upkeep.start(name, partial(self._work_aside, queue), 0.0)

    def step(self) -> bool:
        """Answer the available calls; return whether there were any."""
        assert self.handler is not None  # noqa: S101 - setup comes first
        assert self._calls is not None  # noqa: S101 - setup comes first
        assert self._subscription is not None  # noqa: S101 - setup comes first
        handler = self.handler
        if self._failed_store is handler.store:
            self._open_again(handler)
        self._news.wait(
            self.long_poll.pause(now=self._now(), at=self.clock.monotonic(), most=POLL_SECONDS)
        )
        self._news.clear()
        deliveries = self._subscription.take(TAKE)
        if len(deliveries) == TAKE:
            self._news.set()
        self._calls.answer(deliveries)
        if len(deliveries) < TAKE:
            self._caught_up_at = time.monotonic()
        if not self._with_threads:
            self._work_inline()
        if self._shared and self._timers.due("shared", SHARED_SECONDS):
            self.long_poll.wake_all()
        self._calls.serve_parked()
        if deliveries:
            return True
        return self._tend(handler)

    def teardown(self) -> None:
        """Answer waiting leases, reject new calls, close the store."""
        self._upkeep.stop()
        self._aside.put(None)
        self._beside.put(None)
        if self._calls is not None:
            self._calls.end()
        if self._subscription is not None:
            self._refuse_rest(self._subscription)
        self._upkeep.join(_END_SECONDS)
        self._out.flush(_FLUSH_SECONDS)
        self._unsubscribe()
        if self.handler is not None:
            self.handler.store.close()
            self.handler = None

    def _refuse_rest(self, subscription: Subscription) -> None:
        subscription.cancel()
        rest = subscription.take(PREFETCH)
        if rest:
            logger.warning("the seed service stops: %d calls are refused", len(rest))
        for delivery in rest:
            self._out.refuse(delivery, SeedCallRefused("stopping", "the seed service stops"))

    def _unsubscribe(self) -> None:
        if self._subscription is not None:
            self._subscription.close()
            self._subscription = self._out.subscription = None

    # --- the store --------------------------------------------------------------------------------

    def _open(self) -> SeedStore:
        give_up = self.clock.monotonic() + _OWNER_SECONDS
        while True:
            try:
                return self._open_store()
            except StoreInUse as error:
                # The owner may be about to end, or a check has opened the store briefly.
                if self.clock.monotonic() >= give_up or self._upkeep.stopping.wait(POLL_SECONDS):
                    raise CannotStart(str(error)) from None
            except InvalidFrontierSetting as error:
                raise CannotStart(f"SEEDS_URL: {error}") from None
            except SeedStoreUnavailable as error:
                raise SeedStoreAway(f"the seed store cannot be opened: {error}") from None

    def _open_prepared(self) -> SeedStore:
        store = self._open()
        try:
            self._prepare(store)
        except BaseException:
            # Closed first: otherwise the next attempt finds the store in use by this very process.
            store.close()
            raise
        return store

    def _prepare(self, store: SeedStore) -> None:
        for active in self.frontiers.all():
            if active.filter is not None:
                store.set_filter(active.frontier, active.filter)
        store.extend_all(seconds=GRACE_SECONDS, now=self._now())

    def _open_again(self, handler: SeedCallHandler) -> None:
        """Reopen the store after a failure: RocksDB accepts no write until then."""
        handler.store.close()
        handler.store = self._open_prepared()
        self._failed_store = None
        logger.warning("the seed store was opened again")

    def _note_failure(self, store: SeedStore, error: SeedStoreUnavailable) -> None:
        if self._failed_store is not store:
            self._failed_store = store
            logger.error("%s", error)
        self._news.set()

    def _changed(self, active: ActiveFrontier) -> None:
        if self.handler is not None and active.filter is not None:
            self.handler.store.set_filter(active.frontier, active.filter)
        self.long_poll.wake(active.frontier)
        self._news.set()

    # --- slow calls -------------------------------------------------------------------------------

    def _put_aside(self, delivery: Delivery, call: AnyMessage) -> None:
        if self._with_threads:
            queue = self._aside if isinstance(call, ManageSeeds) else self._beside
            queue.put((delivery, call))
        else:
            self._do_aside(delivery, call)

    def _work_aside(self, queue: SimpleQueue[tuple[Delivery, AnyMessage] | None]) -> None:
        item = queue.get()
        if item is not None:
            self._do_aside(*item)

    def _do_aside(self, delivery: Delivery, call: Any) -> None:
        handler = self.handler
        assert handler is not None  # noqa: S101 - setup comes first
        store = handler.store
        try:
            if isinstance(call, ManageSeeds):
                answer: AnyMessage = manage(handler, call, self._now())
                failpoints.hit("seeds.daemon.committed")
                self.long_poll.wake(call.frontier)
                self.reporter.touch(call.frontier)
                self._news.set()
            else:
                answer = HANDLERS[type(call)](call)
        except SeedError as error:
            if isinstance(error, SeedStoreUnavailable):
                self._note_failure(store, error)
            self._out.refuse(delivery, error)
        except DATABASE_AWAY as error:
            connections.close_all()
            self._out.refuse(
                delivery, SeedCallRefused("database_away", f"the database is away: {error}")
            )
        except Exception as error:
            # Dead-letter the calls: a redelivery would fail in the same way.
            logger.exception("a call of the seed service has failed")
            reason = f"{type(error).__name__}: {error}"
            self._out.dead_letter(delivery, reason, code="service_error")
        else:
            self._out.reply([(delivery, answer)])

    # --- upkeep -----------------------------------------------------------------------------------

    def _work_inline(self) -> None:
        for name, work, seconds in self._duties():
            if self._timers.due(name, seconds):
                self._upkeep.attempt(name, work)

    def _duties(self) -> list[tuple[str, Callable[[], None], float]]:
        return [
            ("frontiers", self.frontiers.look, LOOK_SECONDS),
            ("expiry", self._expire, EXPIRE_SECONDS),
            ("reports", self._report, 1.0),
            ("resources", sweep, SWEEP_SECONDS),
        ]

    def _expire(self) -> None:
        handler = self.handler
        if handler is None:
            return
        if not self.broker.connected:
            # Without the broker, callers can neither finish seeds nor extend leases.
            self._is_cut_off = True
            return
        # Read before the check for a standstill: if the process is suspended in between, the time
        # it slept expires no lease.
        now, at = self._now(), time.monotonic()
        was_out = self._is_cut_off or at > self._watched_at + STILL_SECONDS or self._clock_was_set()
        self._is_cut_off, self._watched_at = False, at
        # A waiting call may finish or extend a lease.
        behind = min(at - self._caught_up_at, LATER_SECONDS)
        store = handler.store
        try:
            if was_out:
                store.extend_all(seconds=GRACE_SECONDS, now=self._now())
            count = store.expire(now=now - int(1000 * behind))
        except SeedStoreUnavailable as error:
            self._note_failure(store, error)
            return
        if count:
            logger.info("%d seeds came back: their leases were over", count)
            self.long_poll.wake_all()
            self.reporter.touch_all()
            self._news.set()

    def _clock_was_set(self) -> bool:
        """Return whether the wall clock jumped forward or the host slept: leases must not expire by
        that.
        """
        before, self._ahead = self._ahead, _ahead_of_monotonic(self.clock)
        return self._ahead > before + CLOCK_TOLERANCE_MS / 1000

    def _report(self) -> None:
        if self.handler is not None:
            self.reporter.turn(self.handler.store)

    def _tend(self, handler: SeedCallHandler) -> bool:
        store = handler.store
        try:
            return store.tend()
        except SeedStoreUnavailable as error:
            self._note_failure(store, error)
            return False

    def _now(self) -> int:
        return int(self.clock.time() * 1000)


def _ahead_of_monotonic(clock: Clock) -> float:
    while True:
        at, wall = clock.monotonic(), clock.time()
        # Both clocks are read together, so that no standstill can lie between.
        if clock.monotonic() < at + 1.0:
            return wall - at
