"""Weighted polling: several inbounds share the polls by their weights (seed S2.17).

Smooth weighted round robin: every candidate gains its weight, the one with the most credit is
polled and pays what all of them have gained. So 5, 1, 1 gives a a b a c a a and never five in a
row. An inbound that had no items rests a little, longer each time, and the others share its part;
its credit is kept. One whose turn it is and which has all its threads at work makes the other
inbounds of its project wait, or they would get more than their share; only for ``HOLD_SECONDS``
though, so that one slow batch does not stop them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

# An inbound: the project's id, and its name.
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


class Polling:
    """Choose the inbound to poll next. Times are monotonic, in seconds. Not thread-safe."""

    def __init__(
        self,
        weights: Mapping[Key, int],
        *,
        first_rest: float = FIRST_REST_SECONDS,
        longest_rest: float = LONGEST_REST_SECONDS,
    ) -> None:
        """A weight below 1 counts as 1: every inbound is polled now and then."""
        self._entries = {key: _Entry(max(1, weight)) for key, weight in weights.items()}
        self._first_rest = first_rest
        self._longest_rest = longest_rest

    def turn(
        self, now: float, busy_since: Callable[[Key], float | None] = lambda key: None
    ) -> Key | None:
        """Return the inbound to poll now; None while all of them rest or have to wait.

        Args:
            busy_since: when the last free thread of an inbound was taken; None while one is free.
        """
        ready = {key: entry for key, entry in self._entries.items() if entry.rests_until <= now}
        while ready:
            # Of equals the first in the order of the rule set.
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
        """Note that a poll returned ``count`` items; after 0 the inbound rests."""
        entry = self._entries[key]
        if count:
            entry.rest = entry.rests_until = 0.0
            return
        entry.rest = min(entry.rest * 2 or self._first_rest, self._longest_rest)
        entry.rests_until = now + entry.rest

    def wait(self, now: float) -> float:
        """Return the seconds until an inbound that rests may be polled; 0 when any may be now."""
        if not self._entries:
            return self._longest_rest
        return max(0.0, min(entry.rests_until for entry in self._entries.values()) - now)
