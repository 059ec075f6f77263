"""Sends requests, and decides what each answer, skip or timeout means for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from yardkit.protocol import DownloadResult, DownloadResults, RequestItem
from yardspider.accounting import CrawlAccounting, Depths
from yardspider.attempts import AttemptTracker, Unanswered
from yardspider.flights import Flight
from yardspider.judge import ResponseVerdict, VerdictKind, judge
from yardspider.pace import CrawlPace
from yardspider.request import Request
from yardspider.request_log import RequestFailure
from yardspider.response import Response
from yardspider.scheduler import Scheduler
from yardspider.settings import SpiderSettings
from yardspider.transports.base import Answer, RunTransport

_LONGEST_RETRY_SECONDS = 60.0
# A timer that wakes late may catch up this much, so that the mean speed is the configured
# one.
_CATCH_UP_SECONDS = 0.05


class RequestDispatcher(AttemptTracker[Request]):
    """The requests of one run, from queued to settled.

    Args:
        is_success: the spider's judgement of an answer.
        pace: concurrency and speed; from the settings unless given.
        on_failed: called with each failed request.
    """

    def __init__(
        self,
        settings: SpiderSettings,
        transport: RunTransport,
        accounting: CrawlAccounting,
        is_success: Callable[[Response], bool],
        *,
        pace: CrawlPace | None = None,
        on_failed: Callable[[Request, RequestFailure], None] | None = None,
    ) -> None:
        super().__init__(settings, transport, accounting)
        self._pace = pace or CrawlPace(settings)
        self._on_failed = on_failed
        self._is_success = is_success
        self._scheduler = Scheduler(f"run:{transport.run}", settings.remembered_requests)
        self._send_at = 0.0

    def tuned(self, now: float) -> None:
        """Apply a changed pace to the next request."""
        self._send_at = min(self._send_at, now + self._pace.interval)

    @property
    def queued(self) -> int:
        """Number of requests that have not been sent yet."""
        return len(self._scheduler)

    def depths(self, *, busy: int) -> Depths:
        """Return the queue depths; ``busy`` requests have their callback running."""
        flights = self._flights
        return Depths(self.queued, self.unsettled + busy, flights.out, flights.held)

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
                request.number = flight.id
                accounting.sent += 1
            else:
                break
            items.append(self._launch(flight, now))
        if items:
            self._transport.send(items)

    def _may_begin(self) -> bool:
        return bool(self._scheduler) and self._flights.held < self._settings.held_limit

    def _launch(self, flight: Flight[Request], now: float) -> RequestItem:
        if self._pace.interval:
            earliest = now - _CATCH_UP_SECONDS
            self._send_at = max(self._send_at, earliest) + self._pace.interval
        return super()._launch(flight, now)

    # --- answers ------------------------------------------------------------------------------

    def take(self, answer: Answer, now: float) -> Iterator[tuple[Request, Response]]:
        """Settle the requests of an answer; yield the pages that are successes so far.

        The caller decides whether such a request succeeds: its callback may raise. Raises
        ``RunFailed`` when a chained run has no agent left.
        """
        if not isinstance(answer, DownloadResults):
            self._take_notice(answer, now)
            return
        self._heard(now, answer.agent)
        for result in answer.items:
            response = self._answered(result, answer.agent, now)
            if response is not None:
                yield response.request, response

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
        accounting.bytes_received += result.size
        if result.status == 200 and verdict.response is not None and verdict.response.is_page:
            accounting.pages += 1
        flight.request.received = result.size
        if success:
            self._settle(flight)
            return verdict.response
        if verdict.judgement is VerdictKind.RETRY:
            self._retry(flight, verdict, result, agent, now)
        elif verdict.judgement is VerdictKind.LOST:
            self._lost(flight, verdict.reason, now)
        else:
            self._end(flight, _failure(verdict, result, agent))
        return None

    def _retry(
        self,
        flight: Flight[Request],
        verdict: ResponseVerdict,
        result: DownloadResult,
        agent: str,
        now: float,
    ) -> None:
        own = flight.request.download_retries
        flight.downloads += 1
        if flight.downloads > (self._settings.download_retries if own is None else own):
            times = f", tried {flight.attempt} times" if flight.attempt > 1 else ""
            self._end(flight, _failure(verdict, result, agent, times))
            return
        delay = self._settings.retry_delay_seconds * 2 ** min(flight.downloads - 1, 10)
        delay = min(delay, _LONGEST_RETRY_SECONDS)
        self._postpone(flight, now + max(delay, verdict.wait_seconds))

    def _lost_retries(self, flight: Flight[Request]) -> int:
        own = flight.request.timeout_retries
        return self._settings.request_timeout_retries if own is None else own

    def _fail(self, flight: Flight[Request], reason: str, kind: Unanswered) -> None:
        self._end(flight, RequestFailure(reason, kind))

    def _end(self, flight: Flight[Request], failure: RequestFailure) -> None:
        self._settle(flight)
        self._accounting.fail(flight.request.url, failure.status, failure.reason)
        if self._on_failed is not None:
            self._on_failed(flight.request, failure)

    def _settle(self, flight: Flight[Request]) -> None:
        self._flights.settle(flight)
        flight.request.attempts = flight.attempt

    # --- time ---------------------------------------------------------------------------------

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


def _failure(
    verdict: ResponseVerdict, result: DownloadResult, agent: str, times: str = ""
) -> RequestFailure:
    return RequestFailure(
        verdict.reason + times, verdict.kind, result.status, agent, result.elapsed_ms, verdict.error
    )
