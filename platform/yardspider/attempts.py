"""Attempts of requests: sent, held, skipped, lost, until each request has ended."""

from __future__ import annotations

import logging
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Generic, Literal, TypeAlias, TypeVar

from yardkit.protocol import Dispatched, DownloadsHeld, DownloadsRefused, RequestItem, Skipped
from yardspider.accounting import CrawlAccounting
from yardspider.errors import RunFailed
from yardspider.flights import Flight, Flights, Sendable
from yardspider.settings import SpiderSettings
from yardspider.transports.base import RunTransport
from yardspider.watch import AgentWatch

log = logging.getLogger("yardspider")

R = TypeVar("R", bound=Sendable)
# Why a request has no answer: robots.txt forbids it, or neither center nor agents answered.
Unanswered: TypeAlias = Literal["robots", "lost"]


class AttemptTracker(ABC, Generic[R]):
    """What center and agents say about the attempts of one run, and what follows from it.

    The owner sends requests, judges results, and ends requests in ``_fail``. All times are
    listening time: the clock without the times in which no answer could be read.
    """

    def __init__(
        self, settings: SpiderSettings, transport: RunTransport, accounting: CrawlAccounting
    ) -> None:
        self._settings = settings
        self._transport = transport
        self._accounting = accounting
        self._flights: Flights[R] = Flights(timeout_seconds=settings.request_timeout_seconds)
        self._agents = AgentWatch(settings.agent_gone_seconds) if transport.chained else None
        self._deaf_seconds = 0.0
        self._heard_at = 0.0

    @property
    def active(self) -> int:
        """Number of requests sent, unanswered and not held: limited by the window."""
        return self._flights.active

    @property
    def unsettled(self) -> int:
        """Number of requests that are out, or wait for a retry."""
        return len(self._flights)

    @property
    def out(self) -> int:
        """Number of requests sent and unanswered, held ones included."""
        return self._flights.out

    def allocated(self, agents: Iterable[str]) -> None:
        """Note the agents of the run."""
        if self._agents is not None:
            self._agents.allocated(agents)

    def cancel(self) -> None:
        """Count what is out as cancelled: the run is over."""
        self._accounting.cancelled += self._flights.cancel()

    def was_deaf(self, seconds: float) -> None:
        """Exclude a time in which the spider's own code blocked the event loop from all timeouts.

        Answers may have arrived meanwhile and are still unread: without this, one slow callback
        would have every outstanding request fetched twice.
        """
        self._deaf_seconds += seconds

    # --- for the owner --------------------------------------------------------------------------

    @abstractmethod
    def _fail(self, flight: Flight[R], reason: str, kind: Unanswered) -> None:
        """End a request without an answer as failed."""

    def _lost_retries(self, flight: Flight[R]) -> int:
        """Return how many attempts may have no answer, or no agent."""
        return self._settings.request_timeout_retries

    def _may_resend(self, flight: Flight[R]) -> bool:
        """Return whether a request whose latest attempt had no answer is sent again."""
        return flight.timeouts <= self._lost_retries(flight)

    @property
    def _silence_seconds(self) -> float:
        """Longest time without any answer while requests are out."""
        return self._settings.no_answer_seconds

    # --- sending --------------------------------------------------------------------------------

    def _launch(self, flight: Flight[R], now: float) -> RequestItem:
        listening = now - self._deaf_seconds
        if not self._flights.active and not flight.skipped:
            self._heard_at = listening  # silence counts only from when an answer could come
        return self._flights.launch(flight, listening)

    # --- answers --------------------------------------------------------------------------------

    def _heard(self, now: float, agent: str = "") -> None:
        """Note a sign of life."""
        self._heard_at = now - self._deaf_seconds
        if agent and self._agents is not None:
            self._agents.alive(agent)

    def _take_notice(
        self, answer: Skipped | DownloadsHeld | Dispatched | DownloadsRefused, now: float
    ) -> None:
        """Take what the center does with requests.

        Raises ``RunFailed`` when a chained run has no agent left.
        """
        if isinstance(answer, Skipped):
            for number, attempt in answer.items:
                if answer.withdrawn:
                    self._withdrawn(number, attempt, now)
                else:
                    self._skipped(number, attempt, answer.reason, now)
            return
        # Every other message is a sign of life, also that the center holds a request.
        self._heard(now)
        if isinstance(answer, DownloadsHeld):
            self._held(answer)
        elif isinstance(answer, Dispatched):
            self._dispatched(answer)
        else:
            self._refused(answer)

    def _account(self, flight: Flight[R], attempt: int) -> None:
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
                self._fail(flight, f"refused: {answer.reason}", "robots")

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

    def _lost(self, flight: Flight[R], reason: str, now: float) -> None:
        """Retry a request that no agent took, with growing delays: an agent may be starting."""
        flight.timeouts += 1
        if flight.timeouts > self._lost_retries(flight):
            self._fail(flight, f"{reason}, tried {flight.attempt} times", "lost")
            return
        flight.skipped = True
        delay = min(2.0 ** min(flight.timeouts - 1, 10), self._settings.request_timeout_seconds)
        self._postpone(flight, now + delay)

    def _postpone(self, flight: Flight[R], due: float) -> None:
        self._flights.postpone(flight, due - self._deaf_seconds)

    # --- time -----------------------------------------------------------------------------------

    def tick(self, now: float) -> None:
        """Send requests again that timed out, and prepare those whose delay is over.

        Raises ``RunFailed`` when nothing has come back for ``no_answer_seconds``.
        """
        limit = self._silence_seconds
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
            if self._may_resend(flight):
                # Still out, so it needs no place in the window and no turn in the queue.
                self._accounting.retried += 1
                again.append(self._launch(flight, now))
            else:
                reason = (
                    f"no answer within {flight.timeout_seconds:g} s, sent {flight.attempt} times"
                )
                log.error("request failed, neither center nor agents answered: %s", reason)
                self._accounting.unanswered += 1
                self._fail(flight, reason, "lost")
        if again:
            self._transport.send(again)
        self._flights.wake(listening)
