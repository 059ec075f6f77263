"""How long to wait before the next try to connect."""

from __future__ import annotations

from yardkit.spread import spread

FIRST_SECONDS = 0.2
LONGEST_SECONDS = 5.0


class Backoff:
    """Doubles from 0.2 s to 5 s; each wait is spread over half of itself, so that a hundred
    clients of a restarted broker do not come back in the same moment."""

    def __init__(self) -> None:
        self._next = FIRST_SECONDS

    def reset(self) -> None:
        self._next = FIRST_SECONDS

    def seconds(self) -> float:
        """The wait before the next try."""
        wait = self._next
        self._next = min(self._next * 2, LONGEST_SECONDS)
        return spread(wait, 0.5, 1.0)
