"""Queue of requests that have not been sent yet, without duplicates."""

from __future__ import annotations

import bisect
from collections import deque

from yardspider.request import Request


class RecentFingerprints:
    """Set of the latest fingerprints, in two generations of ``limit / 2``.

    Exact for the first ``limit`` fingerprints. Beyond that the older generation is dropped as a
    whole, so at least the latest ``limit / 2`` are known. A forgotten one counts as new: its
    request is fetched again, never left out. Costs about 100 bytes each.
    """

    def __init__(self, limit: int) -> None:
        self._size = max(1, limit // 2)
        self._young: set[bytes] = set()
        self._old: set[bytes] = set()

    def add(self, fingerprint: bytes) -> bool:
        """Return whether it is new."""
        if fingerprint in self._young or fingerprint in self._old:
            return False
        if len(self._young) >= self._size:
            self._young, self._old = set(), self._young
        self._young.add(fingerprint)
        return True


class Scheduler:
    """Queue of requests by priority, first in, first out within one; drops duplicates.

    ``owner`` goes into every fingerprint, so that two runs never share one. Requests
    of a seed are deduplicated within one try of it: the next try fetches its pages again.
    ``remembered`` limits the known fingerprints, see ``RecentFingerprints``.
    """

    def __init__(self, owner: str, remembered: int) -> None:
        self._owner = owner
        self._seen = RecentFingerprints(remembered)
        self._queues: dict[int, deque[Request]] = {}
        self._priorities: list[int] = []  # rising; the last one is served first
        self._length = 0

    def add(self, request: Request) -> bool:
        """Queue a request. Returns False for a duplicate."""
        fingerprint = request.fingerprint(self._owner)
        if request.seed is None:
            new = self._seen.add(fingerprint)
        else:
            new = fingerprint not in request.seed.seen
            request.seed.seen.add(fingerprint)
        if not new and not request.dont_filter:
            return False
        queue = self._queues.get(request.priority)
        if queue is None:
            queue = self._queues[request.priority] = deque()
            bisect.insort(self._priorities, request.priority)
        queue.append(request)
        self._length += 1
        return True

    def pop(self) -> Request:
        """Return the next request. Raises ``IndexError`` when empty."""
        priority = self._priorities[-1]
        queue = self._queues[priority]
        request = queue.popleft()
        self._length -= 1
        if not queue:
            del self._queues[priority]
            self._priorities.pop()
        return request

    def __len__(self) -> int:
        return self._length
