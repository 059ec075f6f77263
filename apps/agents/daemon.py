"""The center: registers agents, allocates them to runs, and dispatches requests."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from typing import Final

from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import connection, connections
from django.db.utils import DataError, IntegrityError

from apps.agents.center.commands import InvalidControlMessage, log_failure, settle, to_agent, to_run
from apps.agents.center.pending_counters import (
    ALLOCATIONS_EXPIRED,
    HEARTBEATS_MISSED,
    PendingCounters,
    report_runs,
)
from apps.agents.center.politeness.shares import HostShares
from apps.agents.center.threads import CenterThreadDied
from apps.agents.center.workers import Workers
from apps.agents.engine.owners import owner_of
from apps.agents.errors import AllocationRefused, NoAgentFree
from apps.agents.hosts.host_keeper import HostKeeper, default_limits, host_shares
from apps.agents.models import Agent, Allocation
from apps.agents.queries import (
    all_open_allocations,
    allocation_stamps,
    heartbeats_heard,
    last_heard,
    late_joins,
    open_allocation,
    open_allocations,
)
from apps.agents.services import (
    allocate,
    allocation_commands,
    join_run,
    register_agent,
    release,
    release_commands,
    release_ended,
    store_heartbeats,
)
from apps.agents.services.lookups import load
from apps.runtime.errors import DATABASE_AWAY
from apps.runtime.services.objects import shared_objects
from yardkit import failpoints, topology
from yardkit.broker import Broker, BrokerError, Delivery, Outgoing, Subscription, drain
from yardkit.broker.gateway import sender_problem
from yardkit.broker.outgoing import check_name
from yardkit.clock import Clock
from yardkit.errors import first_line
from yardkit.outage import Outage
from yardkit.protocol import Allocate, Allocated, AnyMessage, Register, Release, decode
from yardkit.shared_queues import declare_shared
from yardkit.timers import Timers
from yardkit.tokens import verify_run_token

logger = logging.getLogger(__name__)

SAVE_HEARTBEATS_SECONDS: Final = 1.0
REPORT_SECONDS: Final = 1.0
REFRESH_SECONDS: Final = 5.0
RULES_SECONDS: Final = 0.5
SAVE_HOSTS_SECONDS: Final = 1.0
SWEEP_SECONDS: Final = 15.0
FORGET_SECONDS: Final = 600.0
# An agent that started during an allocation is added to it by the sweep.
JOIN_SECONDS: Final = 120.0
# A run may be quicker than the first registration: wait this long before refusing it.
WAIT_FOR_AGENTS_SECONDS: Final = 10.0
RETRY_PENDING_SECONDS: Final = 0.25
POLL_SECONDS: Final = 0.05
TAKE: Final = 500
CONFIRM_SECONDS: Final = 2.0
# Agents with unstorable heartbeats that are logged once; beyond, some are logged again.
MOST_LOGGED: Final = 1000


class CenterDaemon:
    """The main thread answers allocations and saves heartbeats; others dispatch and listen.

    Only the main thread waits for the database, so that an outage stops neither the dispatch for
    known runs nor the liveness of agents.

    Args:
        shares: store through which the centers share hosts; by the settings if None.
    """

    def __init__(
        self,
        *,
        broker: Broker,
        name: str,
        incarnation: str,
        clock: Clock,
        shares: HostShares | None = None,
    ) -> None:
        self.broker = broker
        self.clock = clock
        self.name = name
        self.tallies = PendingCounters(
            broker=broker, name=name, incarnation=incarnation, clock=clock
        )
        self.workers = Workers(
            broker=broker,
            name=name,
            incarnation=incarnation,
            secret=settings.SECRET_KEY,
            load=load,
            shares=shares or host_shares(),
            limits=default_limits(),
            clock=clock,
            open_store=shared_objects,
            count=self.tallies.add,
            at_end=connections.close_all,
        )
        self.liveness, self.runs = self.workers.liveness, self.workers.runs
        self.dispatcher, self.gate = self.workers.dispatcher, self.workers.gate
        self.hosts = HostKeeper(gate=self.gate, center=name, clock=clock)
        self._pending: dict[str, tuple[float, Delivery]] = {}
        self._timers = Timers(lambda: self.clock.monotonic())
        self._stamps: dict[int, tuple[int, int]] = {}
        self._unstorable: set[str] = set()
        self._subscriptions: list[Subscription] = []
        # While it lasts, nothing that needs the database is taken from the queues.
        self._outage = Outage(logger, "the center's work with the database", longest=2.0)
        self._database_at = 0.0
        self._pause = threading.Event()

    # --- life -----------------------------------------------------------------------------------

    def setup(self) -> None:
        """Declare, subscribe, start the threads."""
        declare_shared(self.broker)
        self.workers.declare()
        self.liveness.restore(last_heard(self.clock.now()), heartbeats_heard())
        # Before the first batch: the dispatch must not look up each run by itself.
        for allocation in all_open_allocations().values():
            self.runs.set_allocation(allocation)
        self._open()

    def _open(self) -> None:
        try:
            self._control = self._subscribe(topology.CENTER_CONTROL.name, prefetch=50)
            self._register = self._subscribe(topology.CENTER_REGISTER.name, prefetch=50)
            self.workers.open()
        except BaseException:
            # It is tried again: a subscription left behind would keep its deliveries.
            self._close()
            raise

    def _subscribe(self, queue: str, *, prefetch: int) -> Subscription:
        subscription = self.broker.subscribe(queue, prefetch=prefetch)
        self._subscriptions.append(subscription)
        return subscription

    def _close(self) -> None:
        """Release everything; unsettled messages return to their queues."""
        self.workers.close()
        while self._subscriptions:
            self._subscriptions.pop().close()
        self._pending.clear()

    def step(self) -> bool:
        """Process control messages and whatever is due."""
        self._check_threads()
        worked = 0
        if self.clock.monotonic() < self._database_at:
            self._pause.wait(POLL_SECONDS)
        else:
            try:
                worked = self._work()
            except DATABASE_AWAY as error:
                self._database_at = self.clock.monotonic() + self._outage.failed(error)
                # After a restart of the server, the open connection only fails.
                connection.close()
        self._when_due("report", REPORT_SECONDS, self._report)
        return worked > 0

    def teardown(self) -> None:
        """Stop dispatching and report the last counters."""
        try:
            self._drain()
        finally:
            self._close()
        self._report(ending=True)

    def _drain(self) -> None:
        """Process what was received, so that it is not redelivered to the next center."""
        handlers = (self._on_control, self._on_register)
        for subscription, handle in zip(self._subscriptions, handlers, strict=False):
            with contextlib.suppress(*DATABASE_AWAY, BrokerError):
                for deliveries in drain(subscription, seconds=1.0):
                    self._settle(subscription, deliveries, handle)

    def _check_threads(self) -> None:
        error = self.workers.error()
        if error is not None:
            self._close()
            self._open()
            raise CenterThreadDied(str(error)) from error

    def _work(self) -> int:
        if self._outage.lasting:
            Agent.objects.exists()
            self._outage.recovered()
        registrations = self._register.take(TAKE)
        worked = self._settle(self._register, registrations, self._on_register)
        questions = self._control.take(TAKE, timeout=POLL_SECONDS)
        worked += self._settle(self._control, questions, self._on_control)
        self._when_due("pending", RETRY_PENDING_SECONDS, self._retry_pending)
        self._when_due("heartbeats", SAVE_HEARTBEATS_SECONDS, self._save_heartbeats)
        self._when_due("rules", RULES_SECONDS, self.hosts.refresh_rules)
        self._when_due("hosts", SAVE_HOSTS_SECONDS, self.hosts.save_states)
        self._when_due("refresh", REFRESH_SECONDS, self._refresh)
        self._when_due("sweep", SWEEP_SECONDS, self._sweep)
        return worked

    def _when_due(self, name: str, every: float, action: Callable[[], None]) -> None:
        if self._timers.due(name, every):
            action()

    # --- messages -------------------------------------------------------------------------------

    def _settle(
        self,
        subscription: Subscription,
        deliveries: Sequence[Delivery],
        handle: Callable[[Delivery, AnyMessage], None],
    ) -> int:
        for position, delivery in enumerate(deliveries):
            try:
                self._handle(subscription, delivery, handle)
            except BaseException:
                # Taken and not settled, they would occupy the prefetch window.
                subscription.requeue(deliveries[position:])
                raise
        return len(deliveries)

    def _handle(
        self,
        subscription: Subscription,
        delivery: Delivery,
        handle: Callable[[Delivery, AnyMessage], None],
    ) -> None:
        """Process one message; dead-letter it with the reason if it is unusable."""
        try:
            handle(delivery, decode(delivery.body))
        except (*DATABASE_AWAY, BrokerError):
            raise
        except ValidationError as error:
            reason = "; ".join(error.messages)
        except (InvalidControlMessage, ValueError, OverflowError, DataError) as error:
            reason = first_line(error)
        except Exception as error:  # the loop's last guard: one message must not stop the center
            # Bad data, or a defect; once more in case it was transient, but not without end.
            logger.exception("a message of %s cannot be handled", delivery.queue)
            if not delivery.redelivered:
                subscription.requeue([delivery])
                return
            reason = f"{type(error).__name__}: {first_line(error)}"
        else:
            return
        logger.warning("refused a message of %s: %s", delivery.queue, reason)
        subscription.dead_letter(delivery, reason)

    def _on_register(self, delivery: Delivery, message: AnyMessage) -> None:
        if not isinstance(message, Register):
            raise InvalidControlMessage(f"{type(message).__name__} is no registration")
        # An agent that started and died while no center ran must not look alive.
        age = max(0.0, self.clock.time() - message.sent_at) if message.sent_at else 0.0
        now = self.clock.now()
        agent, serves = register_agent(message=message, now=now, age_seconds=age)
        failpoints.hit("center.registered")
        self.liveness.seen(message.agent, age)
        commands = [each for serve in serves for each in self._commands_for(serve, [agent])]
        self._send(commands, self._register, delivery)
        logger.info("agent %s (%s) registered", message.agent, message.name)

    def _on_control(
        self, delivery: Delivery, message: AnyMessage, deadline: float | None = None
    ) -> None:
        if not isinstance(message, Allocate | Release):
            raise InvalidControlMessage(f"{type(message).__name__} is no control message")
        if not verify_run_token(settings.SECRET_KEY, message.run, message.token):
            raise InvalidControlMessage(f"the token is not that of run {message.run}")
        reply_to = message.reply_to if isinstance(message, Allocate) else ""
        flaw = sender_problem(delivery, run=message.run, reply_to=reply_to)
        if flaw:
            raise InvalidControlMessage(flaw)
        if isinstance(message, Release):
            released = release(owner=owner_of(message.run), now=self.clock.now())
            self.gate.drop(message.run)
            self._send(_releases(released), self._control, delivery)
            return
        check_name("a queue", message.reply_to)
        if deadline is None:
            age = self.clock.time() - message.sent_at if message.sent_at else 0.0
            if age > topology.ALLOCATE_EXPIRES_SECONDS:
                self._expire(message, delivery, age)
                return
            deadline = self.clock.monotonic() + WAIT_FOR_AGENTS_SECONDS
        self._allocate(message, delivery, deadline)

    def _expire(self, message: Allocate, delivery: Delivery, age: float) -> None:
        """Drop an expired question, with an answer that says why."""
        self.tallies.add(ALLOCATIONS_EXPIRED)
        logger.warning("run %s asked for agents %.0f s ago, dropped", message.run, age)
        error = (
            f"the center got the question {age:.0f} s after it was asked; if it was not away, the"
            " clocks of the two hosts differ"
        )
        answer = Allocated(run=message.run, agents=[], error=error)
        self._send([to_run(message.reply_to, answer)], self._control, delivery)

    def _allocate(self, message: Allocate, delivery: Delivery, deadline: float) -> None:
        commands: list[Outgoing] = []
        try:
            allocation = self._choose(message)
        except AllocationRefused as refusal:
            if isinstance(refusal, NoAgentFree) and self.clock.monotonic() < deadline:
                self._postpone(message.reply_to, deadline, delivery)
                return
            answer = Allocated(run=message.run, agents=[], error=str(refusal))
        else:
            failpoints.hit("center.allocated")
            agents = list(allocation.agents.all())
            # Requests of an earlier execution of the run have no listener any more.
            self.gate.drop(message.run, keep_reply_to=message.reply_to)
            known = open_allocation(message.run)
            if known is not None:
                self.runs.set_allocation(known)
            names = [agent.agent_id for agent in agents]
            answer = Allocated(run=message.run, agents=names, warning=allocation.warning)
            commands = self._commands_for(allocation, agents)
        # The answer first: the run must know its agents before the first one reports.
        self._send([to_run(message.reply_to, answer), *commands], self._control, delivery)
        logger.info("run %s: agents %s", message.run, ", ".join(answer.agents) or answer.error)

    def _postpone(self, reply_to: str, deadline: float, delivery: Delivery) -> None:
        """Keep the question of a run until an agent is there, or the deadline.

        A run repeats its question when the broker's confirm is late. Only the latest delivery is
        kept: an unacknowledged one occupies a place of the prefetch window.
        """
        earlier = self._pending.get(reply_to)
        if earlier is not None:
            deadline = min(deadline, earlier[0])
            self._control.ack([earlier[1]])
        self._pending[reply_to] = (deadline, delivery)

    def _commands_for(self, allocation: Allocation, agents: Sequence[Agent]) -> list[Outgoing]:
        commands = allocation_commands(allocation, agents, self.clock.time())
        return [to_agent(agent, command) for agent, command in commands]

    def _choose(self, message: Allocate) -> Allocation:
        alive, now = self.liveness.alive(), self.clock.now()
        try:
            return allocate(message=message, alive=alive, now=now)
        except IntegrityError:
            # Another center has just allocated this run: that allocation is found now.
            return allocate(message=message, alive=alive, now=now)

    def _retry_pending(self) -> None:
        """Try again for runs that wait for an agent."""
        for reply_to in list(self._pending):
            deadline, delivery = self._pending.pop(reply_to)
            try:
                self._handle(self._control, delivery, partial(self._on_control, deadline=deadline))
            except BaseException:
                self._pending[reply_to] = (deadline, delivery)
                raise

    def _send(
        self, messages: Sequence[Outgoing], subscription: Subscription, delivery: Delivery
    ) -> None:
        """Publish and acknowledge ``delivery`` after the confirm; else it comes again."""
        self.broker.publish(messages).add_done_callback(partial(settle, subscription, delivery))

    # --- what is due now and then ---------------------------------------------------------------

    def _save_heartbeats(self) -> None:
        latest = self.liveness.take_unsaved()
        if not latest:
            return
        try:
            refused = store_heartbeats(latest=latest, now=self.clock.now())
        except DATABASE_AWAY:
            self.liveness.put_back(latest)
            raise
        for agent in refused.keys() - self._unstorable:
            logger.warning("the heartbeats of agent %s cannot be stored: %s", agent, refused[agent])
        full = len(self._unstorable) >= MOST_LOGGED
        self._unstorable = set(refused) if full else self._unstorable | refused.keys()

    def _report(self, *, ending: bool = False) -> None:
        self.tallies.add(HEARTBEATS_MISSED, self.liveness.take_missed())
        self.tallies.report(ending=ending)
        report_runs(self.runs, self.broker)

    def _refresh(self) -> None:
        """Load what other centers have allocated, released or added."""
        runs = self.runs.known()
        if not runs:
            return
        stamps = allocation_stamps(runs)
        changed = [run for run in runs if self._stamps.get(run) != stamps.get(run)]
        opened = open_allocations(changed)
        found = {run: opened.get(run) for run in changed}
        self.runs.refresh({run: one for run, one in found.items() if one}, changed)
        for run, one in found.items():
            if one is None and run in self._stamps:
                self.gate.drop(run)
        self._stamps = stamps

    def _sweep(self) -> None:
        released = release_ended(now=self.clock.now())
        if released:
            self.broker.publish(_releases(released)).add_done_callback(log_failure)
        self._join_late()
        self.hosts.sweep()
        self.runs.forget_idle(FORGET_SECONDS)
        self.liveness.forget_silent(FORGET_SECONDS)

    def _join_late(self) -> None:
        since = self.clock.now() - timedelta(seconds=JOIN_SECONDS)
        for agent, allocation in late_joins(self.liveness.alive(), since):
            # First the command, then the row: a lost command would not be repeated.
            self.broker.publish(self._commands_for(allocation, [agent])).result(CONFIRM_SECONDS)
            join_run(allocation=allocation, agent=agent)


def _releases(allocations: Sequence[Allocation]) -> list[Outgoing]:
    return [to_agent(agent, command) for agent, command in release_commands(allocations)]
