"""Low watermark of a log whose entries are finished out of order.

A log (a Kafka partition, a file) stores one offset, before which everything is done. If entry 7 is
finished before entry 5, offset 8 must not be committed, or a crash loses entry 5.
"""

from __future__ import annotations

from collections import deque


class Contiguous:
    """Tracker of positions that are added in ascending order and finished in any order.

    ``safe`` is the offset to commit: the end of the longest finished prefix. It never decreases and
    never passes an unfinished position. ``behind`` is the end of the last added position. Not
    thread-safe.
    """

    def __init__(self, start: int | None = None) -> None:
        self.safe = start
        # (position, end), in the order of ``add``
        self._order: deque[tuple[int, int]] = deque()
        self._open: set[int] = set()
        # The next position to add must not be less than this.
        self.behind = start

    def __len__(self) -> int:
        """Return the number of unfinished positions."""
        return len(self._open)

    def add(self, position: int, behind: int) -> None:
        """Add a position; the next one is at ``behind`` or later.

        Raises ``ValueError`` if the positions are not ascending.
        """
        if behind <= position or (self.behind is not None and position < self.behind):
            raise ValueError(f"position {position} to {behind} comes after {self.behind}")
        self._order.append((position, behind))
        self._open.add(position)
        self.behind = behind

    def is_open(self, position: int) -> bool:
        """Return whether a position was added and is not finished."""
        return position in self._open

    def finish(self, position: int) -> bool:
        """Mark a position as finished; return whether ``safe`` has changed.

        Unknown or already finished positions are ignored.
        """
        self._open.discard(position)
        before = self.safe
        while self._order and self._order[0][0] not in self._open:
            self.safe = self._order.popleft()[1]
        return self.safe != before
