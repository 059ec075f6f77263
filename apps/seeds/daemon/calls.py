"""Dispatches calls from the queue in order; leases that find no due seed go to the long poll."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from apps.seeds.daemon.call_handler import SeedCallHandler
from apps.seeds.daemon.long_poll import LongPollQueue, WaitingLease
from apps.seeds.daemon.refusals import outcome_unknown
from apps.seeds.daemon.replies import CallReplies
from apps.seeds.daemon.reports import SegmentReporter
from apps.seeds.daemon.slow_calls import HANDLERS
from apps.seeds.engine.errors import SeedError, SeedStoreUnavailable
from apps.seeds.stores.base import SeedStore
from yardkit import failpoints
from yardkit.broker import Delivery
from yardkit.broker.gateway import belongs_to, sender_of
from yardkit.clock import Clock
from yardkit.protocol import (
    AddSeeds,
    AnyMessage,
    ExtendLease,
    FinishSeeds,
    GiveBackLease,
    GrabSeed,
    LeaseSeeds,
    LookUpSeed,
    ManageSeeds,
    ProtocolError,
    SeedsAdded,
    decode,
)
from yardkit.protocol.seeds import MAX_SEEDS

logger = logging.getLogger(__name__)

# Waiting leases beyond this number are acknowledged early; if this process is killed, their callers
# repeat them.
MAX_HELD: Final = 96
# After a standstill, calls sent during it arrive for this time.
DOUBT_SECONDS: Final = 1.0


class CallDispatcher:
    """Dispatcher of calls from the queue. Not thread-safe.

    Args:
        aside: receives slow calls.
        on_failure: called when the store has failed.
        still_seconds: a longer pause between two looks at the queue counts as a standstill. Calls
            received before it may have been repeated and answered by another service: a lease
            granted now would have no receiver.
    """

    def __init__(
        self,
        handler: SeedCallHandler,
        out: CallReplies,
        long_poll: LongPollQueue,
        reporting: SegmentReporter,
        clock: Clock,
        *,
        aside: Callable[[Delivery, AnyMessage], None],
        on_failure: Callable[[SeedStore, SeedStoreUnavailable], None],
        still_seconds: float,
    ) -> None:
        self._handler = handler
        self._out = out
        self._long_poll = long_poll
        self._reporting = reporting
        self._clock = clock
        self._aside = aside
        self._on_failure = on_failure
        self._still_seconds = still_seconds
        self._looked_at = time.monotonic()
        self._doubt_until = 0.0
        self._quick: dict[type, Callable[[Delivery, Any], None]] = {
            LeaseSeeds: self._lease,
            FinishSeeds: self._finish,
            ExtendLease: self._extend,
            GiveBackLease: self._give_back,
            LookUpSeed: self._look_up,
            GrabSeed: self._grab,
        }

    def look(self) -> None:
        """Record that the queue is being read; called at every step."""
        at = time.monotonic()
        if at > self._looked_at + self._still_seconds:
            self._doubt_until = at + DOUBT_SECONDS
        self._looked_at = at

    def answer(self, deliveries: Sequence[Delivery]) -> None:
        """Answer calls. Consecutive adds are merged, because each write waits for the disk."""
        self.look()
        adds: list[tuple[Delivery, AddSeeds]] = []
        for delivery in deliveries:
            call = self._taken(delivery)
            if isinstance(call, AddSeeds):
                if adds and not _together(adds, call):
                    self._add(adds)
                    adds = []
                adds.append((delivery, call))
                continue
            if adds:
                self._add(adds)
                adds = []
            if call is not None:
                self._do(delivery, call)
        if adds:
            self._add(adds)

    def _taken(self, delivery: Delivery) -> AnyMessage | None:
        """Decode a delivery; None if it is not a valid call, which is then settled."""
        try:
            failpoints.hit("seeds.daemon.taken")
            self.look()
            return self._read(delivery)
        except Exception as error:  # noqa: BLE001 - logged
            self._break(error, delivery)
            return None

    def _read(self, delivery: Delivery) -> AnyMessage | None:
        sender = sender_of(delivery)
        if sender and not belongs_to(delivery.reply_to, sender):
            # No answer: the owner of the reply queue has sent no call.
            self._out.set_aside(delivery, f"{sender} wants its answer in another's queue")
            return None
        try:
            call = decode(delivery.body)
        except ProtocolError as error:
            self._out.dead_letter(delivery, str(error))
            return None
        kind = type(call)
        if not delivery.reply_to:
            self._out.dead_letter(delivery, f"{kind.__name__} without an address for its answer")
            return None
        if kind in self._quick or kind in (AddSeeds, ManageSeeds) or kind in HANDLERS:
            return call
        self._out.dead_letter(delivery, f"{kind.__name__} is no call of the seed service")
        return None

    def _do(self, delivery: Delivery, call: AnyMessage) -> None:
        quick = self._quick.get(type(call))
        if quick is not None:
            self._guard(delivery, partial(quick, delivery, call))
        else:
            self._aside(delivery, call)

    def _guard(self, delivery: Delivery, work: Callable[[], None], *more: Delivery) -> None:
        """Run ``work``, which answers ``delivery`` and ``more``; on an error, answer with the
        error.
        """
        store = self._handler.store
        try:
            with self._handler.frontiers.lock:
                work()
        except SeedError as error:
            if isinstance(error, SeedStoreUnavailable):
                self._on_failure(store, error)
            for call in (delivery, *more):
                self._out.refuse(call, error)
        except Exception as error:  # noqa: BLE001 - logged
            self._break(error, delivery, *more)

    def _break(self, error: Exception, *deliveries: Delivery) -> None:
        """Dead-letter the calls: a redelivery would fail in the same way."""
        logger.error("a call of the seed service has failed", exc_info=error)
        for delivery in deliveries:
            self._out.dead_letter(
                delivery, f"{type(error).__name__}: {error}", code="service_error"
            )

    def _add(self, adds: Sequence[tuple[Delivery, AddSeeds]]) -> None:
        deliveries = [delivery for delivery, _ in adds]
        self._guard(deliveries[0], partial(self._add_all, adds), *deliveries[1:])

    def _add_all(self, adds: Sequence[tuple[Delivery, AddSeeds]]) -> None:
        first = adds[0][1]
        seeds = first.seeds if len(adds) == 1 else [seed for _, call in adds for seed in call.seeds]
        answers = self._handler.add(first.frontier, first.token, seeds, self._now())
        failpoints.hit("seeds.daemon.committed")
        replies = []
        start = 0
        for delivery, call in adds:
            part = answers if len(adds) == 1 else answers[start : start + len(call.seeds)]
            start += len(call.seeds)
            replies.append((delivery, SeedsAdded(answers=part)))
        self._out.reply(replies)
        self._touch(first.frontier)

    def _lease(self, delivery: Delivery, call: LeaseSeeds) -> None:
        name, redelivered = _name(delivery, call), delivery.redelivered or self._is_in_doubt()
        if call.again:
            # If it were answered later, its seeds would have no receiver.
            waiting = self._long_poll.take(call.frontier, call.owner, name)
            self._out.reply([], settled=[earlier.delivery for earlier in waiting])
        answer = self._handler.lease(
            call, name, redelivered=redelivered, now=self._now(), check=self._check_awake
        )
        if answer.seeds or not call.wait_seconds:
            failpoints.hit("seeds.daemon.committed")
            self._out.reply([(delivery, answer)])
            self._reporting.touch(call.frontier)
            return
        waiting_lease = WaitingLease(delivery, call, self._clock.monotonic() + call.wait_seconds)
        if len(self._long_poll) >= MAX_HELD:
            self._out.acknowledge([delivery])
        self._long_poll.park(waiting_lease, answer.next_due)

    def _finish(self, delivery: Delivery, call: FinishSeeds) -> None:
        answer, grabbed = self._handler.finish(call, self._now())
        failpoints.hit("seeds.daemon.committed")
        self._out.reply([(delivery, answer)], grabbed)
        self._touch(call.frontier)

    def _extend(self, delivery: Delivery, call: ExtendLease) -> None:
        self._out.reply([(delivery, self._handler.extend(call, self._now()))])

    def _give_back(self, delivery: Delivery, call: GiveBackLease) -> None:
        answer = self._handler.give_back(call, self._now())
        failpoints.hit("seeds.daemon.committed")
        self._out.reply([(delivery, answer)])
        self._touch(call.frontier)

    def _look_up(self, delivery: Delivery, call: LookUpSeed) -> None:
        self._out.reply([(delivery, self._handler.look_up(call))])

    def _grab(self, delivery: Delivery, call: GrabSeed) -> None:
        asker = f"{delivery.reply_to} {delivery.correlation_id}"
        self._handler.grab(call, asker, self._now())
        failpoints.hit("seeds.daemon.committed")
        # Answered when the seed is finished.
        self._out.reply([], settled=[delivery])
        self._touch(call.frontier)

    def _touch(self, frontier: int) -> None:
        """Note that the frontier has a new pending seed."""
        self._long_poll.wake(frontier)
        self._reporting.touch(frontier)

    # --- waiting leases ---------------------------------------------------------------------------

    def serve_parked(self) -> None:
        """Answer waiting leases that may get seeds, and those whose wait is over."""
        self._long_poll.serve(self._serve, now=self._now(), at=self._clock.monotonic())

    def end(self) -> None:
        """Answer all waiting leases, and empty the long poll."""
        for waiting_lease in self._long_poll.take_all():
            self._serve(waiting_lease, last=True)

    def _serve(self, waiting_lease: WaitingLease, last: bool) -> tuple[bool, int | None]:
        delivery, call = waiting_lease.delivery, waiting_lease.call
        empty: list[int | None] = []

        def work() -> None:
            name = _name(delivery, call)
            doubtful = self._is_in_doubt()
            answer = self._handler.lease(
                call, name, redelivered=doubtful, now=self._now(), check=self._check_awake
            )
            if answer.seeds or last:
                failpoints.hit("seeds.daemon.committed")
                self._out.reply([(delivery, answer)])
                self._reporting.touch(call.frontier)
            else:
                empty.append(answer.next_due)

        self._guard(delivery, work)
        return not empty, empty[0] if empty else None

    def _is_in_doubt(self) -> bool:
        return self._looked_at < self._doubt_until

    def _check_awake(self) -> None:
        """Raise ``SeedCallRefused`` if this process stood still while it had a call."""
        self.look()
        if self._is_in_doubt():
            raise outcome_unknown()

    def _now(self) -> int:
        return int(self._clock.time() * 1000)


def _together(adds: Sequence[tuple[Delivery, AddSeeds]], call: AddSeeds) -> bool:
    first = adds[0][1]
    if (call.frontier, call.token) != (first.frontier, first.token):
        return False
    return sum(len(pair.seeds) for _, pair in adds) + len(call.seeds) <= MAX_SEEDS


def _name(delivery: Delivery, call: LeaseSeeds) -> str:
    return call.call or delivery.correlation_id
