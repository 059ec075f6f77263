"""A frontier in memory for local runs: each key once a day, exact."""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, tzinfo
from typing import Final

from yardkit.protocol import (
    KnownSeed,
    LeasedSeed,
    Seed,
    SeedAnswer,
    SeedFinish,
    SeedFinished,
    SeedOutcome,
    SeedsFinished,
    SeedsLeased,
    SeedState,
)
from yardkit.seeds import CallRefused
from yardspider.seeds.seed import Seed as AuthorsSeed

MAX_RETRY: Final = 3
LEASE_SECONDS: Final = 300.0
_MAX_DATA_BYTES: Final = 64 * 1024
_FIRST_TIME: Final = 94_694_400_000  # 1973, as of the service
_LAST_TIME: Final = 4_102_444_800_000  # 2100
_ENDS: Final = {
    SeedOutcome.SUCCESS: SeedState.SUCCEEDED,
    SeedOutcome.IGNORED: SeedState.IGNORED,
    SeedOutcome.GIVEN_UP: SeedState.FAILED,
}
_FINAL: Final = frozenset(_ENDS.values())
_OWNER: Final = "run"


class _MemorySeed:
    """A seed in the frontier. ``turn``: its place among those that are due together."""

    __slots__ = (
        "added_at",
        "changed_at",
        "due",
        "generation",
        "most",
        "retry",
        "seed",
        "state",
        "turn",
    )

    def __init__(self, seed: Seed, due: int, most: int, now: int) -> None:
        self.seed = seed
        self.due = due
        self.most = most
        self.state = SeedState.INIT
        self.retry = 0
        self.generation = 0
        self.turn = 0
        self.added_at = self.changed_at = now


class MemoryFrontier:
    """The seeds of one process. Behaves as the seed service with its defaults.

    Args:
        seeds: added at once.
        max_retry: tries of a seed without a number of its own.
        lease_seconds: duration of a lease unless it is extended.
        zone: time zone whose midnight begins a segment.
        clock: returns ms since 1970.

    ``finishes``: every finish, in order.
    """

    pause_seconds = 1.0

    def __init__(
        self,
        seeds: Iterable[str | AuthorsSeed] = (),
        *,
        max_retry: int = MAX_RETRY,
        lease_seconds: float = LEASE_SECONDS,
        zone: tzinfo = UTC,
        clock: Callable[[], int] | None = None,
    ) -> None:
        self._max_retry = max_retry
        self._lease_seconds = lease_seconds
        self._zone = zone
        self._clock = clock or _wall_clock
        self._entries: dict[tuple[int, str], _MemorySeed] = {}
        self._pending: list[tuple[int, int, int, str]] = []
        self._turns = 0
        self._generation = 0
        # By generation: the deadline, and the seeds still leased.
        self._leases: dict[int, tuple[int, set[tuple[int, str]]]] = {}
        self.finishes: list[SeedFinish] = []
        self._initial: list[str | AuthorsSeed] = list(seeds)

    def use_clock(self, clock: Callable[[], int]) -> None:
        """Replace the clock; for tests in virtual time."""
        self._clock = clock

    def now(self) -> int:
        return self._clock()

    async def open(self) -> None:
        """Add the initial seeds."""
        given, self._initial = self._initial, []
        now = self.now()
        made = (AuthorsSeed(one) if isinstance(one, str) else one for one in given)
        await self.add([one.message(now) for one in made])

    async def close(self) -> None:
        pass

    @property
    def seeds(self) -> list[KnownSeed]:
        """All seeds with their present states, in the order in which they were added."""
        return [self._known(place) for place in self._entries]

    def count(self, state: SeedState) -> int:
        """Return the number of seeds in a state."""
        return sum(entry.state == state for entry in self._entries.values())

    @property
    def pending(self) -> int:
        """Number of waiting seeds, also of those that are not due."""
        return self.count(SeedState.INIT) + self.count(SeedState.RETRY)

    # --- calls --------------------------------------------------------------------------------

    async def add(self, seeds: Sequence[Seed]) -> list[SeedAnswer]:
        now = self.now()
        self._expire(now)
        return [self._add(seed, now) for seed in seeds]

    async def lease(self, limit: int, *, seconds: float, wait_seconds: float) -> SeedsLeased:
        now = self.now()
        self._expire(now)
        self._generation += 1
        taken: list[LeasedSeed] = []
        places = set()
        while len(taken) < limit and (place := self._next()) is not None:
            entry = self._entries[place]
            if entry.due > now:
                break
            heapq.heappop(self._pending)
            entry.state, entry.generation, entry.changed_at = (
                SeedState.RUNNING,
                self._generation,
                now,
            )
            seed = entry.seed
            taken.append(LeasedSeed(*place, seed.data, entry.retry, entry.most, seed.ext))
            places.add(place)
        deadline = now + int((seconds or self._lease_seconds) * 1000)
        if places:
            self._leases[self._generation] = (deadline, places)
        ahead = self._next()
        due = None if ahead is None else self._entries[ahead].due
        return SeedsLeased(
            generation=self._generation,
            deadline=deadline,
            seeds=taken,
            # More are due than the limit allows: no waiting.
            next_due=due if due is not None and due > now else None,
            pending=len(self._pending),
        )

    async def finish(self, finishes: Sequence[SeedFinish], found: Sequence[Seed]) -> SeedsFinished:
        now = self.now()
        self._expire(now)
        answers = [self._finish(one, now) for one in finishes]
        return SeedsFinished(answers=answers, added=await self.add(found))

    async def extend(self, generation: int, *, seconds: float) -> int:
        now = self.now()
        self._expire(now)
        deadline, places = self._lease_of(generation)
        deadline = max(deadline, now + int((seconds or self._lease_seconds) * 1000))
        self._leases[generation] = (deadline, places)
        return deadline

    async def give_back(self, generation: int) -> int:
        now = self.now()
        self._expire(now)
        places = self._lease_of(generation)[1]
        for place in places:
            entry = self._entries[place]
            entry.state = SeedState.RETRY if entry.retry else SeedState.INIT
            entry.changed_at = now
            self._queue(place, entry)
        del self._leases[generation]
        return len(places)

    # --- inside -------------------------------------------------------------------------------

    def _add(self, seed: Seed, now: int) -> SeedAnswer:
        refused = _wrong(seed)
        if refused:
            return SeedAnswer(refused, text=f"the seed is refused: {refused}")
        segment, due = self._place(seed)
        place = (segment, seed.data)
        known = self._entries.get(place)
        if known is not None:
            return SeedAnswer("duplicate", known.added_at, known.state)
        most = self._max_retry if seed.max_retry is None else seed.max_retry
        entry = self._entries[place] = _MemorySeed(seed, due, most, now)
        self._to_the_end(place, entry)
        return SeedAnswer("new", now)

    def _place(self, seed: Seed) -> tuple[int, int]:
        if seed.active_at is None:
            return 0, 0 if seed.urgent else 1
        local = datetime.fromtimestamp(seed.active_at / 1000, self._zone)
        midnight = local.replace(hour=0, minute=0, second=0, microsecond=0, fold=0)
        return int(midnight.timestamp()) * 1000, seed.active_at

    def _to_the_end(self, place: tuple[int, str], entry: _MemorySeed) -> None:
        self._turns += 1
        entry.turn = self._turns
        self._queue(place, entry)

    def _queue(self, place: tuple[int, str], entry: _MemorySeed) -> None:
        heapq.heappush(self._pending, (place[0], entry.due, entry.turn, place[1]))

    def _next(self) -> tuple[int, str] | None:
        if not self._pending:
            return None
        segment, _, _, key = self._pending[0]
        return segment, key

    def _lease_of(self, generation: int) -> tuple[int, set[tuple[int, str]]]:
        lease = self._leases.get(generation)
        if lease is None:
            raise CallRefused("wrong_lease", f"the lease {generation} is over")
        return lease

    def _finish(self, finish: SeedFinish, now: int) -> SeedFinished:
        self.finishes.append(finish)
        place = (finish.segment, finish.key)
        entry = self._entries.get(place)
        if entry is None:
            return SeedFinished("unknown_key", None)
        if not 0 < finish.generation <= entry.generation:
            return SeedFinished("wrong_lease", entry.state)
        if finish.generation < entry.generation or entry.state != SeedState.RUNNING:
            repeated = finish.generation == entry.generation and entry.state in _FINAL
            return SeedFinished("repeated" if repeated else "late", entry.state)
        places = self._leases[finish.generation][1]
        places.discard(place)
        if not places:
            del self._leases[finish.generation]
        state = self._end(place, entry, finish.outcome, now)
        return SeedFinished("retried" if state == SeedState.RETRY else "finished", state)

    def _end(
        self, place: tuple[int, str], entry: _MemorySeed, outcome: SeedOutcome, now: int
    ) -> SeedState:
        """Return the new state of a seed."""
        entry.changed_at = now
        if outcome in (SeedOutcome.FAILURE, SeedOutcome.GIVEN_UP):
            entry.retry += 1
        if outcome == SeedOutcome.FAILURE and entry.retry < entry.most:
            entry.state = SeedState.RETRY
            self._to_the_end(place, entry)
        else:
            entry.state = _ENDS.get(outcome, SeedState.FAILED)
        return entry.state

    def _expire(self, now: int) -> None:
        """Expire leases: a try of each of their seeds has failed."""
        for generation, (deadline, places) in list(self._leases.items()):
            if deadline <= now:
                del self._leases[generation]
                for place in sorted(places, key=lambda one: self._entries[one].turn):
                    self._end(place, self._entries[place], SeedOutcome.FAILURE, now)

    def _known(self, place: tuple[int, str]) -> KnownSeed:
        entry = self._entries[place]
        leased = entry.state == SeedState.RUNNING
        return KnownSeed(
            segment=place[0],
            key=place[1],
            data=entry.seed.data,
            state=entry.state,
            retry=entry.retry,
            max_retry=entry.most,
            added_at=entry.added_at,
            changed_at=entry.changed_at,
            due=entry.due,
            generation=entry.generation,
            ext=entry.seed.ext,
            owner=_OWNER if leased else None,
            deadline=self._leases[entry.generation][0] if leased else None,
        )


def _wrong(seed: Seed) -> str:
    """Return the service's error code for an invalid seed; "" for a valid one."""
    if not isinstance(seed.data, str):
        return "binary_data"
    if not seed.data:
        return "empty_data"
    if len(seed.data.encode(errors="surrogatepass")) > _MAX_DATA_BYTES:
        return "data_too_large"
    if any(ord(character) < 32 or ord(character) == 127 for character in seed.data):
        return "binary_data"
    if seed.active_at is not None and (
        seed.urgent or not _FIRST_TIME <= seed.active_at < _LAST_TIME
    ):
        return "bad_time"
    return "" if seed.max_retry is None or 0 <= seed.max_retry <= 1000 else "bad_retry"


def _wall_clock() -> int:
    return int(time.time() * 1000)
