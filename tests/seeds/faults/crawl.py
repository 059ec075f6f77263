"""Spiders that crawl nothing, and remember all that they were promised."""

from __future__ import annotations

import itertools
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial

import msgspec

from apps.seeds.stores.operations import (
    DropSegment,
    FindSeed,
    Forget,
    Grouping,
    MoveSlice,
    Reopen,
    ReopenFailedSlice,
    Restore,
)
from tests.plugins.measurements import Measured
from tests.seeds.faults.service_processes import SeedYard
from yardkit.protocol import Seed, SeedFinish, SeedsLeased
from yardkit.protocol.seeds import LeasedSeed, SeedOutcome
from yardkit.seeds import CallRefused, SeedClient

DAY = 86_400_000
BATCH = 500
# What comes of the seed of a number, by its last digit: (its state at the end, the first outcome).
ENDS = {
    3: ("FAILED", SeedOutcome.GIVEN_UP),
    5: ("IGNORED", SeedOutcome.IGNORED),
    7: ("SUCCEEDED", SeedOutcome.FAILURE),
}
PLAIN = ("SUCCEEDED", SeedOutcome.SUCCESS)
_ENDED = frozenset({"finished", "repeated"})
_OF_REPEATS = frozenset(
    {"unknown_key", "unknown_segment", "seed_not_final", "seed_in_use", "seed_known", "wrong_lease"}
)
# "late": the answer to the first finish was lost, and the seed is pending again since.
_RETRIED = frozenset({"retried", "late"})


def data_of(number: int) -> str:
    return f"http://shop.example/item-{number}"


def end_of(data: str) -> tuple[str, SeedOutcome]:
    """Of the seed with this data."""
    return ENDS.get(int(data[-1]), PLAIN)


class Crawl:
    """The seeds of one frontier. Threads may share it."""

    def __init__(self, yard: SeedYard, frontier: int) -> None:
        self.yard = yard
        self.frontier = frontier
        self.lock = threading.Lock()
        self.added: set[str] = set()
        # How often each was handed out, by data and tries before.
        self.handed: Counter[tuple[str, int]] = Counter()
        self.ended: set[str] = set()
        self.ended_again = 0
        self.wrong: list[str] = []
        self._numbers = itertools.count()

    def add(self, count: int) -> None:
        """New seeds, and each once more; some at once, some of a time that has passed."""
        client = self.yard.client(self.frontier, "adder")
        now = int(time.time() * 1000)
        while count > 0:
            with self.lock:
                numbers = list(itertools.islice(self._numbers, min(count, 10 * BATCH)))
            count -= len(numbers)
            seeds = [Seed(data_of(one), now if one % 2 else None) for one in numbers]
            answers = self.yard.insist(partial(client.add, seeds))
            # The same call may have been made before: then they are known by now.
            self._check({one.code for one in answers} <= {"new", "duplicate"}, f"add: {answers[0]}")
            with self.lock:
                self.added |= {one.data for one in seeds}
            again = self.yard.insist(partial(client.add, seeds[:50]))
            self._check({one.code for one in again} == {"duplicate"}, f"again: {again[0]}")

    def lease(self, owner: str, limit: int = BATCH) -> SeedsLeased:
        """Hand out; whatever has ended must not be among it."""
        client = self.yard.client(self.frontier, owner)
        taken = self.yard.insist(partial(client.lease, limit))
        with self.lock:
            for one in taken.seeds:
                self.handed[one.data, one.retry] += 1
                if one.data in self.ended:
                    self.wrong.append(f"{one.data} was handed out after its end")
        return taken

    def finish(self, owner: str, taken: SeedsLeased) -> None:
        """As their numbers say."""
        client = self.yard.client(self.frontier, owner)
        outcomes = [self._outcome(one) for one in taken.seeds]
        finishes = [
            SeedFinish(one.segment, one.key, taken.generation, outcome)
            for one, outcome in zip(taken.seeds, outcomes, strict=True)
        ]
        answers = self.yard.insist(partial(client.finish, finishes)).answers
        with self.lock:
            for one, outcome, answer in zip(taken.seeds, outcomes, answers, strict=True):
                right = _RETRIED if outcome == SeedOutcome.FAILURE else _ENDED
                if answer.code not in right:
                    self.wrong.append(f"{one.data} {outcome.name}: {answer.code}")
                if outcome != SeedOutcome.FAILURE:
                    if one.data in self.ended:
                        self.ended_again += 1
                        self.wrong.append(f"{one.data} has ended twice")
                    self.ended.add(one.data)

    def crawl(self, owner: str, limit: int = BATCH) -> int:
        """Lease and finish; how many."""
        taken = self.lease(owner, limit)
        if taken.seeds:
            self.finish(owner, taken)
        return len(taken.seeds)

    def crawl_all(self, owners: Sequence[str] = ("last 1", "last 2")) -> bool:
        """Until nothing is pending; whether all have ended."""

        def one(owner: str) -> None:
            while self.crawl(owner, 10 * BATCH):
                pass

        run_all([lambda owner=owner: one(owner) for owner in owners])  # type: ignore[misc]
        return self._is_done()

    def until_back(self, begun: float) -> float | None:
        """Wait for one more end; the seconds since ``begun``, when it was possible again.

        None: all have ended already.
        """
        before = len(self.ended)
        self.yard.until(
            lambda: len(self.ended) > before or self._is_done(), "one more seed has ended"
        )
        return time.monotonic() - begun if len(self.ended) > before else None

    def check(self, measured: Measured | None = None, back_s: float | None = None) -> None:
        """Nothing is lost, none has ended twice, the books balance. Nobody may serve meanwhile.

        ``measured`` hears of what was found, whatever it was.
        """
        states = self.yard.states(self.frontier)
        if measured is not None:
            right = {data for data in self.ended if states.get(data) == end_of(data)[0]}
            measured(
                of=len(self.added),
                lost=len(self.added - right),
                twice=self.repeats() + self.ended_again,
                back_s=back_s,
            )
        assert not self.wrong, self.wrong[:5]
        assert self.ended == self.added
        assert states == {data: end_of(data)[0] for data in self.added}

    def repeats(self) -> int:
        """How many seeds were handed out once more though no try had failed."""
        return sum(count - 1 for count in self.handed.values())

    def _is_done(self) -> bool:
        with self.lock:
            return self.ended >= self.added

    def _check(self, holds: bool, text: str) -> None:
        if not holds:
            with self.lock:
                self.wrong.append(text)

    @staticmethod
    def _outcome(one: LeasedSeed) -> SeedOutcome:
        outcome = end_of(one.data)[1]
        if outcome == SeedOutcome.FAILURE and one.retry:
            return SeedOutcome.SUCCESS
        return outcome


class Mender:
    """All that is done to seeds beside crawling them, round and round, on a frontier of its own."""

    def __init__(self, yard: SeedYard, frontier: int) -> None:
        self.yard = yard
        self.frontier = frontier
        self.rounds = 0

    def work(self) -> None:
        """One round. What an outage makes come twice is refused, which is right."""
        self.rounds += 1
        client = self.yard.client(self.frontier, "mender")
        for again in (False, True):
            grabbed = Seed(f"grabbed-{self.rounds}")
            self._may(lambda: client.grab(grabbed, timeout=0.3, again=again))  # noqa: B023
            self._end(client)
        now = int(time.time() * 1000)
        names = [f"mend-{self.rounds}-{index}" for index in range(6)]
        insist = self.yard.insist
        insist(lambda: client.add([Seed(name, now - 9 * DAY) for name in names]))
        taken = insist(lambda: client.lease(1, seconds=0.2))
        self._may(lambda: client.extend(taken.generation, seconds=0.3))
        back = insist(lambda: client.lease(2))
        self._may(lambda: client.give_back(back.generation))
        ended = self._end(client)
        if not ended:
            return
        first = ended[0]
        manage, segment = self.yard.manage, first.segment
        known = insist(lambda: manage(self.frontier, FindSeed(segment, first.key)))
        if known is not None:
            copy = msgspec.structs.replace(known, data=f"{known.data}-copy")
            self._may(lambda: manage(self.frontier, Restore([copy])))
        self._may(lambda: manage(self.frontier, ReopenFailedSlice(segment)))
        self._may(lambda: manage(self.frontier, Reopen(segment, first.key)))
        self._may(lambda: manage(self.frontier, Forget(segment, first.key)))
        # The first lease runs out meanwhile.
        time.sleep(1.5)
        for grouping in (Grouping("day", "UTC", "whole"), None):
            step = MoveSlice(segment, grouping)
            self._may(lambda: manage(self.frontier, step))  # noqa: B023
        self._may(lambda: manage(self.frontier, DropSegment(segment, leased_too=True)))

    def _end(self, client: SeedClient) -> list[LeasedSeed]:
        """Lease three and finish them, as failed for ever; those."""
        taken = self.yard.insist(lambda: client.lease(3))
        finishes = [
            SeedFinish(one.segment, one.key, taken.generation, SeedOutcome.GIVEN_UP)
            for one in taken.seeds
        ]
        self.yard.insist(lambda: client.finish(finishes))
        return taken.seeds

    def _may(self, step: Callable[[], object]) -> None:
        try:
            self.yard.insist(step)
        except CallRefused as refusal:
            if refusal.code not in _OF_REPEATS:
                raise


def run_all(works: Sequence[Callable[[], object]]) -> None:
    """Each in a thread; the first error is raised when all have ended."""
    errors: list[BaseException] = []

    def run(work: Callable[[], object]) -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - raised by whoever waits
            errors.append(error)

    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


class Running:
    """Works that are repeated in threads until the block ends; the first error is raised then."""

    def __init__(self, *works: Callable[[], object]) -> None:
        self._works = works
        self._stop = threading.Event()
        self._errors: list[BaseException] = []
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Running:
        for work in self._works:
            thread = threading.Thread(target=self._run, args=(work,))
            thread.start()
            self._threads.append(thread)
        return self

    def check(self) -> None:
        """Raises what a work has raised."""
        if self._errors:
            raise self._errors[0]

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()
        self.check()

    def _run(self, work: Callable[[], object]) -> None:
        try:
            while not self._stop.is_set():
                if work() == 0:
                    time.sleep(0.05)
        except BaseException as error:  # noqa: BLE001 - raised by whoever waits
            self._errors.append(error)
