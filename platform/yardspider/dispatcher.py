"""Sends requests, and decides what each answer, skip or timeout means for them."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Iterator

from yardkit.protocol import (
    Dispatched,
    DownloadResult,
    DownloadResults,
    DownloadsHeld,
    DownloadsRefused,
    RequestItem,
    Skipped,
)
from yardspider.accounting import CrawlAccounting, Depths
from yardspider.errors import RunFailed
from yardspider.flights import Flight, Flights
from yardspider.judge import ResponseVerdict, VerdictKind, judge
from yardspider.pace import CrawlPace
from yardspider.request import Request
from yardspider.response import Response
from yardspider.scheduler import Scheduler
from yardspider.settings import SpiderSettings
from yardspider.transports.base import Answer, RunTransport
from yardspider.watch import AgentWatch

log = logging.getLogger("yardspider")

_LONGEST_RETRY_SECONDS = 60.0
# A timer that wakes late may catch up this much, so that the mean speed is the configured
# one.
_CATCH_UP_SECONDS = 0.05


class RequestDispatcher:
    """The requests of one run, from queued to settled.

    Args:
        is_success: the spider's judgement of an answer.
        pace: concurrency and speed; from the settings unless given.
        on_failed: called with each failed request and the reason.
    """

    def __init__(
        self,
        settings: SpiderSettings,
        transport: RunTransport,
        accounting: CrawlAccounting,
        is_success: Callable[[Response], bool],
        *,
        pace: CrawlPace | None = None,
        on_failed: Callable[[Request, str], None] | None = None,
    ) -> None:
        self._settings = settings
        self._pace = pace or CrawlPace(settings)
        self._on_failed = on_failed
        self._transport = transport
        self._accounting = accounting
        self._is_success = is_success
        self._scheduler = Scheduler(f"run:{transport.run}", settings.remembered_requests)
        self._flights = Flights(timeout_seconds=settings.request_timeout_seconds)
        self._agents = AgentWatch(settings.agent_gone_seconds) if transport.chained else None
        self._send_at = 0.0
        # Everything below is in listening time: the clock without the times the loop was blocked.
        self._deaf_seconds = 0.0
        self._heard_at = 0.0

    def tuned(self, now: float) -> None:
        """Apply a changed pace to the next request."""
        self._send_at = min(self._send_at, now + self._pace.interval)

    @property
    def queued(self) -> int:
        """Number of requests that have not been sent yet."""
        return len(self._scheduler)

    @property
    def active(self) -> int:
        """Number of requests sent, unanswered and not held: limited by the window."""
        return self._flights.active

    @property
    def unsettled(self) -> int:
        """Number of requests that are out, or wait for a retry."""
        return len(self._flights)

    def depths(self, *, busy: int) -> Depths:
        """Return the queue depths; ``busy`` requests have their callback running."""
        flights = self._flights
        return Depths(self.queued, self.unsettled + busy, flights.out, flights.held)

    def allocated(self, agents: Iterable[str]) -> None:
        """Note the agents of the run."""
        if self._agents is not None:
            self._agents.allocated(agents)

    @property
    def out(self) -> int:
        """Number of requests sent and unanswered, held ones included."""
        return self._flights.out

    def cancel(self) -> None:
        """Count what is out as cancelled: the run is over."""
        self._accounting.cancelled += self._flights.cancel()

    def was_deaf(self, seconds: float) -> None:
        """Exclude a time in which the spider's own code blocked the event loop from all timeouts.

        Answers may have arrived meanwhile and are still unread: without this, one slow callback
        would have every outstanding request fetched twice.
        """
        self._deaf_seconds += seconds

    def enqueue(self, request: Request) -> bool:
        """Queue a request. Returns False for a duplicate."""
        if self._scheduler.add(request):
            self._accounting.total += 1
            return True
        self._accounting.filtered += 1
        return False

    # --- sending ------------------------------------------------------------------------------

    def fill(self, now: float, *, busy: int) -> None:
        """Send what window and speed allow; ``busy`` places are taken by running callbacks.

        Requests held by the center take no place in the window, so a slow host stops no other.
        They have a limit of their own; above it only requests that were sent before are sent.
        """
        flights, accounting = self._flights, self._accounting
        window = self._pace.window(now) - busy
        paced = self._pace.interval > 0
        items: list[RequestItem] = []
        while flights.active < window and (not paced or now >= self._send_at):
            flight = flights.take_ready()
            if flight is not None:
                accounting.retried += 1
            elif self._may_begin():
                request = self._scheduler.pop()
                flight = flights.open(request, request.agent)
                accounting.sent += 1
            else:
                break
            items.append(self._launch(flight, now))
        if items:
            self._transport.send(items)

    def _may_begin(self) -> bool:
        return bool(self._scheduler) and self._flights.held < self._settings.held_limit

    def _launch(self, flight: Flight, now: float) -> RequestItem:
        listening = now - self._deaf_seconds
        if not self._flights.active and not flight.skipped:
            self._heard_at = listening  # silence counts only from when an answer could come
        if self._pace.interval:
            earliest = now - _CATCH_UP_SECONDS
            self._send_at = max(self._send_at, earliest) + self._pace.interval
        return self._flights.launch(flight, listening)

    # --- answers ------------------------------------------------------------------------------

    def take(self, answer: Answer, now: float) -> Iterator[tuple[Request, Response]]:
        """Settle the requests of an answer; yield the pages that are successes so far.

        The caller decides whether such a request succeeds: its callback may raise. Raises
        ``RunFailed`` when a chained run has no agent left.
        """
        if isinstance(answer, Skipped):
            for number, attempt in answer.items:
                if answer.withdrawn:
                    self._withdrawn(number, attempt, now)
                else:
                    self._skipped(number, attempt, answer.reason, now)
            return
        # Every message is a sign of life, also that the center holds a request.
        self._heard_at = now - self._deaf_seconds
        if isinstance(answer, DownloadResults):
            if self._agents is not None:
                self._agents.alive(answer.agent)
            for result in answer.items:
                response = self._answered(result, answer.agent, now)
                if response is not None:
                    yield response.request, response
        elif isinstance(answer, DownloadsHeld):
            self._held(answer)
        elif isinstance(answer, Dispatched):
            self._dispatched(answer)
        else:
            self._refused(answer)

    def _answered(self, result: DownloadResult, agent: str, now: float) -> Response | None:
        accounting = self._accounting
        flight = self._flights.find(result.id, result.attempt)
        if flight is None:
            accounting.duplicates += 1
            return None
        verdict = judge(result, flight.request, agent, self._is_success)
        again = verdict.judgement in (VerdictKind.RETRY, VerdictKind.LOST)
        if again and result.attempt in flight.given_up:
            accounting.duplicates += 1  # the next attempt is out, or planned, already
            return None
        self._account(flight, result.attempt)
        success = verdict.judgement is VerdictKind.SUCCESS
        accounting.take_answer(agent, result.elapsed_ms, success=success)
        accounting.bytes_received += len(result.body)
        if result.status == 200 and verdict.response is not None and verdict.response.is_page:
            accounting.pages += 1
        if success:
            self._flights.settle(flight)
            return verdict.response
        if verdict.judgement is VerdictKind.RETRY:
            self._retry(flight, verdict, result.status, now)
        elif verdict.judgement is VerdictKind.LOST:
            self._lost(flight, verdict.reason, now)
        else:
            self._fail(flight, result.status, verdict.reason)
        return None

    def _account(self, flight: Flight, attempt: int) -> None:
        """Correct the counters for an attempt that has ended after it was counted as timed out.

        The attempt that is out in its place then counts as timed out.
        """
        if attempt in flight.given_up and not flight.out:
            self._accounting.timed_out -= 1

    def _held(self, answer: DownloadsHeld) -> None:
        # The wait is untrusted: it must be a finite number.
        wait = answer.wait_seconds if math.isfinite(answer.wait_seconds) else 0.0
        for number, attempt in answer.items:
            flight = self._flights.find_out(number, attempt)
            if flight is not None:
                self._flights.hold(flight, self._heard_at, max(0.0, wait))

    def _dispatched(self, answer: Dispatched) -> None:
        for number, attempt in answer.items:
            flight = self._flights.find_out(number, attempt)
            if flight is not None:
                self._flights.dispatch(flight, self._heard_at)
                if self._agents is not None:
                    self._agents.alive(flight.agent)

    def _refused(self, answer: DownloadsRefused) -> None:
        """Fail requests that the center will never send."""
        for number, attempt in answer.items:
            flight = self._flights.find(number, attempt)
            if flight is not None:
                self._account(flight, attempt)
                self._accounting.refused += 1
                self._fail(flight, 0, f"refused: {answer.reason}")

    def _skipped(self, number: int, attempt: int, reason: str, now: float) -> None:
        flight = self._flights.find_out(number, attempt)
        if flight is None:
            return
        self._accounting.skipped += 1
        self._lost(flight, f"not dispatched: {reason}", now)
        if self._agents is not None:
            self._agents.dead(flight.agent, now - self._deaf_seconds)

    def _withdrawn(self, number: int, attempt: int, now: float) -> None:
        """Queue a withdrawn request again: it is sent as soon as the run sends."""
        flight = self._flights.find_out(number, attempt)
        if flight is not None:
            self._accounting.skipped += 1
            self._postpone(flight, now)

    def _retry(self, flight: Flight, verdict: ResponseVerdict, status: int, now: float) -> None:
        own = flight.request.download_retries
        flight.downloads += 1
        if flight.downloads > (self._settings.download_retries if own is None else own):
            times = f", tried {flight.attempt} times" if flight.attempt > 1 else ""
            self._fail(flight, status, verdict.reason + times)
            return
        delay = self._settings.retry_delay_seconds * 2 ** min(flight.downloads - 1, 10)
        delay = min(delay, _LONGEST_RETRY_SECONDS)
        self._postpone(flight, now + max(delay, verdict.wait_seconds))

    def _lost(self, flight: Flight, reason: str, now: float) -> None:
        """Retry a request that no agent took, with growing delays: an agent may be starting."""
        flight.timeouts += 1
        if flight.timeouts > self._timeout_retries(flight):
            self._fail(flight, 0, f"{reason}, tried {flight.attempt} times")
            return
        flight.skipped = True
        delay = min(2.0 ** min(flight.timeouts - 1, 10), self._settings.request_timeout_seconds)
        self._postpone(flight, now + delay)

    def _postpone(self, flight: Flight, due: float) -> None:
        self._flights.postpone(flight, due - self._deaf_seconds)

    def _timeout_retries(self, flight: Flight) -> int:
        own = flight.request.timeout_retries
        return self._settings.request_timeout_retries if own is None else own

    def _fail(self, flight: Flight, status: int, reason: str) -> None:
        self._flights.settle(flight)
        self._accounting.fail(flight.request.url, status, reason)
        if self._on_failed is not None:
            self._on_failed(flight.request, reason)

    # --- time ---------------------------------------------------------------------------------

    def tick(self, now: float) -> None:
        """Send requests again that timed out or whose delay is over.

        Raises ``RunFailed`` when nothing has come back for ``no_answer_seconds``.
        """
        limit = self._settings.no_answer_seconds
        listening = now - self._deaf_seconds
        # While the center holds all that is out, no answer can come.
        if self._flights.active and listening - self._heard_at >= limit:
            raise RunFailed(
                f"no answer for {limit:g} s while {self._flights.active} requests are out; "
                "are the center and the run's agents alive?"
            )
        again: list[RequestItem] = []
        for flight in self._flights.expire(listening):
            flight.timeouts += 1
            self._accounting.timed_out += 1
            if flight.timeouts > self._timeout_retries(flight):
                seconds = self._settings.request_timeout_seconds
                reason = f"no answer within {seconds:g} s, sent {flight.attempt} times"
                log.error("request failed, neither center nor agents answered: %s", reason)
                self._accounting.unanswered += 1
                self._fail(flight, 0, reason)
            else:
                # Still out, so it needs no place in the window and no turn in the queue.
                self._accounting.retried += 1
                again.append(self._launch(flight, now))
        if again:
            self._transport.send(again)
        self._flights.wake(listening)

    def next_wake(self, *, busy: int) -> float | None:
        """Return when ``tick`` or ``fill`` has something to do, if no answer comes before."""
        times = []
        deadline = self._flights.next_deadline()
        if deadline is not None:
            times.append(deadline + self._deaf_seconds)
        if self._flights.active:
            silent_at = self._heard_at + self._settings.no_answer_seconds
            times.append(silent_at + self._deaf_seconds)
        if self._flights.has_ready or self._may_begin():
            has_room = self._flights.active < self._pace.room - busy
            times.append(self._send_at if has_room else self._pace.grows_at)
        return min(times, default=None)
