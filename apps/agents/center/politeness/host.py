"""One host: its queue, its requests in flight, and when the next request may go."""

from __future__ import annotations

import math
import zlib
from collections import deque
from dataclasses import dataclass
from typing import Final

from apps.agents.center.politeness.limits import HostLimits
from apps.agents.center.politeness.shares import LEASE_SECONDS, ShareGrant, ShareRequest
from yardkit.protocol import RequestItem

LONGEST_RETRY_AFTER_SECONDS: Final = 3600.0
FIRST_PAUSE_SECONDS: Final = 1.0
LONGEST_PAUSE_SECONDS: Final = 300.0
# Good answers in a row after which a host counts as calm again.
CALM_AFTER: Final = 5
RENEW_SECONDS: Final = 1.0
# Interval for hosts without limits: they only hear of pauses, before their lease ends.
LEARN_SECONDS: Final = 4.0
# Groups of hosts that renew together: neither all at once nor each in an exchange of its own.
RENEWAL_GROUPS: Final = 10
# A slower answer of the store is not waited for: the request is repeated.
ASK_AGAIN_SECONDS: Final = 5.0


@dataclass(slots=True, eq=False)
class HeldRequest:
    """A held request. ``limit_seconds``: after that it counts as not in flight any more.

    ``connected``: agent that has just read the robots.txt of the site, by the connection that this
    request can use; "" for none.
    """

    run: int
    reply_to: str
    item: RequestItem
    url: str
    limit_seconds: float
    ignores_robots: bool = False
    notified: bool = False
    gone: bool = False
    connected: str = ""


class PoliteHost:
    """Times are those of the engine's monotonic clock; ``take`` is called with rising ones."""

    def __init__(self, name: str, limits: HostLimits) -> None:
        self.name = name
        self.limits = limits
        self.in_flight = 0
        self.waiting = 0
        self.blocked_until = 0.0
        self.strikes = 0
        self.used_at = 0.0
        # When to look again, and whether only a new share can help.
        self.due_at = math.inf
        self.needs_share = False
        self.delays: dict[tuple[str, str], float] = {}
        self._queues: dict[int, deque[HeldRequest]] = {}
        self._turns: deque[int] = deque()
        self._flights: dict[int, deque[float]] = {}
        self._moments: deque[float] = deque()
        self._leased = 0
        self._leased_until = 0.0
        self._sent = 0
        self._good = 0
        self._pause = 0.0
        self._calm = False
        self._asked_at = -math.inf
        self._asking = False
        self._holds_share = False
        self._phase = zlib.crc32(name.encode()) % RENEWAL_GROUPS / RENEWAL_GROUPS

    @property
    def rate(self) -> float:
        """Requests per second, with the Crawl-delay of robots.txt; 0 is unlimited."""
        rate = self.limits.requests_per_second
        delay = max(self.delays.values(), default=0.0)
        if delay <= 0:
            return rate
        return min(rate, 1.0 / delay) if rate > 0 else 1.0 / delay

    # --- the line -------------------------------------------------------------------------------

    def put(self, waiting: HeldRequest) -> None:
        """Append to the queue of its run."""
        queue = self._queues.get(waiting.run)
        if queue is None:
            queue = self._queues[waiting.run] = deque()
            self._turns.append(waiting.run)
        queue.append(waiting)
        self.waiting += 1

    def drop(self, run: int, keep_reply_to: str) -> None:
        """Drop the requests of a run, except those of one queue."""
        queue = self._queues.pop(run, None)
        if queue is None:
            return
        kept = deque(one for one in queue if keep_reply_to and one.reply_to == keep_reply_to)
        self.waiting -= len(queue) - len(kept)
        if kept:
            self._queues[run] = kept
        else:
            self._turns.remove(run)

    def take(self, now: float) -> HeldRequest | None:
        """Return the next request that may go now, or None: then ``due_at`` is set."""
        self._expire(now)
        self.needs_share = False
        self.due_at = math.inf
        if not self._turns or self.limits.stopped:
            return None
        if now < self.blocked_until:
            self.due_at = self.blocked_until
            return None
        if self.limits.concurrency > 0 and not self._has_slot(now):
            return None
        if self.rate > 0 and not self._has_moment(now):
            return None
        self._sent += 1
        run = self._turns[0]
        self._turns.rotate(-1)
        queue = self._queues[run]
        waiting = queue.popleft()
        if not queue:
            del self._queues[run]
            self._turns.remove(run)
        self.waiting -= 1
        self.in_flight += 1
        self._flights.setdefault(run, deque()).append(now + waiting.limit_seconds)
        return waiting

    def _has_slot(self, now: float) -> bool:
        leased = self._leased if now < self._leased_until else 0
        if self.in_flight < leased:
            return True
        # A report, a new share, or the time limit of what is in flight.
        self.due_at = min((flight[0] for flight in self._flights.values()), default=math.inf)
        self.needs_share = leased < self.limits.concurrency
        return False

    def _has_moment(self, now: float) -> bool:
        # Unused capacity of a second expires: a host must not be flooded later.
        oldest = now - max(1.0, 1.0 / self.rate)
        while self._moments and self._moments[0] < oldest:
            self._moments.popleft()
        if not self._moments:
            self.needs_share = True
            return False
        if self._moments[0] > now:
            self.due_at = self._moments[0]
            return False
        self._moments.popleft()
        return True

    # --- what is under way ----------------------------------------------------------------------

    def finished(self, run: int, count: int) -> None:
        """Count finished requests of a run, the oldest first."""
        flights = self._flights.get(run)
        while flights and count > 0:
            flights.popleft()
            self.in_flight -= 1
            count -= 1
        if not flights:
            self._flights.pop(run, None)

    def _expire(self, now: float) -> None:
        for run in [run for run, flights in self._flights.items() if flights[0] <= now]:
            flights = self._flights[run]
            self.finished(run, sum(1 for until in flights if until <= now))

    def answered(self, finished: int, busy: int, retry_after: float, now: float) -> None:
        """Process the answers of the host: ``busy`` of them were 429 or 503."""
        if busy <= 0:
            self._good += finished
            if self._good >= CALM_AFTER and self.strikes:
                self.strikes = 0
                self._calm = True
            return
        self._good = 0
        self._calm = False
        wanted = min(max(0.0, retry_after), LONGEST_RETRY_AFTER_SECONDS)
        if now >= self.blocked_until:
            # Answers to requests that were in flight when the pause began are no new strike.
            self.strikes += 1
            doubled = FIRST_PAUSE_SECONDS * 2.0 ** min(self.strikes - 1, 16)
            wanted = max(wanted, min(LONGEST_PAUSE_SECONDS, doubled))
        if now + wanted > self.blocked_until:
            self.blocked_until = now + wanted
            self._pause = wanted

    def change(self, limits: HostLimits) -> None:
        """Apply changed limits and request a new share."""
        self.limits = limits
        self._asked_at = -math.inf

    # --- its share ------------------------------------------------------------------------------

    @property
    def busy(self) -> bool:
        """Whether anything is queued, in flight, to be reported or to be given back."""
        return bool(self.waiting or self.in_flight or self._pause or self._calm)

    def ask(self, now: float) -> ShareRequest | None:
        """Return the request for a share; None when there is nothing to ask, or it was just
        asked.
        """
        urgent = self.needs_share or self._pause > 0
        if self._asking and now < self._asked_at + ASK_AGAIN_SECONDS:
            return None
        if not urgent and (now < self._renew_at() or not (self.busy or self._holds_share)):
            return None
        if urgent and not self._pause and self._refused_lately(now):
            return None
        self._expire(now)
        rate = self.rate
        wanted = self.in_flight + self.waiting + 1 if self.busy else 0
        limit = self.limits.concurrency
        requests = 0
        if rate > 0 and self.waiting and not self.limits.stopped and now >= self.blocked_until:
            block = max(1, math.ceil(rate))
            requests = max(0, min(block, max(self.waiting, self._sent)) - len(self._moments))
        ask = ShareRequest(
            host=self.name,
            rate=rate,
            concurrency=limit,
            requests=requests,
            wanted=min(limit, wanted) if limit > 0 else wanted,
            in_flight=self.in_flight,
            pause_seconds=self._pause,
            strikes=self.strikes,
            calm=self._calm,
        )
        self._asking, self._asked_at, self._sent = True, now, 0
        self._pause, self._calm = 0.0, False
        return ask

    def ask_at(self) -> float:
        """Return when ``ask`` may have a request, after it has been called just now."""
        if self._asking:
            return self._asked_at + ASK_AGAIN_SECONDS
        if self.needs_share:
            return self._asked_at + RENEW_SECONDS
        return self._renew_at() if self.busy or self._holds_share else math.inf

    def _renew_at(self) -> float:
        """Return the moment of its group nearest to the age at which the last request expires."""
        limited = self.rate > 0 or self.limits.concurrency > 0
        oldest = self._asked_at + (RENEW_SECONDS if limited else LEARN_SECONDS)
        if oldest == -math.inf:
            return oldest
        # Nearest and not next: a slightly late request must not turn one second into two.
        return self._phase + round(oldest - self._phase)

    def _refused_lately(self, now: float) -> bool:
        """Whether other centers hold the slots: asking again at once would be a busy loop."""
        return (
            self.limits.concurrency > 0
            and self.in_flight >= self._leased
            and now - self._asked_at < RENEW_SECONDS / 4
            and self._leased_until > now
        )

    def granted(self, answer: ShareGrant, now: float) -> None:
        """Apply the grant of the store."""
        self._asking = False
        self._leased = answer.concurrency
        self._leased_until = self._asked_at + LEASE_SECONDS - 0.5
        self._holds_share = answer.concurrency > 0
        start = max(now + answer.start_seconds, self._moments[-1] if self._moments else 0.0)
        for number in range(answer.requests):
            self._moments.append(start + number * answer.spacing_seconds)
        if not self._pause and not self._calm:
            self.strikes = answer.strikes
        self.blocked_until = max(self.blocked_until, now + answer.pause_seconds)

    def why(self, now: float) -> str:
        """Return why its requests are held, for the run and for people."""
        if self.limits.stopped:
            return f"{self.name} is stopped: everything for it is held"
        if now < self.blocked_until:
            seconds = math.ceil(self.blocked_until - now)
            return f"{self.name} was too busy and gets nothing for {seconds} s"
        if self.limits.concurrency > 0 and self.in_flight >= self._leased:
            return f"{self.name} is asked for at most {self.limits.concurrency} at once"
        return f"{self.name} is asked at most {self.rate:g} times a second"
