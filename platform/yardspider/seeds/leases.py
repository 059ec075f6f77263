"""Seed leases of a run: prefetched, extended while worked on, given back."""

from __future__ import annotations

import logging
from collections import deque
from typing import Any, Final

from yardkit.protocol import SeedsLeased
from yardkit.seeds import CallRefused
from yardspider.seeds.port import RunFrontier, SeedCounts
from yardspider.seeds.serial_caller import SerialCaller
from yardspider.seeds.task import SeedTask

log = logging.getLogger("yardspider")

# Longest wait of a lease call at the service. A stop waits for its reply, and the seeds of an
# unread reply come back only when their lease expires.
POLL_SECONDS: Final = 1.0
# Leases are extended after this share of their time, at the latest after this many seconds.
_EXTEND_SHARE: Final = 1 / 3
_EXTEND_SECONDS: Final = 60.0


class _Lease:
    """Seeds leased together; exists until all of them have ended."""

    __slots__ = ("begun", "extend_at", "tasks")

    def __init__(self, tasks: list[SeedTask]) -> None:
        self.tasks = set(tasks)
        self.begun = False
        self.extend_at = 0.0


class Leases:
    """Each leased seed leaves in exactly one way: finished, given back, or expired.

    Args:
        ahead: most seeds that are leased and have not begun.
        asking, keeping: callers of their own, for a lease call may wait.
    """

    def __init__(
        self,
        frontier: RunFrontier,
        asking: SerialCaller,
        keeping: SerialCaller,
        counts: SeedCounts,
        *,
        ahead: int,
    ) -> None:
        self._frontier = frontier
        self._asking = asking
        self._keeping = keeping
        self._counts = counts
        self._ahead = ahead
        self._waiting: deque[SeedTask] = deque()
        self._leases: dict[int, _Lease] = {}
        self._giving_back: deque[int] = deque()
        self._ask_at = 0.0
        self._now = 0.0
        # The frontier had nothing due at the last call, and this run has added nothing since.
        self._seen_empty = False
        # Number pending in the frontier, by the last answer; None before the first.
        self.pending: int | None = None

    @property
    def held(self) -> int:
        """Number of leased seeds that have not ended."""
        return sum(len(lease.tasks) for lease in self._leases.values())

    @property
    def busy(self) -> bool:
        """Whether there is work, or the frontier has not been asked."""
        return bool(self._leases) or self._asking.failing or not self._seen_empty

    def take(self) -> SeedTask | None:
        """Return the next seed to work on."""
        if not self._waiting:
            return None
        task = self._waiting.popleft()
        self._leases[task.generation].begun = True
        return task

    def news(self) -> None:
        """Ask again: this run has changed the frontier."""
        self._ask_at = 0.0
        self._seen_empty = False

    def ended(self, task: SeedTask) -> None:
        """Note that the finish of a seed was confirmed."""
        lease = self._leases.get(task.generation)
        if lease is not None:
            lease.tasks.discard(task)
            if not lease.tasks:
                del self._leases[task.generation]

    # --- asking for seeds ---------------------------------------------------------------------

    def step(self, now: float, *, more: bool) -> None:
        """Lease seeds if ``more`` are wanted, and extend leases. Raises ``RunFailed``."""
        self._now = now
        self._asking.step(now)
        self._keeping.step(now)
        wanted = self._ahead - len(self._waiting)
        # Half of it at once: a call for each seed would cost more than the seed.
        if more and not self._asking.busy and now >= self._ask_at and 2 * wanted >= self._ahead:
            self._asking.start(
                lambda: self._frontier.lease(wanted, seconds=0.0, wait_seconds=POLL_SECONDS),
                self._leased,
            )
        if not self._keeping.busy:
            self._keep(now)

    def next_wake(self) -> list[float]:
        """Return when ``step`` has something to do."""
        times = [caller.next_wake() for caller in (self._asking, self._keeping)]
        known = [time for time in times if time is not None]
        if not self._asking.busy:
            known.append(self._ask_at)
        if not self._keeping.busy:
            known += [lease.extend_at for lease in self._leases.values()]
        return known

    def _leased(self, answer: SeedsLeased) -> None:
        self.pending = answer.pending
        self._seen_empty = not answer.seeds
        if not answer.seeds:
            self._ask_at = self._now + self._frontier.pause_seconds
            return
        tasks = [SeedTask(seed, answer.generation) for seed in answer.seeds]
        self._counts.leased += len(tasks)
        self._waiting.extend(tasks)
        lease = self._leases[answer.generation] = _Lease(tasks)
        self._plan_extension(lease, answer.deadline)

    # --- keeping them -------------------------------------------------------------------------

    def _plan_extension(self, lease: _Lease, deadline: int) -> None:
        seconds = max(0.0, (deadline - self._frontier.now()) / 1000)
        lease.extend_at = self._now + min(seconds * _EXTEND_SHARE, _EXTEND_SECONDS)

    def _keep(self, now: float) -> None:
        if self._giving_back:
            self._start_giving_back(self._giving_back[0])
            return
        for generation, lease in self._leases.items():
            if now >= lease.extend_at:
                self._start_extending(generation)
                return

    def _start_extending(self, generation: int) -> None:
        def extended(deadline: int) -> None:
            lease = self._leases.get(generation)
            if lease is not None:
                self._plan_extension(lease, deadline)

        self._keeping.start(
            lambda: self._frontier.extend(generation, seconds=0.0),
            extended,
            lambda refusal: self._lost(generation, refusal),
        )

    def _lost(self, generation: int, refusal: CallRefused) -> None:
        """Drop the seeds of an expired lease that have not begun.

        Work on the others goes on: their finish is answered as late, and counted then.
        """
        lease = self._leases.get(generation)
        if lease is None:
            return
        log.warning("the lease %d of %d seeds is over: %s", generation, len(lease.tasks), refusal)
        gone = {task for task in self._waiting if task.generation == generation}
        self._waiting = deque(task for task in self._waiting if task not in gone)
        self._counts.late += len(gone)
        lease.tasks -= gone
        lease.extend_at = float("inf")
        if not lease.tasks:
            del self._leases[generation]

    # --- giving back --------------------------------------------------------------------------

    def give_back_unbegun(self) -> None:
        """Give back every lease of which no seed has begun."""
        for generation, lease in self._leases.items():
            if not lease.begun and generation not in self._giving_back:
                self._giving_back.append(generation)
                self._waiting = deque(
                    task for task in self._waiting if task.generation != generation
                )
                lease.extend_at = float("inf")

    def _start_giving_back(self, generation: int) -> None:
        def given_back(_: Any) -> None:
            lease = self._leases.pop(generation, None)
            self._counts.given_back += len(lease.tasks) if lease is not None else 0
            self._giving_back.popleft()

        def refused(refusal: CallRefused) -> None:
            lease = self._leases.pop(generation, None)
            self._counts.late += len(lease.tasks) if lease is not None else 0
            self._giving_back.popleft()
            log.warning("the lease %d could not be given back: %s", generation, refusal)

        self._keeping.start(lambda: self._frontier.give_back(generation), given_back, refused)

    async def wait_for_reply(self) -> None:
        """Wait until no lease call is under way. Raises ``RunFailed``."""
        await self._asking.settle()

    async def give_back_all(self, now: float) -> None:
        """Give back all that is left. Raises ``RunFailed``."""
        self._waiting.clear()
        for generation, lease in self._leases.items():
            lease.extend_at = float("inf")
            if generation not in self._giving_back:
                self._giving_back.append(generation)
        await self._keeping.settle()
        while self._giving_back:
            self._keep(now)
            await self._keeping.settle()
