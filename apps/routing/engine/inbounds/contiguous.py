"""Which positions of a log are behind us, when they are finished in any order.

A log (a partition of Kafka, a file) remembers one position: all before it is done. Whoever
finishes 7 before 5 must not say 8, or 5 is lost with the next crash.
"""

from __future__ import annotations

from collections import deque


class Contiguous:
    """Positions in rising order, each handed out once and finished in any order.

    ``safe`` is the position behind the last one that no unfinished one comes before: the one to
    remember. It never goes back and never passes an unfinished position.
    """

    def __init__(self, start: int | None = None) -> None:
        self.safe = start
        # (position, the one behind it), as handed out
        self._order: deque[tuple[int, int]] = deque()
        self._open: set[int] = set()
        # No position before this one can be added.
        self.behind = start

    def __len__(self) -> int:
        """How many are handed out and unfinished."""
        return len(self._open)

    def add(self, position: int, behind: int) -> None:
        """``position`` is handed out; the next one is at ``behind`` or later."""
        if behind <= position or (self.behind is not None and position < self.behind):
            raise ValueError(f"position {position} to {behind} comes after {self.behind}")
        self._order.append((position, behind))
        self._open.add(position)
        self.behind = behind

    def is_open(self, position: int) -> bool:
        """Whether it was handed out and is not finished."""
        return position in self._open

    def finish(self, position: int) -> bool:
        """This one is done; whether ``safe`` has moved. Twice or unknown changes nothing."""
        self._open.discard(position)
        before = self.safe
        while self._order and self._order[0][0] not in self._open:
            self.safe = self._order.popleft()[1]
        return self.safe != before
