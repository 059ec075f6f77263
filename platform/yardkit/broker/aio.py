"""The broker port for asyncio: the same operations, awaited.

The broker's I/O thread notifies the event loop; nothing polls.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from types import TracebackType
from typing import Self

from yardkit.bridge import in_daemon_thread, settled
from yardkit.broker.base import Broker, Delivery, Outgoing, Subscription


async def publish(broker: Broker, messages: Sequence[Outgoing]) -> None:
    """Publish and await the confirms; raises what the future of ``Broker.publish`` raises.

    Cancelling does not withdraw the messages.
    """
    await settled(broker.publish(messages))


class AsyncSubscription:
    """A ``Subscription`` whose ``take`` is awaited. Bound to the loop that created it."""

    _subscription: Subscription

    def __init__(self, broker: Broker, queue: str, *, prefetch: int = 100) -> None:
        """Subscribe at once, which blocks for a round trip to the broker; see ``open``."""
        self._prepare(asyncio.get_running_loop())
        self._subscription = broker.subscribe(queue, prefetch=prefetch, on_ready=self._announce)

    @classmethod
    async def open(cls, broker: Broker, queue: str, *, prefetch: int = 100) -> Self:
        """Subscribe without blocking the loop, also while the broker is being reconnected."""
        made = cls.__new__(cls)
        made._prepare(asyncio.get_running_loop())
        subscribing: Future[Subscription] = Future()

        def subscribe() -> None:
            try:
                subscribing.set_result(
                    broker.subscribe(queue, prefetch=prefetch, on_ready=made._announce)
                )
            except Exception as error:  # noqa: BLE001  (handed to the waiting coroutine)
                subscribing.set_exception(error)

        threading.Thread(target=subscribe, name=f"subscribe {queue}", daemon=True).start()
        try:
            made._subscription = await settled(subscribing)
        except asyncio.CancelledError:
            # An unknown consumer would keep its deliveries until the connection ends.
            subscribing.add_done_callback(_close_unwanted)
            raise
        return made

    def _prepare(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._news = asyncio.Event()
        self._announced = False

    @property
    def queue(self) -> str:
        return self._subscription.queue

    async def take(self, limit: int = 100, timeout: float | None = None) -> list[Delivery]:
        """Return up to ``limit`` deliveries, waiting for the first one; ``timeout`` None waits
        without limit.

        An empty list means the timeout. A cancelled call has taken nothing. Raises ``BrokerClosed``
        once the broker or the subscription is closed.
        """
        taken = self._take_waiting(limit)
        if not taken:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout):
                    while not taken:
                        await self._news.wait()
                        taken = self._take_waiting(limit)
        return taken

    def _take_waiting(self, limit: int) -> list[Delivery]:
        # Cleared first: what arrives after the look announces itself again.
        self._announced = False
        self._news.clear()
        taken = self._subscription.take(limit)
        if len(taken) == limit:
            self._news.set()  # there may be more, for other waiting callers
        return taken

    def ack(self, deliveries: Sequence[Delivery]) -> None:
        self._subscription.ack(deliveries)

    def requeue(self, deliveries: Sequence[Delivery]) -> None:
        self._subscription.requeue(deliveries)

    def dead_letter(self, delivery: Delivery, reason: str) -> None:
        self._subscription.dead_letter(delivery, reason)

    async def cancel(self) -> None:
        """Stop receiving; ``take(timeout=0)`` returns messages that have arrived."""
        await in_daemon_thread(self._subscription.cancel)

    async def close(self) -> None:
        """Stop consuming; unacknowledged messages return to the queue."""
        await in_daemon_thread(self._subscription.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    def _announce(self) -> None:
        """Wake the loop; called by the broker's I/O thread, once for many deliveries."""
        if not self._announced:
            self._announced = True
            with contextlib.suppress(RuntimeError):  # the loop is closed: no caller waits
                self._loop.call_soon_threadsafe(self._news.set)


def _close_unwanted(subscribing: Future[Subscription]) -> None:
    if subscribing.exception() is None:
        close = subscribing.result().close
        threading.Thread(target=close, name="unsubscribe", daemon=True).start()
