"""Interface of a seed store, implemented by both adapters and verified by one contract test.

Times are ms since 1970; every change takes the caller's ``now``. A frontier is given by its number.
Leasing does not remove a seed: only ``finish`` ends it. The counts of a segment are consistent at
every read: ``added = pending + leased + succeeded + failed + ignored + forgotten``; duplicates are
counted apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, Protocol, TypeAlias

import msgspec

from apps.seeds.engine.errors import BadCall, ClockBack
from apps.seeds.engine.filters import FilterSettings, FilterState
from apps.seeds.engine.rules import NewPlace
from apps.seeds.engine.seeds import DEFAULT_SEGMENT, FINAL, LAST_TIME, ResolvedSeed, State
from yardkit.protocol.seeds import MAX_SEEDS, KnownSeed, LeasedSeed, SeedFinish, SeedFinished

# Shared by messages and storage.
Finish: TypeAlias = SeedFinish
Finished: TypeAlias = SeedFinished
Known: TypeAlias = KnownSeed

# Returns the place of a stored seed by other rules, from its segment, key, data and due time.
Regroup: TypeAlias = Callable[[int, str, str, int], NewPlace]

MAX_BATCH: Final = MAX_SEEDS
# Limit of keys, data and ext in a page of ``read``, in bytes; a single larger seed is returned
# alone.
MAX_PAGE_BYTES: Final = 4 * 1024 * 1024
MAX_OWNER: Final = 200
MAX_LEASE_SECONDS: Final = 24 * 3600
# Tolerated clock difference between processes, and tolerated correction of one clock.
CLOCK_TOLERANCE_MS: Final = 60_000


class AddResult(msgspec.Struct, frozen=True):
    """Result of adding one seed: ``new``, or known ``since`` (ms) and now in ``state``."""

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
    """Counters of a segment. ``expired``: leases that expired; ``late``: finishes after expiry."""

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
        """Return whether the counts by state add up to the seeds added."""
        ended = self.succeeded + self.failed + self.ignored + self.forgotten
        return self.added == self.pending + self.leased + ended

    def move(self, old: State | None, new: State | None, count: int = 1) -> None:
        """Count the move of ``count`` seeds from one state to another; None: not stored before or
        after.
        """
        for state, difference in ((old, -count), (new, count)):
            if state is not None:
                name = COUNTERS[state]
                setattr(self, name, getattr(self, name) + difference)

    def plus(self, other: SegmentCounts) -> SegmentCounts:
        """Return the sum of both."""
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
    """Segment with its counts. ``size_bytes``: approximate size on disk."""

    segment: int
    books: SegmentCounts
    size_bytes: int
    filter: FilterState | None


class ReopenedCount(msgspec.Struct, frozen=True):
    """Failed seeds that are pending again, and those already known in the other segment."""

    reopened: int
    duplicates: int


class ReopenedSlice(msgspec.Struct, frozen=True):
    """Result of one slice. ``after``: cursor of the next slice; None after the last one."""

    reopened: int
    duplicates: int
    after: bytes | None


class SeedPage(msgspec.Struct, frozen=True):
    """Seeds of a segment, ordered by hash. ``after``: cursor of the next page; None after the last
    one.
    """

    seeds: list[Known]
    after: bytes | None


class MovedSlice(msgspec.Struct, frozen=True):
    """Result of moving one slice of a segment.

    ``moved``: seeds in their new place; ``met``: those whose place was taken, now counted there as
    duplicates; ``kept``: moved seeds that keep a key or segment which the new rules reject.
    ``after``: cursor of the next slice; None: the segment is empty and deleted.
    """

    moved: int
    met: int
    kept: int
    after: bytes | None


class SeedStore(Protocol):
    """Store of seeds. Thread-safe. Every call may raise ``SeedStoreUnavailable``."""

    def set_filter(self, frontier: int, settings: FilterSettings) -> None:
        """Set the settings of new Bloom filters. Raises ``InvalidFrontierSetting``."""

    def add(self, frontier: int, seeds: Sequence[ResolvedSeed], *, now: int) -> list[AddResult]:
        """Add seeds, all or none; return one result for each, in order.

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

        Seeds without a time come first, then the segments from the oldest on; within a segment by
        due time, then in the order in which they became pending. ``call``: the owner's name of this
        call, for ``recall``. ``again``: the call may already have a lease, which is returned again.
        ``check``: raises when another service has taken over the call; called when no other service
        can answer it any more, and before anything is leased.

        Raises:
            BadCall, ClockBack
            CallInWork: another process that shares the store is processing the same call.
        """

    def recall(self, frontier: int, *, owner: str, call: str) -> Lease | None:
        """Return the lease granted to this call, with the seeds that are still leased.

        For calls whose answer was lost. None: the call has no lease, or it has ended.
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
        """Finish leased seeds; return one result for each, in order. Raises ``BadCall`` or
        ``ClockBack``.
        """

    def give_back(self, frontier: int, generation: int, *, owner: str, now: int) -> int:
        """Return the leased seeds to pending, at their old place and without counting a try.

        Raises:
            WrongSeedLease: the lease has ended or belongs to another owner.
        """

    def expire(self, *, now: int) -> int:
        """Return the seeds of expired leases to pending; return their number.

        Each counts as a failed try, so that a seed which crashes its spiders fails in the end.
        """

    def next_due(self, frontier: int, *, now: int) -> int | None:
        """Return when the next pending seed becomes due; None if there is none in the future."""

    def pending(self, frontier: int) -> int:
        """Return the number of pending seeds, due or not."""

    def segments(self, frontier: int) -> list[Segment]:
        """Return all segments, the default one first, then by time."""

    def lookup(self, frontier: int, segment: int, key: str) -> Known | None:
        """Return the seed stored under a key; None if it would be new."""

    def reopen(self, frontier: int, segment: int, key: str, *, now: int) -> None:
        """Make a finished seed pending again, with its full number of tries.

        Raises:
            UnknownSeed, SeedNotFinal
        """

    def forget(self, frontier: int, segment: int, key: str, *, now: int) -> None:
        """Delete a seed, so that its key counts as new.

        Raises:
            UnknownSeed, SeedInUse
        """

    def reopen_failed_slice(
        self, frontier: int, source: int, target: int, *, after: bytes, limit: int, now: int
    ) -> ReopenedSlice:
        """Add the failed ones among the next ``limit`` seeds of a segment to another segment.

        With equal segments they are reopened; otherwise they also stay failed in the old one. A
        repeat finds only duplicates. ``after``: b"" at first, then the cursor returned.

        Raises:
            UnknownSegment: ``source`` does not exist.
            BadCall: ``target`` cannot be a segment.
            ClockBack
        """

    def restore(self, frontier: int, seeds: Sequence[Known], *, now: int) -> list[AddResult]:
        """Add seeds with their state, retries and times, all or none; return results as ``add``
        does.

        Pending ones queue behind those with the same due time. Leased ones become pending.

        Raises:
            BadCall: more than ``MAX_BATCH``, or an invalid segment.
            ClockBack
        """

    def read(self, frontier: int, segment: int, *, after: bytes = b"", limit: int) -> SeedPage:
        """Return up to ``limit`` seeds in their current state, ordered by hash.

        Changes between two pages may be included or not. An unknown segment is empty.

        Raises:
            BadCall: ``limit`` is outside 1 to ``MAX_BATCH``.
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
        """Remove up to ``limit`` seeds from a segment, and store each where ``regroup`` says.

        ``target``: another frontier. The change is atomic: a seed is in exactly one of the two
        frontiers even after a crash. States, times, tries and queue order stay. An emptied segment
        is deleted; its counts that belong to no seed (such as duplicates) go to the new segment of
        its beginning, so that the sums over all segments stay.

        Raises:
            UnknownSegment
            SeedInUse: seeds are leased.
            BadCall, ClockBack
        """

    def drop_segment(
        self, frontier: int, segment: int, *, leased_too: bool = False
    ) -> SegmentCounts:
        """Delete a whole segment; return its last counts. Its leases then find unknown keys.

        Raises:
            UnknownSegment
            SeedInUse: seeds are leased, and ``leased_too`` is not set.
        """

    def export(self, frontier: int, segment: int) -> Iterator[Known]:
        """Yield all seeds of a segment from a snapshot, in no order."""

    def tend(self) -> bool:
        """Do some ms of background work, such as rebuilding filters; return whether more is left.
        Call it when idle.
        """

    def close(self) -> None:
        """Save filters and release the store; idempotent. Later calls fail."""


class Guard:
    """Argument checks shared by both adapters. ``latest``: highest time seen by this process."""

    def __init__(self) -> None:
        self.latest = 0

    def time(self, now: int) -> None:
        """Check that ``now`` is not long before an earlier time. Raises ``ClockBack``."""
        if now < self.latest - CLOCK_TOLERANCE_MS:
            back = (self.latest - now) / 1000
            raise ClockBack(
                f"the clock has gone back by {back:.0f} s; set it right, or restart the service "
                "where the earlier time was the wrong one"
            )
        self.latest = max(self.latest, now)

    def lease(self, owner: str, limit: int, seconds: float) -> None:
        """Check the arguments of a lease. Raises ``BadCall``."""
        check_owner(owner)
        if not 1 <= limit <= MAX_BATCH:
            raise BadCall(f"a lease of {limit} seeds: 1 to {MAX_BATCH} can be")
        check_seconds(seconds)


def refusal(shown: int, owner: str, *, state: int, generation: int, holder: str | None) -> str:
    """Return why ``owner`` with lease ``shown`` may not finish a seed; "" if it may.

    ``state``, ``generation``: stored with the seed; ``holder``: the current owner of lease
    ``shown``.
    """
    if not 0 < shown <= generation:
        return "wrong_lease"
    if shown < generation:
        return "late"
    if state != State.RUNNING:
        return "repeated" if state in FINAL else "late"
    return "" if holder == owner else "wrong_lease"


def check_segment(segment: int) -> None:
    """Check that ``segment`` is in range. Raises ``BadCall``."""
    if not DEFAULT_SEGMENT <= segment < LAST_TIME:
        raise BadCall(f"{segment} is no beginning of a segment")


def check_owner(owner: str) -> None:
    """Check the length and characters of an owner. Raises ``BadCall``."""
    if not 0 < len(owner) <= MAX_OWNER or not owner.isprintable():
        raise BadCall(f"an owner has 1 to {MAX_OWNER} printable characters")


def check_seconds(seconds: float) -> None:
    """Check the duration of a lease. Raises ``BadCall``."""
    if not 0 < seconds <= MAX_LEASE_SECONDS:
        raise BadCall(f"a lease for {seconds} s: above 0, at most {MAX_LEASE_SECONDS} can be")


def check_limit(limit: int) -> None:
    """Check the number of seeds asked for. Raises ``BadCall``."""
    if not 1 <= limit <= MAX_BATCH:
        raise BadCall(f"{limit} seeds at once: 1 to {MAX_BATCH} can be")


def rest_of(counts: SegmentCounts) -> SegmentCounts:
    """Return the counts that remain of an emptied segment; they are consistent by themselves."""
    return SegmentCounts(
        added=counts.forgotten,
        forgotten=counts.forgotten,
        duplicates=counts.duplicates,
        retried=counts.retried,
        expired=counts.expired,
        late=counts.late,
    )


def pending_state(known: Known) -> State:
    """Return the state of an imported seed: a leased one becomes pending."""
    if known.state in FINAL:
        return known.state
    return State.RETRY if known.retry else State.INIT


def check_batch(items: Sequence[object]) -> None:
    """Check the size of a batch. Raises ``BadCall``."""
    if len(items) > MAX_BATCH:
        raise BadCall(f"{len(items)} at once, at most {MAX_BATCH} can be")
