"""Counters of a center besides the requests of runs: expired questions, missing heartbeats."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from functools import partial
from typing import Final

from apps.agents.center.runs import RunTable
from yardkit import topology
from yardkit.broker import Broker, Outgoing
from yardkit.clock import Clock
from yardkit.protocol import Samples, encode
from yardkit.rates import Rates

# Questions for agents that had expired.
ALLOCATIONS_EXPIRED: Final = "center.allocations_expired"
# Heartbeats sent by agents and not received by this center.
HEARTBEATS_MISSED: Final = "center.heartbeats_missed"
# Signed addresses of objects handed out, and questions for them that were refused.
ADDRESSES_ISSUED: Final = "center.addresses_issued"
ADDRESSES_REFUSED: Final = "center.addresses_refused"


class PendingCounters:
    """Counters that are reported until confirmed. Thread-safe except for ``report``."""

    def __init__(self, *, broker: Broker, name: str, incarnation: str, clock: Clock) -> None:
        self._broker = broker
        self._name = name
        self._rates = Rates(f"center {name}", f"{incarnation}-tallies", clock.time)
        self._under_way: Future[None] | None = None

    def add(self, series: str, amount: int = 1) -> None:
        """Add to a series."""
        if amount:
            self._rates.add(series, 0, self._name, amount)

    def report(self, *, ending: bool = False) -> None:
        """Publish what is not confirmed; ``ending``: with the present second."""
        # No other report follows the last one; a repetition is added once.
        if not ending and self._under_way is not None and not self._under_way.done():
            return
        messages = self._rates.reports(ending=ending)
        if messages:
            self._under_way = self._broker.publish(
                [
                    Outgoing(body=encode(message), key=topology.STATISTICS.name)
                    for message in messages
                ]
            )
            self._under_way.add_done_callback(partial(self._reported, messages))

    def _reported(self, messages: Sequence[Samples], done: Future[None]) -> None:
        if done.exception() is None:
            self._rates.sent(list(messages))


def report_runs(runs: RunTable, broker: Broker) -> None:
    """Publish the counters of runs that changed; lost reports are repeated."""
    # Only of runs: a fetcher's requests are counted where they are stored.
    counters = [counter for counter in runs.drain_counters() if counter.run > 0]
    if not counters:
        return

    def reported(done: Future[None]) -> None:
        if done.exception() is not None:
            runs.report_again(counters)

    broker.publish(
        [Outgoing(body=encode(counter), key=topology.STATISTICS.name) for counter in counters]
    ).add_done_callback(reported)
