"""``self.seeds``: adds seeds to the frontier of the run."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from datetime import datetime, timedelta
from typing import Any

from yardkit.protocol import SeedAnswer
from yardspider.seeds.client import RunSeeds
from yardspider.seeds.outbox import PendingSeeds
from yardspider.seeds.port import SeedCounts
from yardspider.seeds.seed import Seed


class PendingSeed:
    """A seed being added. Await it for the service's answer."""

    __slots__ = ("_adding",)

    def __init__(self, adding: PendingSeeds) -> None:
        self._adding = adding

    def __await__(self) -> Generator[Any, None, SeedAnswer]:
        answers = yield from self._adding.__await__()
        return answers[0]


class Seeds:
    """Adds seeds to the run's frontier in batches.

    An added seed is never lost: the run ends only after the service has confirmed it, and fails
    when the service is unreachable for ``seed_service_seconds``. A seed found on the page of
    another seed is better yielded: it is then added with that seed's finish.
    """

    def __init__(self, seed_client: RunSeeds) -> None:
        self._seed_client = seed_client

    def add(
        self,
        data: str | Seed,
        *,
        active_at: datetime | int | None = None,
        active_after: timedelta | None = None,
        max_retry: int | None = None,
        ext: dict[str, Any] | None = None,
        urgent: bool = False,
    ) -> PendingSeed:
        """Add one; the arguments are those of ``Seed``.

        May be called from any callback. In an ``async def`` it can be awaited for the
        answer: ``code`` is "new", "duplicate", or the reason of a refusal.

        Raises:
            ValueError: as ``Seed``.
            RunFailed: the run has no frontier; it fails.
        """
        seed = data
        if not isinstance(seed, Seed):
            seed = Seed(seed, active_at, active_after, max_retry, ext, urgent)
        return PendingSeed(self._seed_client.add([seed]))

    def add_all(self, seeds: Iterable[str | Seed]) -> PendingSeeds:
        """Add many; awaited, it returns one answer for each, in order. Raises as ``add``."""
        made = [Seed(seed) if isinstance(seed, str) else seed for seed in seeds]
        return self._seed_client.add(made)

    @property
    def counts(self) -> SeedCounts:
        """What the run has done with seeds so far."""
        return self._seed_client.counts
