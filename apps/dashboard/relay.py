"""Relays events from the broker to the websockets of this web process.

One thread for each web process. Events are droppable: pages refetch after a gap. An outage of the
broker therefore never fails the web process, and the relay needs no database.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import socket
import threading
from collections.abc import Callable, Sequence
from typing import Final

from channels.layers import get_channel_layer

from apps.agents.events import AGENTS_CHANGED
from apps.dashboard.events import (
    AGENTS,
    EVERYTHING,
    RELAY_TYPE,
    SHOWN,
    log_group,
    project_group,
    run_group,
    subject,
)
from apps.joblogs.events import LOG_GREW
from yardkit import topology
from yardkit.broker import Broker, BrokerError, Delivery, Subscription, connect
from yardkit.guard import keep_running
from yardkit.protocol import Event, ProtocolError, decode

logger = logging.getLogger(__name__)

BATCH: Final = 500
# Longest delay of a stop; events wake the thread at once.
POLL_SECONDS: Final = 0.5
CONNECT_SECONDS: Final = 5.0
RETRY_SECONDS: Final = 2.0
# A batch is dropped when the event loop has not accepted it in this time.
HAND_OVER_SECONDS: Final = 10.0

Deliver = Callable[[Sequence[Event]], None]


class EventRelay:
    """Consumes the event queue of this process until it is stopped."""

    def __init__(
        self, *, url: str, deliver: Deliver, connect_to: Callable[..., Broker] = connect
    ) -> None:
        self.queue = topology.web_events(
            f"{socket.gethostname()}.{os.getpid()}.{secrets.token_hex(3)}"
        )
        self._url = url
        self._deliver = deliver
        self._connect = connect_to
        self._stopping = threading.Event()
        self._listening = threading.Event()
        self._outage = False
        self._thread: threading.Thread | None = None

    @property
    def listening(self) -> bool:
        """Whether the relay is subscribed and connected."""
        return self._listening.is_set()

    def start(self) -> None:
        """Start the thread; the broker may still be unreachable."""
        self._thread = threading.Thread(
            target=keep_running,
            args=("event-relay", self._run, self._stopping),
            name="event-relay",
            daemon=True,
        )
        self._thread.start()

    def stop(self, timeout: float = 3.0) -> None:
        """Stop the thread; wait for it at most ``timeout`` seconds."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(timeout)

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._serve()
            except BrokerError as error:
                self._disconnected(str(error))
            finally:
                self._listening.clear()
            self._stopping.wait(RETRY_SECONDS)

    def _serve(self) -> None:
        broker = self._connect(self._url, name=self.queue.name, timeout=CONNECT_SECONDS)
        try:
            broker.declare_exchange(topology.EVENTS, "fanout")
            broker.declare(self.queue)
            broker.bind(self.queue.name, topology.EVENTS)
            subscription = broker.subscribe(self.queue.name, prefetch=2 * BATCH)
            while not self._stopping.is_set():
                self._watch(broker)
                self._forward(subscription, subscription.take(BATCH, timeout=POLL_SECONDS))
            with contextlib.suppress(BrokerError):
                subscription.close()
                # The queue would expire after a minute.
                broker.delete(self.queue.name)
        finally:
            broker.close(1.0)

    def _watch(self, broker: Broker) -> None:
        if not broker.connected:
            self._disconnected("the connection was lost")
        elif not self._listening.is_set():
            if self._outage:
                logger.info("live updates resumed")
            self._outage = False
            self._listening.set()

    def _disconnected(self, why: str) -> None:
        """Log the first error of an outage."""
        self._listening.clear()
        if not self._outage:
            self._outage = True
            logger.warning("live updates stopped, the broker is unreachable: %s", why)

    def _forward(self, subscription: Subscription, deliveries: list[Delivery]) -> None:
        events = newest(deliveries)
        if events:
            try:
                self._deliver(events)
            except TimeoutError:
                logger.warning("events dropped, the web process is too busy: count=%d", len(events))
        subscription.ack(deliveries)


def newest(deliveries: Sequence[Delivery]) -> list[Event]:
    """Return the newest event of each kind and subject, in order of arrival."""
    events: dict[tuple[str, object], Event] = {}
    for delivery in deliveries:
        try:
            message = decode(delivery.body)
        except ProtocolError as error:
            logger.warning("message dropped: queue=%s error=%s", delivery.queue, error)
            continue
        if isinstance(message, Event) and message.kind in SHOWN:
            key = (message.kind, subject(message.payload))
            # Removed first, so that the newest is also the last.
            events.pop(key, None)
            events[key] = message
    return list(events.values())


def to_channel_layer(loop: asyncio.AbstractEventLoop) -> Deliver:
    """Return a function that sends events to the channel layer on the server's event loop."""

    def deliver(events: Sequence[Event]) -> None:
        handed_over = asyncio.run_coroutine_threadsafe(send_to_groups(events), loop)
        try:
            handed_over.result(HAND_OVER_SECONDS)
        except TimeoutError:
            handed_over.cancel()
            raise

    return deliver


async def send_to_groups(events: Sequence[Event]) -> None:
    """Send each event to the websocket groups of the pages that show it."""
    layer = get_channel_layer()
    for event in events:
        message = {"type": RELAY_TYPE, "kind": event.kind, "payload": event.payload}
        for group in groups_of(event):
            await layer.group_send(group, message)


def groups_of(event: Event) -> list[str]:
    """Return the websocket groups of the pages that show the event."""
    if event.kind == AGENTS_CHANGED:
        # Sent every second: the overview polls agents less often instead.
        return [AGENTS]
    if event.kind == LOG_GREW:
        return [log_group(str(event.payload.get("stream")))]
    groups = [EVERYTHING]
    if event.project is not None:
        groups.append(project_group(event.project))
    run = event.payload.get("run")
    if isinstance(run, int):
        groups.append(run_group(run))
    return groups
