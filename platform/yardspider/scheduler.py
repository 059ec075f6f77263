"""Requests that wait for their turn, each made only once."""

from __future__ import annotations

import bisect
from collections import deque

from yardspider.request import Request


class Scheduler:
    """A queue by priority, first in first out inside one, that knows what it has seen.

    ``owner`` goes into every fingerprint (seed S1.41), so that two runs never share one. Requests
    of a seed are made once a seed: another try of it fetches its pages again.
    """

    def __init__(self, owner: str) -> None:
        self._owner = owner
        self._seen: set[bytes] = set()
        self._queues: dict[int, deque[Request]] = {}
        self._priorities: list[int] = []  # rising; the last one is served first
        self._length = 0

    def add(self, request: Request) -> bool:
        """Queue it. False when the same request was added before."""
        fingerprint = request.fingerprint(self._owner)
        seen = self._seen if request.seed is None else request.seed.seen
        if fingerprint in seen and not request.dont_filter:
            return False
        seen.add(fingerprint)
        queue = self._queues.get(request.priority)
        if queue is None:
            queue = self._queues[request.priority] = deque()
            bisect.insort(self._priorities, request.priority)
        queue.append(request)
        self._length += 1
        return True

    def pop(self) -> Request:
        """The next request. Raises ``IndexError`` when there is none."""
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
