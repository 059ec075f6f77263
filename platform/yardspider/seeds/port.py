"""What the engine needs of a frontier, wherever it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Protocol

from yardkit.protocol import Seed, SeedAnswer, SeedFinish, SeedsFinished, SeedsLeased


class Frontier(Protocol):
    """The seeds of one purpose, for one run.

    Every call may raise ``yardkit.seeds.SeedServiceAway`` and ``CallRefused``; it may then be made
    again, which changes nothing that was done. ``pause_seconds``: how long to wait after a lease
    that came back empty; 0 where the lease itself has waited.
    """

    pause_seconds: float

    def now(self) -> int:
        """Ms since 1970, by the clock that deadlines are told in."""

    async def open(self) -> None:
        """Before the first call. Raises ``RunFailed``."""

    async def add(self, seeds: Sequence[Seed]) -> list[SeedAnswer]:
        """One answer for each, in order."""

    async def lease(self, limit: int, *, seconds: float, wait_seconds: float) -> SeedsLeased:
        """Up to ``limit`` seeds."""

    async def finish(self, finishes: Sequence[SeedFinish], found: Sequence[Seed]) -> SeedsFinished:
        """End leased seeds, and add those found."""

    async def extend(self, generation: int, *, seconds: float) -> int:
        """The new deadline, ms since 1970."""

    async def give_back(self, generation: int) -> int:
        """How many seeds of the lease are pending again."""

    async def close(self) -> None:
        """No call follows."""


@dataclass(slots=True)
class SeedCounts:
    """What a run did with seeds. Of those it leased, at its end:

        leased = succeeded + failed + retried + ignored + given_back + late + left

    ``retried``: this try failed, another one follows. ``late``: the lease had run out before the
    finish, which then changed nothing. ``left``: the service could not be told at the end; they
    come back when their lease runs out. Of the seeds it found: ``added`` were new, ``duplicates``
    known, ``refused`` no seeds at all, and of ``unconfirmed`` nobody knows.
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
        """By name."""
        return asdict(self)

    @property
    def any(self) -> bool:
        """Whether the run had to do with seeds at all."""
        return any(asdict(self).values())

    def __str__(self) -> str:
        told = [(name.replace("_", " "), count) for name, count in asdict(self).items() if count]
        return ", ".join(f"{count} {name}" for name, count in told) or "none"
