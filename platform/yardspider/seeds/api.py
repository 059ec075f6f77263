"""``self.seeds``: what a spider says to its frontier."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from datetime import datetime, timedelta
from typing import Any

from yardkit.protocol import SeedAnswer
from yardspider.seeds.desk import SeedDesk
from yardspider.seeds.outbox import Adding
from yardspider.seeds.port import SeedCounts
from yardspider.seeds.seed import Seed


class One:
    """A seed on its way. Await it for the service's answer."""

    __slots__ = ("_adding",)

    def __init__(self, adding: Adding) -> None:
        self._adding = adding

    def __await__(self) -> Generator[Any, None, SeedAnswer]:
        answers = yield from self._adding.__await__()
        return answers[0]


class Seeds:
    """Adds seeds to the run's frontier, at once and in batches.

    What is added is never lost: the run does not end before the service has confirmed it, and
    fails, saying why, when the service is away for ``seed_service_seconds``. A seed that was found
    on the page of another one is better yielded: it is then added after that one's finish.
    """

    def __init__(self, desk: SeedDesk) -> None:
        self._desk = desk

    def add(
        self,
        data: str | Seed,
        *,
        active_at: datetime | int | None = None,
        active_after: timedelta | None = None,
        max_retry: int | None = None,
        ext: dict[str, Any] | None = None,
        urgent: bool = False,
    ) -> One:
        """Add one; the arguments are those of ``Seed``.

        Call it from any callback. In an ``async def`` it may be awaited, for the answer: ``code``
        is "new", "duplicate", or why it was refused.

        Raises:
            ValueError: as ``Seed``.
            RunFailed: the run has no frontier; it fails.
        """
        seed = data
        if not isinstance(seed, Seed):
            seed = Seed(seed, active_at, active_after, max_retry, ext, urgent)
        return One(self._desk.add([seed]))

    def add_all(self, seeds: Iterable[str | Seed]) -> Adding:
        """Add many; awaited, it gives one answer for each, in order. Raises as ``add``."""
        made = [Seed(one) if isinstance(one, str) else one for one in seeds]
        return self._desk.add(made)

    @property
    def counts(self) -> SeedCounts:
        """What the run has done with seeds so far."""
        return self._desk.counts
