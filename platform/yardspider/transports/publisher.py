"""Publishes messages of a run, and again until the broker has confirmed them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import NamedTuple

from yardkit import topology
from yardkit.bridge import in_daemon_thread
from yardkit.broker import Broker, BrokerError, BrokerUnavailable, Outgoing, aio

log = logging.getLogger("yardspider")

_RETRY_SECONDS = 1.0


class _Unconfirmed(NamedTuple):
    messages: Sequence[Outgoing]
    # By the monotonic clock.
    expires_at: float
    on_confirmed: Callable[[], None] | None


class RepeatingPublisher:
    """Publishes without waiting, and repeats failed messages every second.

    Args:
        broker: returns the connection.
        retries: failures in a row, while connected, after which it gives up.
        on_lost: called with the last error when it gives up.
    """

    def __init__(
        self,
        broker: Callable[[], Broker],
        *,
        retries: int,
        on_lost: Callable[[BaseException], None],
    ) -> None:
        self._broker = broker
        self._retries = retries
        self._on_lost = on_lost
        self._loop = asyncio.get_running_loop()
        self._failed: list[_Unconfirmed] = []
        self._repeating: asyncio.Task[None] | None = None

    def publish(
        self,
        messages: Sequence[Outgoing],
        *,
        expires_seconds: float = math.inf,
        on_confirmed: Callable[[], None] | None = None,
    ) -> None:
        """Publish; call ``on_confirmed`` in the loop once the broker has confirmed all messages.

        Messages that failed are not repeated after ``expires_seconds``.
        """
        entry = _Unconfirmed(messages, time.monotonic() + expires_seconds, on_confirmed)
        broker = self._broker()
        try:
            # Without this check the publish would wait, and the retries have a limit.
            check_connected(broker)
            future = broker.publish(messages)
        except BrokerError as error:
            self._again(entry, error)
        else:
            future.add_done_callback(lambda done: self._done(entry, done))

    def close(self) -> None:
        """Repeat nothing more."""
        if self._repeating is not None:
            self._repeating.cancel()

    def _done(self, entry: _Unconfirmed, future: Future[None]) -> None:
        """Note the result; called in the broker's thread."""
        error = None if future.cancelled() else future.exception()
        with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
            if error is not None:
                self._loop.call_soon_threadsafe(self._again, entry, error)
            elif entry.on_confirmed is not None:
                self._loop.call_soon_threadsafe(entry.on_confirmed)

    def _again(self, entry: _Unconfirmed, error: BaseException) -> None:
        self._failed.append(entry)
        if self._repeating is None or self._repeating.done():
            self._repeating = asyncio.create_task(self._repeat(error))

    async def _repeat(self, failure: BaseException) -> None:
        log.warning("publishing failed, retrying every second: %s", failure)
        failures = 0
        while failures < self._retries:
            await asyncio.sleep(_RETRY_SECONDS)
            now = time.monotonic()
            # What fails during the awaits below is added to the new list.
            entries = [entry for entry in self._failed if entry.expires_at > now]
            self._failed = []
            try:
                check_connected(self._broker())
                # Restores the queue where an operator has deleted it.
                await in_daemon_thread(self._broker().declare, *topology.SHARED)
                messages = [message for entry in entries for message in entry.messages]
                await aio.publish(self._broker(), messages)
            except BrokerError as error:
                failure = error
                # How long a connection may stay lost is not decided here.
                failures += self._broker().connected
                self._failed[:0] = entries
            else:
                failures = 0
                for entry in entries:
                    if entry.on_confirmed is not None:
                        entry.on_confirmed()
                if not self._failed:
                    log.info("publishing works again")
                    return
        self._on_lost(failure)


def check_connected(broker: Broker) -> None:
    """Raise ``BrokerUnavailable`` at once: calls on a lost connection wait for half a minute."""
    if not broker.connected:
        raise BrokerUnavailable("no connection")
