"""Which reports of a sender have been added, and by how much its clock is wrong."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

# Numbers between two that came, which may still come. A sender has at most 30 under way, so more
# than this means that somebody has emptied the queue.
MOST_MISSING: Final = 1000
# A clock that is wrong by no more than this is left alone.
TOLERATED_SECONDS: Final = 5.0
# A sender's clock is behind when so many reports in a row are late by the same time. Reports that
# only waited are late by a second less each.
STEADY_REPORTS: Final = 5
STEADY_SECONDS: Final = 1.5


@dataclass(slots=True)
class ReceivedNumbers:
    """What was heard of one life of one sender: the highest number, and those missing below it."""

    seq: int = 0
    missing: set[int] = field(default_factory=set)

    def is_new(self, seq: int) -> bool:
        """Whether the report of this number has not been added yet; it counts as added now."""
        if seq <= self.seq:
            if seq not in self.missing:
                return False
            self.missing.discard(seq)
            return True
        first = max(self.seq + 1, seq - MOST_MISSING)
        self.missing.update(range(first, seq))
        if len(self.missing) > MOST_MISSING:
            self.missing = set(sorted(self.missing)[-MOST_MISSING:])
        self.seq = seq
        return True


@dataclass(slots=True)
class ClockSkew:
    """How late the reports of one sender come by its own clock.

    ``base``: of the first of ``steady`` reports in a row that were late by about the same time.
    """

    base: float = 0.0
    steady: int = 0

    def correction(self, late: float) -> int:
        """Whole seconds to add to the sender's times, of a report that is ``late`` seconds old.

        One from the future is moved to the present at once: nothing comes before it was sent. One
        from the past may only have waited, so its time is believed until ``STEADY_REPORTS`` in a
        row have been late by the same time.
        """
        if self.steady and abs(late - self.base) <= STEADY_SECONDS:
            self.steady += 1
        else:
            self.base, self.steady = late, 1
        if late < -TOLERATED_SECONDS:
            return round(late)
        if late > TOLERATED_SECONDS and self.steady >= STEADY_REPORTS:
            return round(self.base)
        return 0

    @property
    def behind_seconds(self) -> float:
        """By how much the clock is behind (negative: ahead); 0 while that is not known."""
        wrong = abs(self.base) > TOLERATED_SECONDS and self.steady >= STEADY_REPORTS
        return self.base if wrong else 0.0
