"""Commands to a run over the broker, and its answers."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable

from yardkit import topology
from yardkit.bridge import in_daemon_thread
from yardkit.broker import (
    Broker,
    BrokerClosed,
    BrokerError,
    Outgoing,
    Subscription,
    Unroutable,
    aio,
)
from yardkit.protocol import Lifecycle, LifecycleAnswer, ProtocolError, decode, encode

log = logging.getLogger("yardspider")

_PREFETCH = 20
_RETRY_SECONDS = 1.0


class RunCommandQueue:
    """Queue of commands of one execution, bound to the topic of its job.

    Belongs to the loop it was made in.

    Args:
        on_command: called in the loop's thread; the message is acknowledged after it.
    """

    def __init__(
        self, *, run: int, incarnation: str, topic: str, on_command: Callable[[Lifecycle], None]
    ) -> None:
        self._spec = topology.run_commands(run, incarnation)
        self._topic = topic
        self._on_command = on_command
        self._loop = asyncio.get_running_loop()
        self._broker: Broker | None = None
        self._subscription: Subscription | None = None
        self._unsent: list[LifecycleAnswer] = []
        self._sending: asyncio.Task[None] | None = None

    def open(self, broker: Broker) -> None:
        """Start listening. Blocks, so not for the loop's thread. Raises ``BrokerError``."""
        self._broker = broker
        broker.declare_exchange(topology.LIFECYCLE, "topic")
        broker.declare(self._spec)
        broker.bind(self._spec.name, topology.LIFECYCLE, self._topic)
        self._subscription = broker.subscribe(
            self._spec.name, prefetch=_PREFETCH, on_ready=self._on_ready
        )
        # Messages that came before the subscription had its name here.
        self._on_ready()

    def _on_ready(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._read)

    def _read(self) -> None:
        subscription = self._subscription
        if subscription is None:
            return
        with contextlib.suppress(BrokerClosed):
            while deliveries := subscription.take(_PREFETCH):
                for delivery in deliveries:
                    problem = self._take(delivery.body)
                    if problem:
                        log.warning("unusable command dead-lettered: %s", problem)
                        subscription.dead_letter(delivery, problem)
                    else:
                        subscription.ack([delivery])

    def _take(self, body: bytes) -> str:
        """Carry out one message; return the error of an invalid one."""
        try:
            message = decode(body)
        except ProtocolError as error:
            return str(error)
        if not isinstance(message, Lifecycle):
            return f"{type(message).__name__} is no command to a run"
        self._on_command(message)
        return ""

    def answer(self, answer: LifecycleAnswer) -> None:
        """Send an answer, again every second until it is confirmed."""
        self._unsent.append(answer)
        if self._sending is None or self._sending.done():
            self._sending = asyncio.create_task(self._send())

    async def _send(self) -> None:
        while self._unsent and self._broker is not None:
            batch = list(self._unsent)
            key = topology.LIFECYCLE_ANSWERS.name
            try:
                await aio.publish(self._broker, [Outgoing(encode(one), key=key) for one in batch])
            except BrokerClosed:
                return
            except BrokerError as error:
                await asyncio.sleep(_RETRY_SECONDS)
                if isinstance(error, Unroutable):
                    with contextlib.suppress(BrokerError):
                        await in_daemon_thread(self._broker.declare, topology.LIFECYCLE_ANSWERS)
            else:
                del self._unsent[: len(batch)]

    async def close(self, limit_seconds: float) -> None:
        """Wait a number of seconds for the confirmation of the last answers."""
        if self._sending is not None:
            await asyncio.wait([self._sending], timeout=limit_seconds)
            self._sending.cancel()
