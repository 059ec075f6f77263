"""Publisher of records with confirms.

It waits while the broker is unreachable: counts and checkpoint change only after the confirm.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from typing import Final

from apps.sources.engine.errors import Interrupted
from apps.sources.engine.progress import EndReason
from yardkit.backoff import Backoff
from yardkit.broker import Broker
from yardkit.broker.base import BrokerClosed, BrokerError, MessageRefused, Outgoing, QueueSpec
from yardkit.errors import first_line

logger = logging.getLogger(__name__)

_LOOK_SECONDS: Final = 0.1


class RecordPublisher:
    """Publishes the records of one import, with confirms.

    ``stop_reason`` returns why the import should end, or None; it raises ``SourceLeaseLost``.
    ``waiting`` is called with the reason of a wait, "" when publishing continues. ``pause`` sleeps
    for the given seconds, or less when the process is stopping.
    """

    def __init__(
        self,
        broker: Broker,
        *,
        stop_reason: Callable[[], EndReason | None],
        waiting: Callable[[str], None],
        pause: Callable[[float], object],
    ) -> None:
        self._broker = broker
        self._stop_reason = stop_reason
        self._waiting = waiting
        self._pause = pause
        self._declared = ""

    def publish(self, messages: Sequence[Outgoing]) -> int:
        """Publish all messages in order; return how many the broker refuses for their content.

        Raises ``Interrupted`` and ``LeaseLost``: it is then unknown which of them have arrived.
        """
        # A stack: the current group is its last.
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
                    # One message is invalid: bisect to find it.
                    middle = len(group) // 2
                    groups += [group[middle:], group[:middle]]
                else:
                    refused += 1
                    logger.warning("the broker rejected a record: %s", error)
            except BrokerClosed:
                raise Interrupted(EndReason.SHUTDOWN.value) from None
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
        # Also when the queue was deleted.
        self._declared = ""
        line = first_line(error)
        self._waiting(f"broker: {line}")
        self._refuse_when_unwanted()
        self._pause(backoff.seconds())
        self._refuse_when_unwanted()

    def _confirmed(self, future: Future[None]) -> None:
        # Wait for pending confirms even if the import should end: they decide the checkpoint.
        # A broker that hangs is not waited for when the process stops.
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
        why = self._stop_reason()
        if why is not None:
            raise Interrupted(why.value)
