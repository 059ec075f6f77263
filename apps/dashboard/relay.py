"""Carries events from the broker to this web process's own websockets.

One thread a web process. It may lose everything at any time: what it carries is droppable, the
pages ask again after a gap. So it never makes the web fail, and it needs no database.
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
from yardkit.protocol import Event, ProtocolError, decode

logger = logging.getLogger(__name__)

BATCH: Final = 500
# How long a stop may take to be noticed; events themselves wake the thread at once.
POLL_SECONDS: Final = 0.5
CONNECT_SECONDS: Final = 5.0
RETRY_SECONDS: Final = 2.0
# A loop that has not taken a batch for so long is stuck; the batch is dropped.
HAND_OVER_SECONDS: Final = 10.0

Deliver = Callable[[Sequence[Event]], None]


class EventRelay:
    """Reads this process's own queue of events until it is stopped."""

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
        """Subscribed, and the broker is there."""
        return self._listening.is_set()

    def start(self) -> None:
        """Start the thread; the broker need not be there yet."""
        self._thread = threading.Thread(target=self._run, name="event-relay", daemon=True)
        self._thread.start()

    def stop(self, timeout: float = 3.0) -> None:
        """Ask the thread to end and wait for it, at most ``timeout`` seconds."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(timeout)

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._serve()
            except BrokerError as error:
                self._away(str(error))
            except Exception:  # live updates may stop, the web process may not
                logger.exception("the event relay failed; it starts again")
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
                self._pass_on(subscription, subscription.take(BATCH, timeout=POLL_SECONDS))
            with contextlib.suppress(BrokerError):
                subscription.close()
                # Its own queue would go by itself a minute later; sooner is tidier.
                broker.delete(self.queue.name)
        finally:
            broker.close(1.0)

    def _watch(self, broker: Broker) -> None:
        if not broker.connected:
            self._away("the connection was lost")
        elif not self._listening.is_set():
            if self._outage:
                logger.info("live updates are back")
            self._outage = False
            self._listening.set()

    def _away(self, why: str) -> None:
        """One line an outage, however often it is noticed."""
        self._listening.clear()
        if not self._outage:
            self._outage = True
            logger.warning("no live updates, the broker is away: %s", why)

    def _pass_on(self, subscription: Subscription, deliveries: list[Delivery]) -> None:
        events = newest(deliveries)
        if events:
            try:
                self._deliver(events)
            except TimeoutError:
                logger.warning("dropped %d events: the web process is too busy", len(events))
        subscription.ack(deliveries)


def newest(deliveries: Sequence[Delivery]) -> list[Event]:
    """The events pages show, only the last of each kind of each run, in order of arrival."""
    events: dict[tuple[str, object], Event] = {}
    for delivery in deliveries:
        try:
            message = decode(delivery.body)
        except ProtocolError as error:
            logger.warning("dropped a message of %s: %s", delivery.queue, error)
            continue
        if isinstance(message, Event) and message.kind in SHOWN:
            key = (message.kind, subject(message.payload))
            # Taken out first, so that the newest also stands last.
            events.pop(key, None)
            events[key] = message
    return list(events.values())


def to_channel_layer(loop: asyncio.AbstractEventLoop) -> Deliver:
    """A ``deliver`` that hands events to the channel layer on the server's event loop."""

    def deliver(events: Sequence[Event]) -> None:
        handed_over = asyncio.run_coroutine_threadsafe(spread(events), loop)
        try:
            handed_over.result(HAND_OVER_SECONDS)
        except TimeoutError:
            handed_over.cancel()
            raise

    return deliver


async def spread(events: Sequence[Event]) -> None:
    """Send each event to the groups whose pages show it."""
    layer = get_channel_layer()
    for event in events:
        message = {"type": RELAY_TYPE, "kind": event.kind, "payload": event.payload}
        for group in groups_of(event):
            await layer.group_send(group, message)


def groups_of(event: Event) -> list[str]:
    """The groups whose pages show the event."""
    if event.kind == AGENTS_CHANGED:
        # Every second: the home page asks by itself, and less often.
        return [AGENTS]
    if event.kind == LOG_GREW:
        # For whoever looks at this very log.
        return [log_group(str(event.payload.get("stream")))]
    groups = [EVERYTHING]
    if event.project is not None:
        groups.append(project_group(event.project))
    run = event.payload.get("run")
    if isinstance(run, int):
        groups.append(run_group(run))
    return groups
