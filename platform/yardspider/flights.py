"""Requests that have been sent and are not settled: timeouts, retries, late answers.

The timeouts of an SDK's run are equally long, so the queue of their deadlines is sorted by itself
and costs the same for ten requests as for ten thousand (no scan, no heap). Only requests held by
the center, and requests with a timeout of their own, have deadlines in a heap.
"""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from typing import Generic, Protocol, TypeVar

import msgspec

from yardkit.protocol import DownloadRequest, RequestItem, encode_request


class Sendable(Protocol):
    """A request of any kind: what an agent needs, and the host by which the center holds it."""

    @property
    def host(self) -> str: ...

    def download(self) -> DownloadRequest: ...


R = TypeVar("R", bound=Sendable)


class Flight(Generic[R]):
    """One request through all of its attempts.

    attempt: number of the latest one sent, from 1. given_up: numbers of those that timed out.
    out: the latest one was sent and has not ended. held: it is out, and held by the center.
    done: the request has ended; queues may still contain it.
    timeout_seconds: time for an answer.
    """

    __slots__ = (
        "agent",
        "attempt",
        "done",
        "downloads",
        "given_up",
        "held",
        "id",
        "out",
        "raw",
        "request",
        "skipped",
        "timeout_seconds",
        "timeouts",
        "timer",
    )

    def __init__(self, number: int, request: R, agent: str, timeout_seconds: float) -> None:
        self.id = number
        self.request = request
        self.agent = agent
        self.raw: msgspec.Raw = encode_request(request.download())
        self.timeout_seconds = timeout_seconds
        self.attempt = 0
        self.given_up: tuple[int, ...] = ()
        self.timeouts = 0
        self.downloads = 0
        self.skipped = False
        self.out = False
        self.held = False
        self.done = False
        # Identifies the one valid entry in the deadlines; others are stale.
        self.timer = 0


class Flights(Generic[R]):
    """Every unsettled request of a run, by id.

    ``out``: number that are out, ``held``: number of these held by the center. Times are seconds
    of a monotonic clock.
    """

    def __init__(self, *, timeout_seconds: float) -> None:
        self._timeout_seconds = timeout_seconds
        self._flights: dict[int, Flight[R]] = {}
        self._timers = itertools.count(1)
        self._deadlines: deque[tuple[float, int, Flight[R]]] = deque()
        self._own_deadlines: list[tuple[float, int, Flight[R]]] = []
        self._waiting: list[tuple[float, int, Flight[R]]] = []
        self._ready: deque[Flight[R]] = deque()
        self._last_id = 0
        self.out = 0
        self.held = 0

    def __len__(self) -> int:
        return len(self._flights)

    @property
    def active(self) -> int:
        """Number out and not held: an answer may come at any moment."""
        return self.out - self.held

    def open(self, request: R, agent: str, timeout_seconds: float | None = None) -> Flight[R]:
        """Add a request; ``launch`` it next. ``timeout_seconds``: instead of the run's."""
        self._last_id += 1
        seconds = self._timeout_seconds if timeout_seconds is None else timeout_seconds
        flight = self._flights[self._last_id] = Flight(self._last_id, request, agent, seconds)
        return flight

    def launch(self, flight: Flight[R], now: float) -> RequestItem:
        """Start the next attempt and its timeout; return the message to send."""
        self._land(flight)
        flight.out = True
        self.out += 1
        flight.attempt += 1
        self._start_timer(flight, now)
        request = flight.request
        return RequestItem(flight.id, flight.attempt, request.host, flight.agent, flight.raw)

    def find(self, number: int, attempt: int) -> Flight[R] | None:
        """Return the flight that an answer to this attempt belongs to; None for a duplicate.

        An answer after its timeout is still accepted; the answer to the later attempt is then the
        duplicate.
        """
        flight = self._flights.get(number)
        if flight is None:
            return None
        awaited = flight.out and attempt == flight.attempt
        return flight if awaited or attempt in flight.given_up else None

    def find_out(self, number: int, attempt: int) -> Flight[R] | None:
        """Return the flight whose latest attempt is this one and is out."""
        flight = self._flights.get(number)
        return flight if flight is not None and flight.out and attempt == flight.attempt else None

    def hold(self, flight: Flight[R], now: float, wait_seconds: float) -> None:
        """Postpone the timeout by the seconds for which the center may hold the request."""
        if not flight.held:
            flight.held = True
            self.held += 1
        flight.timer = next(self._timers)
        due = now + wait_seconds + flight.timeout_seconds
        heapq.heappush(self._own_deadlines, (due, flight.timer, flight))

    def dispatch(self, flight: Flight[R], now: float) -> None:
        """Start the timeout: the center has sent the request on."""
        self._unhold(flight)
        self._start_timer(flight, now)

    def settle(self, flight: Flight[R]) -> None:
        """End the request; later answers to it are duplicates."""
        self._land(flight)
        flight.done = True
        del self._flights[flight.id]

    def postpone(self, flight: Flight[R], due: float) -> None:
        """Send it again at ``due``. Until then it is not out."""
        self._land(flight)
        heapq.heappush(self._waiting, (due, flight.id, flight))

    def unsettled(self) -> list[Flight[R]]:
        """Return all flights."""
        return list(self._flights.values())

    def cancel(self) -> int:
        """Wait for no answer any more; return the number that were out."""
        cancelled = self.out
        for flight in self._flights.values():
            self._land(flight)
        return cancelled

    def _land(self, flight: Flight[R]) -> None:
        if flight.out:
            self._unhold(flight)
            flight.timer = 0
            flight.out = False
            self.out -= 1

    def _unhold(self, flight: Flight[R]) -> None:
        if flight.held:
            flight.held = False
            self.held -= 1

    def _start_timer(self, flight: Flight[R], now: float) -> None:
        flight.timer = next(self._timers)
        due = now + flight.timeout_seconds
        if flight.timeout_seconds == self._timeout_seconds:
            self._deadlines.append((due, flight.timer, flight))
        else:
            heapq.heappush(self._own_deadlines, (due, flight.timer, flight))

    def expire(self, now: float) -> list[Flight[R]]:
        """Return the flights whose latest attempt has timed out; each attempt only once.

        They count as out until the caller launches them again or settles them.
        """
        late = []
        deadlines, own = self._deadlines, self._own_deadlines
        while deadlines and deadlines[0][0] <= now:
            _, timer, flight = deadlines.popleft()
            if flight.timer == timer:
                late.append(flight)
        while own and own[0][0] <= now:
            _, timer, flight = heapq.heappop(own)
            if flight.timer == timer:
                late.append(flight)
        for flight in late:
            flight.timer = 0
            flight.given_up += (flight.attempt,)
        return late

    def wake(self, now: float) -> None:
        """Move flights whose delay is over to those that are sent next."""
        waiting = self._waiting
        while waiting and waiting[0][0] <= now:
            flight = heapq.heappop(waiting)[2]
            if not flight.done:
                self._ready.append(flight)

    def take_ready(self) -> Flight[R] | None:
        """Return the next retry to send; retries go before new requests."""
        while self._ready:
            flight = self._ready.popleft()
            if not flight.done:
                return flight
        return None

    @property
    def has_ready(self) -> bool:
        return bool(self._ready)

    def next_deadline(self) -> float | None:
        """Return the earliest time at which ``expire`` or ``wake`` has something to do."""
        deadlines, own, waiting = self._deadlines, self._own_deadlines, self._waiting
        while deadlines and deadlines[0][2].timer != deadlines[0][1]:
            deadlines.popleft()
        while own and own[0][2].timer != own[0][1]:
            heapq.heappop(own)
        return min((queue[0][0] for queue in (deadlines, own, waiting) if queue), default=None)
