"""Short ways to say what tests of stores say often."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from apps.seeds.engine.rules import FrontierRules
from apps.seeds.engine.seeds import DEFAULT_SEGMENT, Outcome, ResolvedSeed, Seed
from apps.seeds.stores.base import Finish, Finished, Lease, ReopenedCount, SeedStore, SegmentCounts

FRONTIER = 1
DAY = 86_400_000
# Midnight of a day in UTC.
TODAY = 1_780_012_800_000
NOW = TODAY + 10 * 3_600_000
RULES = FrontierRules()


def seed(data: str, **others: Any) -> ResolvedSeed:
    """A seed by the default rules."""
    return RULES.resolve(Seed(data, **others))


def seeds(*names: str, **others: Any) -> list[ResolvedSeed]:
    """Several alike."""
    return [seed(name, **others) for name in names]


def add(store: SeedStore, *names: str, now: int = NOW, **others: Any) -> list[bool]:
    """Which of them were new."""
    return [one.new for one in store.add(FRONTIER, seeds(*names, **others), now=now)]


def lease(store: SeedStore, limit: int = 100, *, owner: str = "w1", now: int = NOW) -> Lease:
    """For a minute."""
    return store.lease(FRONTIER, owner=owner, limit=limit, seconds=60, now=now)


def keys(taken: Lease) -> list[str]:
    """In the order to crawl them."""
    return [one.key for one in taken.seeds]


def finish(
    store: SeedStore,
    taken: Lease,
    outcome: Outcome = Outcome.SUCCESS,
    *,
    owner: str = "w1",
    now: int = NOW,
) -> list[Finished]:
    """All seeds of a lease."""
    finishes = [Finish(one.segment, one.key, taken.generation, outcome) for one in taken.seeds]
    return store.finish(FRONTIER, finishes, owner=owner, now=now)


def codes(answers: Iterable[Finished]) -> list[str]:
    """What was said to each finish."""
    return [one.code for one in answers]


def books(store: SeedStore, segment: int = DEFAULT_SEGMENT) -> SegmentCounts:
    """Of a segment, after a look whether they balance."""
    found = {one.segment: one.books for one in store.segments(FRONTIER)}[segment]
    assert found.balance(), found
    return found


def reopen_failed(store: SeedStore, source: int, target: int, *, now: int = NOW) -> ReopenedCount:
    """All of a segment, as the services do it: slice by slice."""
    reopened = duplicates = 0
    after: bytes | None = b""
    while after is not None:
        done = store.reopen_failed_slice(FRONTIER, source, target, after=after, limit=2000, now=now)
        reopened += done.reopened
        duplicates += done.duplicates
        after = done.after
    return ReopenedCount(reopened, duplicates)
