"""Whose turn it is: several inbounds share the polls by their weights (seed S2.17).

Smooth weighted round robin: every candidate gains its weight, the richest is polled and pays what
all of them have gained. So 5, 1, 1 gives a a b a c a a and never five in a row. One that had
nothing rests a little, longer each time, and the others share its part; its credit waits for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

FIRST_REST_SECONDS: Final = 0.01
LONGEST_REST_SECONDS: Final = 0.5


@dataclass(slots=True)
class _Entry:
    weight: int
    credit: int = 0
    rest: float = 0.0
    rests_until: float = 0.0


class Polling:
    """Says which inbound is polled next. Times are of a clock that never goes back, in seconds."""

    def __init__(
        self,
        weights: Mapping[str, int],
        *,
        first_rest: float = FIRST_REST_SECONDS,
        longest_rest: float = LONGEST_REST_SECONDS,
    ) -> None:
        """A weight below 1 counts as 1: whoever is there has a turn now and then."""
        self._entries = {name: _Entry(max(1, weight)) for name, weight in weights.items()}
        self._first_rest = first_rest
        self._longest_rest = longest_rest

    def turn(self, now: float) -> str | None:
        """The inbound to poll now; None while all of them rest."""
        ready = [(name, each) for name, each in self._entries.items() if each.rests_until <= now]
        if not ready:
            return None
        for _name, entry in ready:
            entry.credit += entry.weight
        # Of equals the first in the order of the rule set.
        name, chosen = max(ready, key=lambda pair: pair[1].credit)
        chosen.credit -= sum(entry.weight for _name, entry in ready)
        return name

    def found(self, name: str, count: int, now: float) -> None:
        """The poll of ``name`` gave ``count`` items; none of them lets it rest."""
        entry = self._entries[name]
        if count:
            entry.rest = entry.rests_until = 0.0
            return
        entry.rest = min(entry.rest * 2 or self._first_rest, self._longest_rest)
        entry.rests_until = now + entry.rest

    def wait(self, now: float) -> float:
        """Seconds until somebody can be polled: 0 when somebody can."""
        if not self._entries:
            return self._longest_rest
        return max(0.0, min(entry.rests_until for entry in self._entries.values()) - now)
