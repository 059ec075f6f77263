"""Records to their queue, with the broker's confirm (seed S0.8, S0.22).

A broker that is away is waited for: nothing is counted and no checkpoint moves before it has
confirmed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from typing import Final

from apps.sources.engine.errors import Interrupted
from apps.sources.engine.progress import Why
from yardkit.backoff import Backoff
from yardkit.broker import Broker
from yardkit.broker.base import BrokerClosed, BrokerError, MessageRefused, Outgoing, QueueSpec
from yardkit.errors import first_line

logger = logging.getLogger(__name__)

_LOOK_SECONDS: Final = 0.1


class RecordPublisher:
    """Publish the records of one harvest, with confirms.

    Args:
        wish: returns why the harvest should end, or None; raises ``LeaseLost``.
        waiting: called with what is waited for, "" when publishing goes on.
        pause: waits this many seconds, or less when the process is to stop.
    """

    def __init__(
        self,
        broker: Broker,
        *,
        wish: Callable[[], Why | None],
        waiting: Callable[[str], None],
        pause: Callable[[float], object],
    ) -> None:
        self._broker = broker
        self._wish = wish
        self._waiting = waiting
        self._pause = pause
        self._declared = ""

    def publish(self, messages: Sequence[Outgoing]) -> int:
        """Publish all messages in order; return how many the broker refuses for their content.

        Raises ``Interrupted`` and ``LeaseLost``: it is then unknown which of them have arrived.
        """
        # A stack: the group in hand is its last.
        groups = [list(messages)]
        backoff = Backoff()
        refused = 0
        while groups:
            group = groups[-1]
            try:
                self._declare(group[0].key)
                self._confirmed(self._broker.publish(group))
            except MessageRefused as error:
                groups.pop()
                if len(group) > 1:
                    # One of them is at fault: halve until it stands alone.
                    middle = len(group) // 2
                    groups += [group[middle:], group[:middle]]
                else:
                    refused += 1
                    logger.warning("the broker refuses a record: %s", error)
            except BrokerClosed:
                raise Interrupted(Why.SHUTDOWN.value) from None
            except BrokerError as error:
                self._away(error, backoff)
            else:
                groups.pop()
                backoff.reset()
        self._waiting("")
        return refused

    def _declare(self, queue: str) -> None:
        if self._declared != queue:
            self._broker.declare(QueueSpec(queue))
            self._declared = queue

    def _away(self, error: BrokerError, backoff: Backoff) -> None:
        # Also when the queue has been deleted.
        self._declared = ""
        line = first_line(error)
        self._waiting(f"broker: {line}")
        self._refuse_when_unwanted()
        self._pause(backoff.seconds())
        self._refuse_when_unwanted()

    def _confirmed(self, future: Future[None]) -> None:
        # Messages under way are waited for, whatever is wished: confirmed or lost in a moment, they
        # decide the checkpoint. A broker that hangs is not waited for at a stop.
        looks = 0
        while True:
            done, _ = wait([future], timeout=_LOOK_SECONDS)
            if done:
                future.result()
                return
            looks += 1
            if looks % 10 == 0:
                self._refuse_when_unwanted()

    def _refuse_when_unwanted(self) -> None:
        why = self._wish()
        if why is not None:
            raise Interrupted(why.value)
