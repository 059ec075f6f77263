"""A second opinion on an item's life: the seed's sentences in the plainest words.

It knows nothing of queues that are full, of time-outs and of what spiders forge; it is what the
engine is compared with where none of these is in play.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from apps.routing.engine.rules import Outbound


@dataclass
class Model:
    """State and outbound of one item."""

    outbounds: list[Outbound]
    # For each outbound the statuses it takes.
    takes: list[Collection[str]]
    most_routings: int
    terminal: Collection[str]
    at: str = ""
    routed: int = 0
    retries: int = 0
    attempts: int = 0
    ended: str = ""

    def begin(self) -> None:
        """Decide about a new item."""
        if self.routed == self.most_routings:
            self.ended = "failed"
        else:
            self._by_rule("new", without="", otherwise="rejected")

    def result(self, status: str) -> None:
        """Decide about the result of the last attempt."""
        here = next(outbound for outbound in self.outbounds if outbound.name == self.at)
        refused = [str(code) for code in here.dont_retry_status]
        direct = [str(code) for code in here.direct_failback_status]
        if status in self.terminal:
            self.ended = "succeeded"
            return
        wants_retry = status not in refused + direct and self.retries < here.retry_limits
        if wants_retry and not here.disable:
            self.retries += 1
            self.attempts += 1
            return
        names = [outbound.name for outbound in self.outbounds if not outbound.disable]
        if here.failback in names and here.failback != here.name:
            self._move(here.failback)
        elif status in refused:
            self._by_rule(status, without=here.name, otherwise="failed")
        elif wants_retry:
            self._by_rule(status, without="", otherwise="failed")
        else:
            self.ended = "failed"

    def _by_rule(self, status: str, *, without: str, otherwise: str) -> None:
        fits = [
            outbound.name
            for outbound, taken in zip(self.outbounds, self.takes, strict=True)
            if status in taken and not outbound.disable and outbound.name != without
        ]
        if fits:
            self._move(fits[0])
        else:
            self.ended = otherwise

    def _move(self, name: str) -> None:
        if self.routed == self.most_routings:
            self.ended = "failed"
            return
        if self.at:
            self.attempts += 1
        self.at = name
        self.routed += 1
        if next(o for o in self.outbounds if o.name == name).reset_retry_times:
            self.retries = 0
