"""Long poll: leases that found no due seed and wait for one."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from yardkit.broker import Delivery
from yardkit.protocol import LeaseSeeds


@dataclass(frozen=True, slots=True)
class WaitingLease:
    """Call that waits for a due seed. ``until``: deadline on the monotonic clock."""

    delivery: Delivery
    call: LeaseSeeds
    until: float


# Tries to answer a call; returns whether it did and, if not, when the next seed is due. With True
# it answers even without seeds.
Ask = Callable[[WaitingLease, bool], tuple[bool, int | None]]


class LongPollQueue:
    """FIFO queues of waiting calls, one per frontier. ``wake`` may be called from any thread."""

    def __init__(self) -> None:
        self._waiting: dict[int, deque[WaitingLease]] = {}
        # When the next seed of a frontier becomes due, ms since 1970.
        self._due: dict[int, int] = {}
        self._woken: set[int] = set()

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    def park(self, lease: WaitingLease, next_due: int | None) -> None:
        """Let a call wait until a seed is due or its wait is over."""
        frontier = lease.call.frontier
        self._waiting.setdefault(frontier, deque()).append(lease)
        self._note(frontier, next_due)

    def wake(self, frontier: int) -> None:
        """Mark a frontier as changed: its waiting calls are tried again."""
        self._woken.add(frontier)

    def wake_all(self) -> None:
        """Try all waiting calls again."""
        self._woken.update(list(self._waiting))

    def serve(self, ask: Ask, *, now: int, at: float) -> None:
        """Answer calls that may get seeds, and those whose wait is over."""
        for frontier, line in list(self._waiting.items()):
            awake = frontier in self._woken or self._due.get(frontier, now + 1) <= now
            self._woken.discard(frontier)
            while line and awake:
                awake, next_due = ask(line[0], False)
                if awake:
                    line.popleft()
                else:
                    self._note(frontier, next_due)
            for lease in [waiting for waiting in line if waiting.until <= at]:
                line.remove(lease)
                ask(lease, True)
            if not line:
                self._waiting.pop(frontier, None)
                self._due.pop(frontier, None)
        # Frontiers without a waiting lease are skipped.
        self._woken.intersection_update(list(self._waiting))

    def take(self, frontier: int, owner: str, name: str) -> list[WaitingLease]:
        """Remove and return the waiting leases of this call: its repetition replaces them."""
        line = self._waiting.get(frontier, deque())
        leases = [
            waiting for waiting in line if (waiting.call.owner, waiting.call.call) == (owner, name)
        ]
        for lease in leases:
            line.remove(lease)
        return leases

    def take_all(self) -> list[WaitingLease]:
        """Empty the queues; return all waiting calls."""
        leases = [lease for line in self._waiting.values() for lease in line]
        self._waiting.clear()
        self._due.clear()
        return leases

    def pause(self, *, now: int, at: float, most: float) -> float:
        """Return the seconds until the next waiting lease must be served."""
        if self._woken and self._waiting:
            return 0.0
        ends = [line[0].until - at for line in self._waiting.values() if line]
        dues = [(due - now) / 1000 for due in self._due.values()]
        return max(0.0, min([most, *ends, *dues]))

    def _note(self, frontier: int, next_due: int | None) -> None:
        if next_due is None:
            self._due.pop(frontier, None)
        else:
            self._due[frontier] = next_due
