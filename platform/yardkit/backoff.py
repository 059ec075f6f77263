"""Exponential back-off with jitter, the one formula for every retry."""

from __future__ import annotations

from yardkit.jitter import jitter

# 2.0 ** 30 times any first wait is beyond every limit; larger exponents would overflow.
_MOST_DOUBLINGS = 30


def back_off(failures: int, first: float, longest: float) -> float:
    """Return the seconds to wait after ``failures`` failures in a row (1 for the first).

    Doubles from ``first`` to at most ``longest``, then takes a random half to whole of it, so that
    a hundred clients of a restarted server do not return together.
    """
    whole = min(longest, first * 2.0 ** min(max(failures, 1) - 1, _MOST_DOUBLINGS))
    return jitter(whole, 0.5, 1.0)


class Backoff:
    """Count consecutive failures and return growing waits. Not thread-safe."""

    def __init__(self, first: float = 0.2, longest: float = 5.0) -> None:
        self.first = first
        self.longest = longest
        self.failures = 0

    def seconds(self) -> float:
        """Count one more failure and return the wait before the next try, in seconds."""
        self.failures += 1
        return back_off(self.failures, self.first, self.longest)

    def reset(self) -> None:
        """Start again at the first wait, after a success."""
        self.failures = 0
