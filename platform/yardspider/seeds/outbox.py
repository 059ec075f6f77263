"""Outgoing calls of a run to its frontier: added seeds and finishes, in batches."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Generator, Sequence
from typing import Any, Final

from yardkit.protocol import Seed, SeedAnswer, SeedFinished, SeedsFinished, SeedState
from yardkit.seeds import seed_bytes
from yardspider.seeds.port import RunFrontier, SeedCounts
from yardspider.seeds.serial_caller import SerialCaller
from yardspider.seeds.task import SeedTask

log = logging.getLogger("yardspider")

CALL_SEEDS: Final = 2048
_CALL_BYTES: Final = 2 * 1024 * 1024
_CALL_FINISHES: Final = 500
# From this number of unconfirmed seeds on, no new page is requested.
CROWDED: Final = 10_000
_TOLD_REFUSALS: Final = 10
_ENDED: Final = {
    SeedState.SUCCEEDED: "succeeded",
    SeedState.FAILED: "failed",
    SeedState.IGNORED: "ignored",
}


class PendingSeeds:
    """Seeds being added. Await it for the service's answers, in order."""

    __slots__ = ("_answers", "_waiters", "_wanted")

    def __init__(self, wanted: int) -> None:
        self._wanted = wanted
        self._answers: list[SeedAnswer] = []
        self._waiters: list[asyncio.Future[None]] = []

    @property
    def done(self) -> bool:
        """Whether all of them are answered."""
        return len(self._answers) >= self._wanted

    def answered(self, answer: SeedAnswer) -> None:
        """Note the answer for the next one."""
        self._answers.append(answer)
        if self.done:
            for waiter in self._waiters:
                if not waiter.done():
                    waiter.set_result(None)

    def __await__(self) -> Generator[Any, None, list[SeedAnswer]]:
        if not self.done:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            yield from waiter
        return self._answers


class SeedOutbox:
    """Keeps added seeds and finishes until the service has confirmed them.

    Added seeds go before finishes, so the seeds added before a finish are confirmed first: a
    process that is killed in between loses none.

    Args:
        before_finish: makes items durable; called before seeds are finished.
        ended: called with each seed whose finish was confirmed.
        news: called when the frontier has something new in it.
    """

    def __init__(
        self,
        frontier: RunFrontier,
        caller: SerialCaller,
        counts: SeedCounts,
        *,
        before_finish: Callable[[], None],
        ended: Callable[[SeedTask], None],
        news: Callable[[], None],
    ) -> None:
        self._frontier = frontier
        self._caller = caller
        self._counts = counts
        self._before_finish = before_finish
        self._ended = ended
        self._news = news
        self._adds: deque[tuple[Seed, PendingSeeds | None]] = deque()
        self._finishes: deque[SeedTask] = deque()
        self._refusals = 0

    @property
    def busy(self) -> bool:
        """Whether anything is unconfirmed."""
        return bool(self._adds or self._finishes or self._caller.busy)

    @property
    def crowded(self) -> bool:
        """Whether so much is unconfirmed that no new page is requested."""
        return len(self._adds) >= CROWDED

    @property
    def unconfirmed(self) -> int:
        """Number of seeds that may or may not have been added."""
        return len(self._adds) + sum(len(task.found) for task in self._finishes)

    def add(self, seeds: Sequence[Seed], adding: PendingSeeds | None = None) -> None:
        """Add seeds with the next batch."""
        self._adds.extend((seed, adding) for seed in seeds)

    def overflow(self, task: SeedTask) -> None:
        """Send found seeds ahead when a seed has found more than fits into its finish."""
        if len(task.found) > CALL_SEEDS - 1 or task.found_bytes > _CALL_BYTES:
            self.add(task.found)
            task.found, task.found_bytes = [], 0

    def finish(self, task: SeedTask) -> None:
        """Finish a seed with the next batch."""
        self._finishes.append(task)

    def step(self, now: float) -> None:
        """Send the next batch, unless one is under way. Raises ``RunFailed``."""
        self._caller.step(now)
        if not self._caller.busy:
            if self._adds:
                self._send_adds()
            elif self._finishes:
                self._send_finishes()

    async def drain(self, now: Callable[[], float]) -> None:
        """Send until all is confirmed. Raises ``RunFailed``."""
        while self.busy:
            self.step(now())
            await self._caller.settle()

    def next_wake(self) -> float | None:
        """Return when ``step`` has something to do."""
        return self._caller.next_wake()

    # Both stay in their queues until they are confirmed.

    def _send_adds(self) -> None:
        batch: list[Seed] = []
        size = 0
        for seed, _ in self._adds:
            size += seed_bytes(seed)
            if batch and (len(batch) == CALL_SEEDS or size > _CALL_BYTES):
                break
            batch.append(seed)
        self._caller.start(lambda: self._frontier.add(batch), self._added)

    def _added(self, answers: list[SeedAnswer]) -> None:
        for answer in answers:
            _, adding = self._adds.popleft()
            self._count(answer)
            if adding is not None:
                adding.answered(answer)

    def _send_finishes(self) -> None:
        tasks: list[SeedTask] = []
        found: list[Seed] = []
        size = 0
        for task in self._finishes:
            size += task.found_bytes
            full = len(tasks) == _CALL_FINISHES or len(found) + len(task.found) > CALL_SEEDS
            if tasks and (full or size > _CALL_BYTES):
                break
            tasks.append(task)
            found += task.found
        self._before_finish()
        finishes = [task.finished() for task in tasks]
        self._caller.start(lambda: self._frontier.finish(finishes, found), self._finished)

    def _finished(self, answer: SeedsFinished) -> None:
        for one in answer.answers:
            task = self._finishes.popleft()
            self._count_end(task, one)
            self._ended(task)
        for added in answer.added:
            self._count(added)

    def _count_end(self, task: SeedTask, answer: SeedFinished) -> None:
        if answer.code == "retried":
            name = "retried"
            self._news()
        elif answer.code in ("finished", "repeated") and answer.state in _ENDED:
            name = _ENDED[answer.state]
        else:
            name = "late"
            log.warning("the finish of seed %s came too late: %s", task.data, answer.code)
        setattr(self._counts, name, getattr(self._counts, name) + 1)

    def _count(self, answer: SeedAnswer) -> None:
        counts = self._counts
        if answer.code == "new":
            counts.added += 1
            self._news()
        elif answer.code == "duplicate":
            counts.duplicates += 1
        else:
            counts.refused += 1
            self._refusals += 1
            if self._refusals <= _TOLD_REFUSALS:
                log.warning("a seed was refused (%s): %s", answer.code, answer.text)
