"""De-duplication of the reports of one sender, and the skew of its clock."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

# Limit of remembered missing numbers. A sender has at most 30 unconfirmed reports, so a larger gap
# means that the queue was purged.
MAX_MISSING: Final = 1000
# Smaller skew is not corrected.
TOLERATED_SECONDS: Final = 5.0
# A clock is behind when this many successive reports are late by the same time. Reports that only
# waited in the queue are each one second less late than the previous one.
STEADY_REPORTS: Final = 5
STEADY_SECONDS: Final = 1.5


@dataclass(slots=True)
class ReceivedNumbers:
    """Report numbers received from one incarnation of a sender: the highest, and the gaps."""

    seq: int = 0
    missing: set[int] = field(default_factory=set)

    def is_new(self, seq: int) -> bool:
        """Whether this report has not been received yet; records it as received."""
        if seq <= self.seq:
            if seq not in self.missing:
                return False
            self.missing.discard(seq)
            return True
        first = max(self.seq + 1, seq - MAX_MISSING)
        self.missing.update(range(first, seq))
        if len(self.missing) > MAX_MISSING:
            self.missing = set(sorted(self.missing)[-MAX_MISSING:])
        self.seq = seq
        return True


@dataclass(slots=True)
class ClockSkew:
    """Estimate of the skew of a sender's clock, from how late its reports arrive.

    ``base`` is the lateness in seconds of the first of ``steady`` successive reports that were
    late by about the same time.
    """

    base: float = 0.0
    steady: int = 0

    def correction(self, late: float) -> int:
        """Return the whole seconds to add to the times of a report that is ``late`` seconds old.

        A report from the future is moved to the present at once. A report from the past may only
        have waited in the queue: it is moved once ``STEADY_REPORTS`` successive reports have been
        late by the same time.
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
        """Seconds by which the clock is behind, negative if it is ahead; 0 while unknown."""
        wrong = abs(self.base) > TOLERATED_SECONDS and self.steady >= STEADY_REPORTS
        return self.base if wrong else 0.0
