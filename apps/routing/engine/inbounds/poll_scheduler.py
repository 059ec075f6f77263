"""Weighted polling of inbounds: smooth weighted round robin with back-off.

On each turn every candidate gains credit equal to its weight; the one with the most credit is
polled and pays the sum of all weights. Weights 5, 1, 1 give the order a a b a c a a, never five in
a row. An inbound without items is skipped for a time that doubles with each empty poll; it keeps
its credit, and the others share its turns. If the chosen inbound has no free thread, the other
inbounds of its project wait, because they would otherwise exceed their share. They wait for
``HOLD_SECONDS`` at most, so that one slow batch does not block them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

# (project id, name of the inbound)
Key = tuple[int, str]

FIRST_REST_SECONDS: Final = 0.01
LONGEST_REST_SECONDS: Final = 0.5
HOLD_SECONDS: Final = 1.0


@dataclass(slots=True)
class _Entry:
    weight: int
    credit: int = 0
    rest: float = 0.0
    rests_until: float = 0.0


class PollScheduler:
    """Scheduler of polls. Times are monotonic, in seconds. Not thread-safe."""

    def __init__(
        self,
        weights: Mapping[Key, int],
        *,
        first_rest: float = FIRST_REST_SECONDS,
        longest_rest: float = LONGEST_REST_SECONDS,
    ) -> None:
        """Create a scheduler; a weight below 1 counts as 1, so that no inbound starves."""
        self._entries = {key: _Entry(max(1, weight)) for key, weight in weights.items()}
        self._first_rest = first_rest
        self._longest_rest = longest_rest

    def turn(
        self, now: float, busy_since: Callable[[Key], float | None] = lambda key: None
    ) -> Key | None:
        """Return the inbound to poll now; None while all inbounds rest or must wait.

        Args:
            busy_since: return the time since which an inbound has no free thread, else None.
        """
        ready = {key: entry for key, entry in self._entries.items() if entry.rests_until <= now}
        while ready:
            # On a tie the first in the order of the rule set wins.
            chosen = max(ready, key=lambda key: ready[key].credit + ready[key].weight)
            since = busy_since(chosen)
            if since is None:
                for entry in ready.values():
                    entry.credit += entry.weight
                ready[chosen].credit -= sum(entry.weight for entry in ready.values())
                return chosen
            held = now < since + HOLD_SECONDS
            ready = {
                key: entry
                for key, entry in ready.items()
                if key != chosen and not (held and key[0] == chosen[0])
            }
        return None

    def found(self, key: Key, count: int, now: float) -> None:
        """Record that a poll returned ``count`` items; after an empty poll the inbound rests."""
        entry = self._entries[key]
        if count:
            entry.rest = entry.rests_until = 0.0
            return
        entry.rest = min(entry.rest * 2 or self._first_rest, self._longest_rest)
        entry.rests_until = now + entry.rest

    def wait(self, now: float) -> float:
        """Return the seconds until the next inbound may be polled; 0 if one may be polled now."""
        if not self._entries:
            return self._longest_rest
        return max(0.0, min(entry.rests_until for entry in self._entries.values()) - now)
