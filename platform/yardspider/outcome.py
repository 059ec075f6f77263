"""How a run ended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from yardkit.protocol import FailureNote, RunCounters
from yardspider.accounting import CrawlAccounting
from yardspider.seeds.port import SeedCounts

State = Literal["exited", "failed", "stopped"]


@dataclass(frozen=True, slots=True)
class CrawlOutcome:
    """How a run ended; ``counters`` are the last ones published.

    ``seeds``: what it did with seeds.
    """

    state: State
    reason: str
    counters: RunCounters
    accounting: CrawlAccounting
    seconds: float
    seeds: SeedCounts = field(default_factory=SeedCounts)

    @property
    def failures(self) -> Sequence[FailureNote]:
        """The first failures; the published counters have all."""
        return self.accounting.first_failures
