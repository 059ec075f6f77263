"""Interface of the frontier of a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Protocol

from yardkit.protocol import Seed, SeedAnswer, SeedFinish, SeedsFinished, SeedsLeased


class RunFrontier(Protocol):
    """The seeds of one frontier, for one run.

    Every call may raise ``yardkit.seeds.SeedServiceAway`` and ``CallRefused``; repeating a call is
    harmless. ``pause_seconds``: wait after an empty lease; 0 where the lease call itself waits.
    """

    pause_seconds: float

    def now(self) -> int:
        """Return ms since 1970, by the clock of the deadlines."""

    async def open(self) -> None:
        """Connect; before the first call. Raises ``RunFailed``."""

    async def add(self, seeds: Sequence[Seed]) -> list[SeedAnswer]:
        """Add seeds; return one answer for each, in order."""

    async def lease(self, limit: int, *, seconds: float, wait_seconds: float) -> SeedsLeased:
        """Lease up to ``limit`` seeds."""

    async def finish(self, finishes: Sequence[SeedFinish], found: Sequence[Seed]) -> SeedsFinished:
        """Finish leased seeds, and add those found."""

    async def extend(self, generation: int, *, seconds: float) -> int:
        """Extend a lease; return the new deadline, ms since 1970."""

    async def give_back(self, generation: int) -> int:
        """End a lease; return how many of its seeds are pending again."""

    async def close(self) -> None:
        """Close; no call follows."""


@dataclass(slots=True)
class SeedCounts:
    """What a run did with seeds. Of those it leased, at its end:

        leased = succeeded + failed + retried + ignored + given_back + late + left

    ``retried``: this try failed, another one follows. ``late``: the lease had expired before the
    finish, which changed nothing. ``left``: the service was unreachable at the end; they come back
    when their lease expires. Of the seeds it found: ``added`` were new, ``duplicates`` known,
    ``refused`` invalid; for ``unconfirmed`` it is unknown.
    """

    leased: int = 0
    succeeded: int = 0
    failed: int = 0
    retried: int = 0
    ignored: int = 0
    given_back: int = 0
    late: int = 0
    left: int = 0
    added: int = 0
    duplicates: int = 0
    refused: int = 0
    unconfirmed: int = 0

    def counts(self) -> dict[str, int]:
        """Return the counts by name."""
        return asdict(self)

    @property
    def any(self) -> bool:
        """Whether the run used seeds at all."""
        return any(asdict(self).values())

    def __str__(self) -> str:
        counts = [(name.replace("_", " "), count) for name, count in asdict(self).items() if count]
        return ", ".join(f"{count} {name}" for name, count in counts) or "none"
