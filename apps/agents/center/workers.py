"""Threads of the center: heartbeats, dispatch, addresses of objects, politeness, shares."""

from __future__ import annotations

from collections.abc import Callable

from apps.agents.center.addresses import AddressIssuer
from apps.agents.center.dispatcher import BatchDispatcher
from apps.agents.center.gate import PolitenessGate
from apps.agents.center.heartbeats import HeartbeatListener
from apps.agents.center.liveness import Liveness
from apps.agents.center.politeness.limits import Defaults, HostRules
from apps.agents.center.politeness.shares import HostShares
from apps.agents.center.runs import OpenAllocation, RunTable
from apps.agents.center.share_keeper import ShareKeeper
from apps.agents.center.threads import StepThread
from yardkit import topology
from yardkit.broker import Broker, Subscription
from yardkit.clock import Clock
from yardkit.objects import ObjectStore

JOIN_SECONDS = 2.0
HEARTBEAT_PREFETCH = 2000


class Workers:
    """The parts of a center that must not wait for its main thread.

    Args:
        load: reads the allocation of a run from the database, see ``RunTable``.
        shares: store through which centers share hosts.
        limits: defaults for hosts without a rule.
        open_store: returns the object store whose addresses are handed out.
        count: adds to a counter of this center.
        at_end: called at the end of each thread that may have used the database.
    """

    def __init__(
        self,
        *,
        broker: Broker,
        name: str,
        incarnation: str,
        secret: str,
        load: Callable[[int], OpenAllocation | None],
        shares: HostShares,
        limits: Defaults,
        clock: Clock,
        open_store: Callable[[], ObjectStore],
        count: Callable[[str, int], None],
        at_end: Callable[[], None],
    ) -> None:
        self.liveness = Liveness(clock.monotonic)
        self.runs = RunTable(
            liveness=self.liveness, load=load, incarnation=incarnation, clock=clock
        )
        self.gate = PolitenessGate(
            broker=broker,
            runs=self.runs,
            name=name,
            rules=HostRules(limits),
            ask=lambda asks: self.keeper.ask(asks),
            clock=clock,
        )
        self.keeper = ShareKeeper(
            shares=shares, center=name, granted=self.gate.granted, now=clock.monotonic
        )
        self.dispatcher = BatchDispatcher(
            broker=broker, runs=self.runs, gate=self.gate, secret=secret, clock=clock
        )
        self.addresses = AddressIssuer(
            broker=broker, runs=self.runs, secret=secret, open_store=open_store, count=count
        )
        self._broker = broker
        self._heartbeats = topology.center_heartbeats(name)
        self._at_end = at_end
        self._threads: list[StepThread] = []
        self._subscription: Subscription | None = None

    def declare(self) -> None:
        """Declare the queues of the threads."""
        self._broker.declare(self._heartbeats)
        self._broker.declare_exchange(topology.HEARTBEATS, "fanout")
        self._broker.bind(self._heartbeats.name, topology.HEARTBEATS)

    def open(self) -> None:
        """Subscribe and start. After an error, ``close`` releases what was opened."""
        self._subscription = self._broker.subscribe(
            self._heartbeats.name, prefetch=HEARTBEAT_PREFETCH
        )
        listener = HeartbeatListener(self._subscription, self.liveness)
        self.gate.open()
        self.dispatcher.open()
        self.addresses.open()
        self._threads = [
            StepThread("heartbeats", listener.step),
            StepThread("dispatch", self.dispatcher.step, drains=True, at_end=self._at_end),
            StepThread("addresses", self.addresses.step, at_end=self._at_end),
            StepThread("politeness", self.gate.step, at_end=self._at_end),
            StepThread("shares", self.keeper.step, at_end=self._at_end),
        ]
        for thread in self._threads:
            thread.start()

    def error(self) -> Exception | None:
        """Return the error that ended a thread, if any."""
        return next((thread.error for thread in self._threads if thread.error), None)

    def close(self) -> None:
        """Stop all threads: dispatch what was received, return held requests and shares."""
        self.dispatcher.take_no_more()
        for thread in self._threads:
            thread.ask_to_stop()
        self.gate.close()
        self.keeper.wake()
        if self._subscription is not None:
            self._subscription.close()
        while self._threads:
            self._threads.pop().join(JOIN_SECONDS)
        self.dispatcher.close()
        self.addresses.close()
        self.gate.give_up()
        self.keeper.leave()
