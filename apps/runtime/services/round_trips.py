"""Round trips through the shared queues: does each accept messages and have a working consumer?

The leading monitor sends a small message through every queue and stores the results in its
heartbeat, where probes, ``doctor`` and alerts read them.
"""

from __future__ import annotations

import time
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from django.db import connection

from apps.runtime.queries import live_daemons
from apps.runtime.services.broker import shared_broker
from apps.runtime.services.depths import settled_totals
from yardkit import topology
from yardkit.broker import BrokerError, BrokerUnavailable
from yardkit.broker.base import DEAD_QUEUE
from yardkit.broker.echoes import ask_for_echo
from yardkit.errors import first_line
from yardkit.questions import Question

QUEUES: Final = (*(spec.name for spec in topology.SHARED), DEAD_QUEUE)
# Between two messages through one queue.
EVERY_SECONDS: Final = 15.0
ANSWER_SECONDS: Final = 10.0

# What may be wrong with a queue.
DOWN: Final = "down"
UNREAD: Final = "no consumer"
STALLED: Final = "consumer does not take messages"


@dataclass(frozen=True, slots=True)
class RoundTrip:
    """Result for one queue. ``seconds`` is None without an answer; ``problem`` "" means well."""

    seconds: float | None
    problem: str = ""
    detail: str = ""


@dataclass(slots=True)
class RoundTrips:
    """Sends the messages, one at a time per queue; nothing here waits."""

    results: dict[str, RoundTrip] = field(default_factory=dict)
    # When each was sent, by ``time.monotonic``, and its result.
    _asked: dict[str, tuple[float, Future[RoundTrip | None]]] = field(default_factory=dict)
    # Queues that have answered: one that nothing of this installation reads is no problem.
    _used: set[str] = field(default_factory=set)

    def poll(self) -> None:
        """Read what has been answered and ask again where it is due.

        While processes of different versions run nothing is asked: an older consumer would take
        the message for a malformed one.
        """
        if live_daemons().order_by().values("version").distinct().count() > 1:
            self.results.clear()
            return
        now = time.monotonic()
        for queue in QUEUES:
            asked = self._asked.get(queue)
            if asked is not None and asked[1].done():
                self._note(queue, asked[1].result())
            if asked is None or (asked[1].done() and now >= asked[0] + EVERY_SECONDS):
                question = Question(partial(_measure, queue), name=f"echo {queue}")
                self._asked[queue] = question.start()

    def _note(self, queue: str, result: RoundTrip | None) -> None:
        if result is None:
            # The broker is away: that is reported elsewhere, for all queues at once.
            self.results.pop(queue, None)
            return
        if not result.problem:
            self._used.add(queue)
        elif result.problem == UNREAD and queue not in self._used:
            self.results.pop(queue, None)
            return
        self.results[queue] = result

    def detail(self) -> dict[str, Any]:
        """Return the results for the heartbeat's detail."""
        return {
            queue: {"seconds": result.seconds, "problem": result.problem, "detail": result.detail}
            for queue, result in self.results.items()
        }


def _measure(queue: str) -> RoundTrip | None:
    """Return the result; None while the broker itself is unreachable."""
    began = time.monotonic()
    try:
        broker = shared_broker()
        if not broker.connected:
            return None
        before = settled_totals().get(queue, 0)
        try:
            ask_for_echo(broker, queue, timeout=ANSWER_SECONDS)
        except TimeoutError:
            if broker.depth(queue).consumers == 0:
                return RoundTrip(None, UNREAD)
            # A long queue delays the message; it is read as long as others are settled.
            if settled_totals().get(queue, 0) != before:
                return RoundTrip(None)
            return RoundTrip(None, STALLED)
    except BrokerUnavailable:
        return None
    except BrokerError as error:
        return RoundTrip(None, DOWN, first_line(error)[:200])
    finally:
        # The connection belongs to this thread, which ends now.
        connection.close()
    return RoundTrip(round(time.monotonic() - began, 3))
