"""Requests that have been sent and are not settled yet: time-outs, retries, late answers.

All time-outs of a run are equally long, so the queue of their deadlines is in order by itself and
looking after them costs the same at ten requests as at ten thousand (no scan, no heap).
"""

from __future__ import annotations

import heapq
from collections import deque

import msgspec

from yardkit.protocol import RequestItem, encode_request
from yardspider.request import Request


class Flight:
    """One request on its way, through all of its attempts.

    attempt: the latest one sent, from 1. answered: the latest one an answer was accepted for.
    out: it was sent and no answer has come. done: it has ended, whatever queue still holds it.
    """

    __slots__ = (
        "agent",
        "answered",
        "attempt",
        "done",
        "downloads",
        "id",
        "out",
        "raw",
        "request",
        "skipped",
        "timeouts",
    )

    def __init__(self, number: int, request: Request, agent: str) -> None:
        self.id = number
        self.request = request
        self.agent = agent
        self.raw: msgspec.Raw = encode_request(request.download())
        self.attempt = 0
        self.answered = 0
        self.timeouts = 0
        self.downloads = 0
        self.skipped = False
        self.out = False
        self.done = False


class Flights:
    """Every unsettled request of a run, by id."""

    def __init__(self, *, timeout_seconds: float) -> None:
        self._timeout_seconds = timeout_seconds
        self._flights: dict[int, Flight] = {}
        self._deadlines: deque[tuple[float, int, Flight]] = deque()
        self._waiting: list[tuple[float, int, Flight]] = []
        self._ready: deque[Flight] = deque()
        self._last_id = 0
        self.out = 0

    def __len__(self) -> int:
        return len(self._flights)

    def open(self, request: Request, agent: str) -> Flight:
        """Take a request in; ``launch`` it next."""
        self._last_id += 1
        flight = self._flights[self._last_id] = Flight(self._last_id, request, agent)
        return flight

    def launch(self, flight: Flight, now: float) -> RequestItem:
        """The next attempt: what to send. Its time-out starts now."""
        if not flight.out:
            flight.out = True
            self.out += 1
        flight.attempt += 1
        self._deadlines.append((now + self._timeout_seconds, flight.attempt, flight))
        request = flight.request
        return RequestItem(flight.id, flight.attempt, request.host, flight.agent, flight.raw)

    def find(self, number: int, attempt: int) -> Flight | None:
        """The flight an answer to this attempt belongs to; None for a duplicate.

        An answer that comes after its time-out is still the page: it is taken, and the answer
        to the later attempt is then the duplicate (seed S1.45).
        """
        flight = self._flights.get(number)
        if flight is None or not flight.answered < attempt <= flight.attempt:
            return None
        return flight

    def settle(self, flight: Flight) -> None:
        """It has ended; every later answer to it is a duplicate."""
        self._land(flight)
        flight.done = True
        del self._flights[flight.id]

    def postpone(self, flight: Flight, due: float) -> None:
        """Send it again at ``due``. Until then it is not out."""
        self._land(flight)
        heapq.heappush(self._waiting, (due, flight.id, flight))

    def _land(self, flight: Flight) -> None:
        if flight.out:
            flight.out = False
            self.out -= 1

    def expire(self, now: float) -> list[Flight]:
        """Flights whose latest attempt has had no answer in time; each attempt only once."""
        late = []
        deadlines = self._deadlines
        while deadlines and deadlines[0][0] <= now:
            _, attempt, flight = deadlines.popleft()
            if flight.out and flight.attempt == attempt:
                late.append(flight)
        return late

    def wake(self, now: float) -> None:
        """Move what has waited long enough to those that are sent next."""
        waiting = self._waiting
        while waiting and waiting[0][0] <= now:
            flight = heapq.heappop(waiting)[2]
            if not flight.done:
                self._ready.append(flight)

    def take_ready(self) -> Flight | None:
        """The next retry to send; it goes before new requests."""
        while self._ready:
            flight = self._ready.popleft()
            if not flight.done:
                return flight
        return None

    @property
    def has_ready(self) -> bool:
        return bool(self._ready)

    def next_deadline(self) -> float | None:
        """When ``expire`` or ``wake`` has something to do, at the earliest."""
        deadlines = self._deadlines
        while deadlines and not (
            deadlines[0][2].out and deadlines[0][2].attempt == deadlines[0][1]
        ):
            deadlines.popleft()
        first = deadlines[0][0] if deadlines else None
        if self._waiting and (first is None or self._waiting[0][0] < first):
            return self._waiting[0][0]
        return first
