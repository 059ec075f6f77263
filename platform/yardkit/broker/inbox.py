"""Buffer of deliveries between the I/O thread and consumers."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable

from yardkit.broker.base import BrokerClosed, Delivery
from yardkit.broker.echoes import split_echoes

logger = logging.getLogger(__name__)


class Inbox:
    """In-memory queue with one producer, the I/O thread, and any number of consumers."""

    def __init__(
        self,
        on_ready: Callable[[], None] | None,
        answer: Callable[[list[Delivery]], None] | None = None,
    ) -> None:
        """``answer`` settles and answers requests for an echo, which are never handed out."""
        self._answer = answer
        self._arrived = threading.Condition()
        self._waiting: deque[Delivery] = deque()
        self._closed_because: str | None = None
        self._is_last = False
        self._on_ready = on_ready

    def put(self, deliveries: Iterable[Delivery]) -> None:
        """Append deliveries and notify consumers."""
        with self._arrived:
            if self._closed_because is not None:
                return
            self._waiting.extend(deliveries)
            self._arrived.notify_all()
        self._announce()

    def take(self, limit: int, timeout: float) -> list[Delivery]:
        """Return up to ``limit`` deliveries; see ``Subscription.take``."""
        taken = self._take(limit, timeout)
        if self._answer is None or not taken:
            return taken
        asked, taken = split_echoes(taken)
        if asked:
            self._answer(asked)
            # Callers read fewer than the limit as the end of what has arrived.
            taken += self.take(limit - len(taken), 0.0)
        return taken

    def _take(self, limit: int, timeout: float) -> list[Delivery]:
        with self._arrived:
            if timeout > 0 and not self._waiting and self._closed_because is None:
                self._arrived.wait_for(self._has_news, timeout)
            if self._closed_because is not None:
                raise BrokerClosed(self._closed_because)
            waiting = self._waiting
            if limit >= len(waiting):
                taken = list(waiting)
                waiting.clear()
                return taken
            return [waiting.popleft() for _ in range(limit)]

    def clear(self) -> None:
        """Discard everything: after a lost connection it is redelivered."""
        with self._arrived:
            self._waiting.clear()

    def end(self) -> None:
        """Mark the end: ``take`` no longer waits."""
        with self._arrived:
            self._is_last = True
            self._arrived.notify_all()
        self._announce()

    def close(self, because: str) -> None:
        """Make current and later ``take`` calls raise ``BrokerClosed(because)``."""
        with self._arrived:
            if self._closed_because is not None:
                return
            self._closed_because = because
            self._waiting.clear()
            self._arrived.notify_all()
        # A taker that waits for the callback only, such as an event loop, must hear of it too.
        self._announce()

    def _has_news(self) -> bool:
        return bool(self._waiting) or self._is_last or self._closed_because is not None

    def _announce(self) -> None:
        if self._on_ready is None:
            return
        try:
            self._on_ready()
        except Exception:  # a caller's callback must not end the I/O thread
            logger.exception("the on_ready callback of a subscription raised")
