"""From the runs' batches to the agents' queues. The hot path: no database in it."""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from random import Random

from apps.agents.center.liveness import Liveness
from yardkit import failpoints, topology
from yardkit.broker import Broker, BrokerClosed, Delivery, Outgoing, Subscription
from yardkit.broker.outgoing import check_name
from yardkit.clock import Clock
from yardkit.protocol import (
    CenterCounters,
    DownloadBatch,
    DownloadCommand,
    ProtocolError,
    RequestItem,
    Skipped,
    decode,
    encode,
)
from yardkit.tokens import verify_run_token

logger = logging.getLogger(__name__)

# A command is one message; small enough that two agents share a burst evenly.
ITEMS_PER_COMMAND = 50
TAKE = 200
# A run that seems to have no agents is looked up again, but not for each of its batches.
LOAD_AGAIN_SECONDS = 1.0
# After a failed look-up nothing is looked up: each attempt may hold the thread up for seconds.
LOAD_PAUSE_SECONDS = 2.0


class AllocationsUnavailable(Exception):
    """Who serves a run cannot be read just now; the text says why."""


@dataclass(slots=True)
class RunEntry:
    """What the center keeps in memory of one run.

    ``boot`` names its counters: one that was forgotten and comes back counts from 0 again, which
    under the old name would look like an old report.
    """

    run: int
    boot: str
    agents: tuple[str, ...] = ()
    why_none: str = ""
    # None until a batch has shown the right one: no token at all must not match it.
    token: str | None = None
    counters: dict[str, int] = field(
        default_factory=lambda: {"received": 0, "dispatched": 0, "skipped": 0, "expired": 0}
    )
    seq: int = 0
    changed: bool = False
    used_at: float = 0.0
    loaded_at: float | None = None


class Dispatcher:
    """One thread that moves requests.

    Args:
        load: asks the database for a run that seems to have no agents; raises
            ``AllocationsUnavailable``. What it said is kept fresh by ``refresh``.
    """

    def __init__(
        self,
        *,
        broker: Broker,
        liveness: Liveness,
        load: Callable[[int], tuple[str, ...]],
        secret: str,
        boot: str,
        clock: Clock,
    ) -> None:
        self.broker = broker
        self.liveness = liveness
        self.load = load
        self.secret = secret
        self.boot = boot
        self.clock = clock
        self.refused = 0
        self._lock = threading.Lock()
        self._runs: dict[int, RunEntry] = {}
        self._numbers = itertools.count(1)
        self._load_at = 0.0
        self._random = Random()  # noqa: S311 - spreading load is no secret
        self._subscription: Subscription | None = None

    def open(self) -> None:
        """Start consuming."""
        self._subscription = self.broker.subscribe(topology.CENTER_REQUESTS.name, prefetch=TAKE)

    def close(self) -> None:
        """Stop consuming; what is not dispatched goes back to the queue."""
        if self._subscription is not None:
            self._subscription.close()

    def set_allocation(self, run: int, agents: Sequence[str]) -> None:
        """Called when this center has allocated a run."""
        with self._lock:
            entry = self._find(run)
            entry.agents = tuple(agents)
            entry.loaded_at = self.clock.monotonic()

    def known(self) -> list[int]:
        """The runs whose agents are in memory."""
        with self._lock:
            return list(self._runs)

    def refresh(self, allocations: Mapping[int, tuple[str, ...]], runs: Iterable[int]) -> None:
        """Take over what the database says of ``runs``; one left out has no agents any more.

        Another center may have allocated the run anew, released it or added an agent to it.
        """
        with self._lock:
            for run in runs:
                if run in self._runs:
                    self._runs[run].agents = allocations.get(run, ())

    def step(self, timeout: float) -> int:
        """Take what waits, regroup it per agent, publish it; the number of batches taken."""
        assert self._subscription is not None  # noqa: S101 - open() comes first
        deliveries = self._subscription.take(TAKE, timeout=timeout)
        groups: dict[tuple[str, int, str], list[RequestItem]] = {}
        skipped: list[Outgoing] = []
        taken: list[Delivery] = []
        for delivery in deliveries:
            batch = self._read(delivery)
            if batch is not None:
                taken.append(delivery)
                self._sort(batch, groups, skipped)
        if taken:
            self._publish(groups, skipped, taken)
        return len(deliveries)

    def drain_counters(self) -> list[CenterCounters]:
        """Absolute counters of every run that changed since the last call."""
        with self._lock:
            changed = [entry for entry in self._runs.values() if entry.changed]
            answer = []
            for entry in changed:
                entry.changed = False
                entry.seq += 1
                answer.append(
                    CenterCounters(run=entry.run, boot=entry.boot, seq=entry.seq, **entry.counters)
                )
        return answer

    def report_again(self, counters: Iterable[CenterCounters]) -> None:
        """These did not arrive: the next ``drain_counters`` brings what they stand at then."""
        with self._lock:
            for lost in counters:
                entry = self._runs.get(lost.run)
                if entry is not None and entry.boot == lost.boot:
                    entry.changed = True

    def forget_idle(self, seconds: float) -> None:
        """Drop runs nobody has asked for in so long."""
        limit = self.clock.monotonic() - seconds
        with self._lock:
            self._runs = {
                run: entry
                for run, entry in self._runs.items()
                if entry.used_at > limit or entry.changed
            }

    def _read(self, delivery: Delivery) -> DownloadBatch | None:
        """The batch, or None when it was refused to the dead letters."""
        try:
            message = decode(delivery.body)
        except ProtocolError as error:
            self._refuse(delivery, str(error))
            return None
        if not isinstance(message, DownloadBatch):
            self._refuse(delivery, f"{type(message).__name__} is no download batch")
            return None
        try:
            check_name("a queue", message.reply_to)
        except ValueError as error:
            self._refuse(delivery, f"reply_to: {error}")
            return None
        # Checking a signature costs; the same token again is the same answer.
        known = self._runs.get(message.run)
        if known is not None and known.token == message.token:
            return message
        if not verify_run_token(self.secret, message.run, message.token):
            self._refuse(delivery, f"the token is not that of run {message.run}")
            return None
        self._entry(message.run).token = message.token
        return message

    def _refuse(self, delivery: Delivery, reason: str) -> None:
        self.refused += 1
        logger.warning("refused a message of %s: %s", delivery.queue, reason)
        assert self._subscription is not None  # noqa: S101 - a delivery came from it
        self._subscription.dead_letter(delivery, reason)

    def _entry(self, run: int) -> RunEntry:
        now = self.clock.monotonic()
        with self._lock:
            entry = self._find(run)
            # From here on it cannot be forgotten while it is in use.
            entry.used_at = now
        old = entry.loaded_at is None or now - entry.loaded_at >= LOAD_AGAIN_SECONDS
        if not entry.agents and old and now >= self._load_at:
            self._load(entry)
        return entry

    def _find(self, run: int) -> RunEntry:
        entry = self._runs.get(run)
        if entry is None:
            boot = f"{self.boot}-{next(self._numbers)}"
            entry = RunEntry(run, boot, used_at=self.clock.monotonic())
            self._runs[run] = entry
        return entry

    def _load(self, entry: RunEntry) -> None:
        try:
            agents = self.load(entry.run)
        except AllocationsUnavailable as error:
            entry.why_none = f"the center cannot look up the run's agents: {error}"
            self._load_at = self.clock.monotonic() + LOAD_PAUSE_SECONDS
            return
        with self._lock:
            entry.agents = agents
            entry.why_none = ""
            entry.loaded_at = self.clock.monotonic()

    def _sort(
        self,
        batch: DownloadBatch,
        groups: dict[tuple[str, int, str], list[RequestItem]],
        skipped: list[Outgoing],
    ) -> None:
        entry = self._entry(batch.run)
        count = len(batch.items)
        if self.clock.time() - batch.sent_at > topology.DOWNLOAD_EXPIRES_SECONDS:
            self._count(entry, count, "expired")
            return
        agents = entry.agents
        alive = [agent for agent in agents if self.liveness.is_alive(agent)]
        if not alive:
            self._count(entry, count, "skipped")
            none = entry.why_none or "no agents are allocated to the run"
            skipped.append(_skip(batch, "none of the run's agents is alive" if agents else none))
            return
        self._count(entry, count, "dispatched")
        if len(alive) == 1:
            groups.setdefault((alive[0], batch.run, batch.reply_to), []).extend(batch.items)
            return
        for item, agent in zip(batch.items, self._random.choices(alive, k=count), strict=True):
            groups.setdefault((agent, batch.run, batch.reply_to), []).append(item)

    def _count(self, entry: RunEntry, count: int, fate: str) -> None:
        # In one piece: a report between the two would never be corrected after the last batch.
        with self._lock:
            entry.counters["received"] += count
            entry.counters[fate] += count
            entry.changed = True

    def _publish(
        self,
        groups: dict[tuple[str, int, str], list[RequestItem]],
        skipped: list[Outgoing],
        taken: list[Delivery],
    ) -> None:
        now = self.clock.time()
        outgoing = skipped
        for (agent, run, reply_to), items in groups.items():
            for start in range(0, len(items), ITEMS_PER_COMMAND):
                command = DownloadCommand(
                    run=run,
                    reply_to=reply_to,
                    items=items[start : start + ITEMS_PER_COMMAND],
                    dispatched_at=now,
                )
                outgoing.append(
                    Outgoing(
                        body=encode(command),
                        key=topology.agent_commands(agent).name,
                        ttl_seconds=topology.DOWNLOAD_EXPIRES_SECONDS,
                        persistent=False,
                    )
                )
        failpoints.hit("center.before_dispatch")
        future = self.broker.publish(outgoing)
        future.add_done_callback(lambda done: self._dispatched(done, taken))

    def _dispatched(self, done: Future[None], taken: list[Delivery]) -> None:
        """Confirmed, or given up: either way the run's own time-out is the net, so ack."""
        error = done.exception()
        if error is not None:
            logger.warning("a dispatch did not arrive: %s", error)
        try:
            if self._subscription is not None:
                self._subscription.ack(taken)
        except BrokerClosed:
            return


def _skip(batch: DownloadBatch, reason: str) -> Outgoing:
    message = Skipped(
        run=batch.run, reason=reason, items=[(item.id, item.attempt) for item in batch.items]
    )
    return Outgoing(body=encode(message), key=batch.reply_to, persistent=False, ttl_seconds=60)
