"""The port of a seed store: what both adapters promise, and what one contract test holds.

Times are milliseconds since 1970; every change takes the caller's ``now``. A frontier is a number.
Seeds are never removed by being handed out: they are leased, and ``finish`` alone ends them. The
books of a segment balance whenever they are read: ``added = pending + leased + succeeded + failed
+ ignored + forgotten``; duplicates are counted apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, Protocol, TypeAlias

import msgspec

from apps.seeds.engine.errors import BadCall, ClockBack
from apps.seeds.engine.filters import FilterSettings, FilterState
from apps.seeds.engine.rules import NewPlace
from apps.seeds.engine.seeds import DEFAULT_SEGMENT, FINAL, LAST_TIME, ResolvedSeed, State
from yardkit.protocol.seeds import (
    MAX_SEEDS,
    KnownSeed,
    LeasedSeed,
    SeedFinish,
    SeedFinished,
)

# One class each for messages and storage.
Finish: TypeAlias = SeedFinish
Finished: TypeAlias = SeedFinished
Known: TypeAlias = KnownSeed

# Where a stored seed belongs by other rules, asked with its segment, key, data and due time.
Regroup: TypeAlias = Callable[[int, str, str, int], NewPlace]

MAX_BATCH: Final = MAX_SEEDS
# Bytes of keys, data and ext in a page of ``read``, unless one seed is larger.
MAX_PAGE_BYTES: Final = 4 * 1024 * 1024
MAX_OWNER: Final = 200
MAX_LEASE_SECONDS: Final = 24 * 3600
# How far clocks of several processes may differ, or one be corrected.
CLOCK_TOLERANCE_MS: Final = 60_000


class AddResult(msgspec.Struct, frozen=True):
    """The answer to one seed: ``new``, or known ``since`` (ms) and by now in ``state``."""

    new: bool
    since: int
    state: State


class Lease(msgspec.Struct, frozen=True):
    """Seeds leased together, in the order to crawl them; empty when nothing is due.

    ``generation``: fencing token, rising over the whole store. A finish with an older generation
    changes nothing.
    """

    generation: int
    owner: str
    deadline: int
    seeds: list[LeasedSeed]


class SegmentCounts(msgspec.Struct):
    """Counters of a segment. ``expired``: leases that ran out; ``late``: finishes too late."""

    added: int = 0
    duplicates: int = 0
    pending: int = 0
    leased: int = 0
    succeeded: int = 0
    failed: int = 0
    ignored: int = 0
    forgotten: int = 0
    retried: int = 0
    expired: int = 0
    late: int = 0

    def balance(self) -> bool:
        """Is every seed in exactly one place?"""
        ended = self.succeeded + self.failed + self.ignored + self.forgotten
        return self.added == self.pending + self.leased + ended

    def move(self, old: State | None, new: State | None, count: int = 1) -> None:
        """``count`` seeds went from one state to another; None: they were or are not there."""
        for state, difference in ((old, -count), (new, count)):
            if state is not None:
                name = COUNTERS[state]
                setattr(self, name, getattr(self, name) + difference)

    def plus(self, other: SegmentCounts) -> SegmentCounts:
        """Both together."""
        return SegmentCounts(*(getattr(self, name) + getattr(other, name) for name in BOOKS_FIELDS))


BOOKS_FIELDS: Final = SegmentCounts.__struct_fields__
COUNTERS: Final = {
    State.INIT: "pending",
    State.RETRY: "pending",
    State.RUNNING: "leased",
    State.SUCCEEDED: "succeeded",
    State.FAILED: "failed",
    State.IGNORED: "ignored",
}


class Segment(msgspec.Struct, frozen=True):
    """A segment as a table shows it. ``size_bytes``: about what it takes on disk."""

    segment: int
    books: SegmentCounts
    size_bytes: int
    filter: FilterState | None


class ReopenedCount(msgspec.Struct, frozen=True):
    """Failed seeds that are pending again, and those the other segment knew already."""

    reopened: int
    duplicates: int


class ReopenedSlice(msgspec.Struct, frozen=True):
    """Result of one slice. ``after``: where the next one begins; None: it was the last."""

    reopened: int
    duplicates: int
    after: bytes | None


class SeedPage(msgspec.Struct, frozen=True):
    """Some seeds of a segment by their hashes. ``after``: of the next page; None: the last one."""

    seeds: list[Known]
    after: bytes | None


class MovedSlice(msgspec.Struct, frozen=True):
    """Result of moving one slice of a segment.

    ``moved``: seeds in their new place; ``met``: those whose place was taken, now counted there as
    duplicates; ``kept``: moved seeds that keep a key or segment which the new rules refuse.
    ``after``: of the next slice; None: the segment is empty and deleted.
    """

    moved: int
    met: int
    kept: int
    after: bytes | None


class SeedStore(Protocol):
    """A store of seeds. Thread-safe. Every call may raise ``SeedStoreUnavailable``."""

    def set_filter(self, frontier: int, settings: FilterSettings) -> None:
        """For the filters that are made from now on. Raises ``InvalidFrontierSetting``."""

    def add(self, frontier: int, seeds: Sequence[ResolvedSeed], *, now: int) -> list[AddResult]:
        """One answer for each, in order; all of them are stored, or none.

        Raises:
            BadCall: more than ``MAX_BATCH``.
            ClockBack: ``now`` is long before an earlier one.
        """

    def lease(
        self,
        frontier: int,
        *,
        owner: str,
        limit: int,
        seconds: float,
        now: int,
        call: str = "",
        again: bool = False,
        check: Callable[[], None] = lambda: None,
    ) -> Lease:
        """Lease up to ``limit`` due seeds to ``owner`` for ``seconds``.

        Seeds without a time come first, then the segments from the oldest on; inside a segment by
        due time, then in the order of adding or of the return after a try. ``call``: the owner's
        name of this call, for ``recall``. ``again``: the call may have been granted a lease before,
        which is returned again. ``check``: raises when another service has taken over the call;
        called when no other can answer it any more, and before anything is leased.

        Raises:
            BadCall, ClockBack
            CallInWork: another process that shares the store is processing the same call.
        """

    def recall(self, frontier: int, *, owner: str, call: str) -> Lease | None:
        """The lease that this very call was given, with what of it is still leased.

        None: it was given none, or that one is over. For answers that got lost on their way.
        """

    def extend(
        self, frontier: int, generation: int, *, owner: str, seconds: float, now: int
    ) -> int:
        """Extend a lease; return the new deadline, never earlier than the old one.

        Raises:
            WrongSeedLease: the lease has ended or belongs to another owner.
            BadCall, ClockBack
        """

    def extend_all(self, *, seconds: float, now: int) -> None:
        """Extend all leases to at least ``seconds`` from now, after an outage of the service."""

    def finish(
        self, frontier: int, finishes: Sequence[Finish], *, owner: str, now: int
    ) -> list[Finished]:
        """One answer for each, in order. Raises ``BadCall`` or ``ClockBack``."""

    def give_back(self, frontier: int, generation: int, *, owner: str, now: int) -> int:
        """Return the leased seeds to pending, at their old place and without counting a try.

        Raises:
            WrongSeedLease: the lease has ended or belongs to another owner.
        """

    def expire(self, *, now: int) -> int:
        """Take back what is leased beyond its deadline; the number of seeds.

        Each counts as a failed try, so that a seed which kills its crawlers ends, too.
        """

    def next_due(self, frontier: int, *, now: int) -> int | None:
        """When the next seed that must wait now becomes due; None: there is none."""

    def pending(self, frontier: int) -> int:
        """How many seeds wait, those not due yet among them."""

    def segments(self, frontier: int) -> list[Segment]:
        """All segments, the default one first, then by time."""

    def lookup(self, frontier: int, segment: int, key: str) -> Known | None:
        """Return the seed stored under a key; None if it would be new."""

    def reopen(self, frontier: int, segment: int, key: str, *, now: int) -> None:
        """Let an ended seed be crawled again, with all its retries.

        Raises:
            UnknownSeed, SeedNotFinal
        """

    def forget(self, frontier: int, segment: int, key: str, *, now: int) -> None:
        """Take a seed away, so that its key is new again.

        Raises:
            UnknownSeed, SeedInUse
        """

    def reopen_failed_slice(
        self, frontier: int, source: int, target: int, *, after: bytes, limit: int, now: int
    ) -> ReopenedSlice:
        """Add the failed ones among the next ``limit`` seeds of a segment to another one.

        In the same one, reopen them; in another one they stay failed where they are. A repeat
        finds only duplicates. ``after``: b"", then as answered.

        Raises:
            UnknownSegment: there is no ``source``.
            BadCall: ``target`` is no segment.
            ClockBack
        """

    def restore(self, frontier: int, seeds: Sequence[Known], *, now: int) -> list[AddResult]:
        """Add seeds with their state, retries and times; one answer for each, as ``add`` gives.

        Pending ones wait behind those that have the same due time already. One that was leased is
        pending. All of them are stored, or none.

        Raises:
            BadCall: more than ``MAX_BATCH``, or a segment that can be none.
            ClockBack
        """

    def read(self, frontier: int, segment: int, *, after: bytes = b"", limit: int) -> SeedPage:
        """Up to ``limit`` seeds as they are now, in the order of their hashes.

        What changes between two pages may be seen or not. A segment that is not there is empty.

        Raises:
            BadCall: no seeds or more than ``MAX_BATCH`` are asked for.
        """

    def move(
        self,
        frontier: int,
        segment: int,
        target: int,
        regroup: Regroup,
        *,
        after: bytes,
        limit: int,
        now: int,
    ) -> MovedSlice:
        """Take up to ``limit`` seeds out of a segment, and put each where ``regroup`` says.

        ``target``: another frontier. Both happen at once: a seed is in one of the two, whenever
        the process dies. States, times, tries and the order in the queue stay. When the segment is
        empty it goes, and what its books counted beside its seeds goes to the segment of its
        beginning, so that the sums over all segments stay.

        Raises:
            UnknownSegment
            SeedInUse: seeds are leased.
            BadCall, ClockBack
        """

    def drop_segment(
        self, frontier: int, segment: int, *, leased_too: bool = False
    ) -> SegmentCounts:
        """Take a whole segment away; its last books. Its leases find unknown keys then.

        Raises:
            UnknownSegment
            SeedInUse: seeds are leased, and ``leased_too`` is not set.
        """

    def export(self, frontier: int, segment: int) -> Iterator[Known]:
        """All seeds of a segment as they are now, in no order; changes meanwhile are not seen."""

    def tend(self) -> bool:
        """A slice of upkeep, some ms long; is there more? To be called where nothing else waits."""

    def close(self) -> None:
        """Save filters and let go; idempotent. Any other call fails then."""


class Guard:
    """Checks of calls, shared by both adapters. ``latest``: the highest time this process saw."""

    def __init__(self) -> None:
        self.latest = 0

    def time(self, now: int) -> None:
        """Raises ``ClockBack``."""
        if now < self.latest - CLOCK_TOLERANCE_MS:
            back = (self.latest - now) / 1000
            raise ClockBack(
                f"the clock has gone back by {back:.0f} s; set it right, or restart the service "
                "where the earlier time was the wrong one"
            )
        self.latest = max(self.latest, now)

    def lease(self, owner: str, limit: int, seconds: float) -> None:
        """Raises ``BadCall``."""
        check_owner(owner)
        if not 1 <= limit <= MAX_BATCH:
            raise BadCall(f"a lease of {limit} seeds: 1 to {MAX_BATCH} can be")
        check_seconds(seconds)


def refusal(shown: int, owner: str, *, state: int, generation: int, holder: str | None) -> str:
    """Return why ``owner`` with lease ``shown`` may not finish a seed; "" if allowed.

    ``state``, ``generation``: the seed's own; ``holder``: the current owner of its lease.
    """
    if not 0 < shown <= generation:
        return "wrong_lease"
    if shown < generation:
        return "late"
    if state != State.RUNNING:
        return "repeated" if state in FINAL else "late"
    return "" if holder == owner else "wrong_lease"


def check_segment(segment: int) -> None:
    """Raises ``BadCall``."""
    if not DEFAULT_SEGMENT <= segment < LAST_TIME:
        raise BadCall(f"{segment} is no beginning of a segment")


def check_owner(owner: str) -> None:
    """Raises ``BadCall``."""
    if not 0 < len(owner) <= MAX_OWNER or not owner.isprintable():
        raise BadCall(f"an owner has 1 to {MAX_OWNER} printable characters")


def check_seconds(seconds: float) -> None:
    """Raises ``BadCall``."""
    if not 0 < seconds <= MAX_LEASE_SECONDS:
        raise BadCall(f"a lease for {seconds} s: above 0, at most {MAX_LEASE_SECONDS} can be")


def check_limit(limit: int) -> None:
    """Raises ``BadCall``."""
    if not 1 <= limit <= MAX_BATCH:
        raise BadCall(f"{limit} seeds at once: 1 to {MAX_BATCH} can be")


def rest_of(books: SegmentCounts) -> SegmentCounts:
    """Return the counts that remain of an emptied segment; they are consistent by themselves."""
    return SegmentCounts(
        added=books.forgotten,
        forgotten=books.forgotten,
        duplicates=books.duplicates,
        retried=books.retried,
        expired=books.expired,
        late=books.late,
    )


def pending_state(known: Known) -> State:
    """Return the state of an imported seed: a leased one becomes pending."""
    if known.state in FINAL:
        return known.state
    return State.RETRY if known.retry else State.INIT


def check_batch(items: Sequence[object]) -> None:
    """Raises ``BadCall``."""
    if len(items) > MAX_BATCH:
        raise BadCall(f"{len(items)} at once, at most {MAX_BATCH} can be")
