"""Events for open pages: fast, droppable, never blocking."""

from __future__ import annotations

import atexit
import logging
import os
from collections import deque
from collections.abc import Mapping
from typing import Any

import msgspec
from django.db import connection, transaction

from apps.runtime.engine.background import BackgroundWorker
from apps.runtime.services.broker import shared_broker
from yardkit import topology
from yardkit.broker import BrokerError, Outgoing
from yardkit.protocol import Event, encode

logger = logging.getLogger(__name__)

# Most events queued while the broker is unreachable; the oldest are dropped first.
WAITING_EVENTS = 1000
CONFIRM_SECONDS = 5.0
EVENT_TTL_SECONDS = 30.0

_waiting: deque[bytes] = deque(maxlen=WAITING_EVENTS)
# The parent process sends the events that it has queued.
os.register_at_fork(after_in_child=_waiting.clear)


def emit(
    kind: str, *, project: int | None = None, payload: Mapping[str, Any] | None = None
) -> None:
    """Send an event to every web process, on commit of a running transaction.

    Never blocks and never raises: a page that misses it sees the change at its next refresh.
    """
    try:
        body = encode(Event(kind=kind, project=project, payload=dict(payload or {})))
    except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError):
        logger.exception("event %s cannot be sent: its payload is no plain data", kind)
        return
    if connection.in_atomic_block:
        transaction.on_commit(lambda: _send(body))
    else:
        _send(body)


def stop_events(timeout: float) -> None:
    """Send queued events for at most ``timeout`` seconds; later events are ignored."""
    _worker.stop(timeout)


def _send(body: bytes) -> None:
    _waiting.append(body)
    try:
        _worker.wake()
    except RuntimeError:
        # No more threads are available, or the interpreter is shutting down.
        logger.warning("an event is dropped: no thread can be started")


class _Outage:
    """Logs one line for each outage, however many events are dropped."""

    def __init__(self) -> None:
        self.dropped = 0

    def dropping(self, count: int, error: Exception) -> None:
        if self.dropped == 0:
            why = str(error) or "no confirmation in time"
            logger.warning("events are dropped until the broker is back: %s", why)
        self.dropped += count

    def over(self) -> None:
        if self.dropped:
            logger.info("events flow again; %d were dropped", self.dropped)
        self.dropped = 0


def _send_waiting() -> None:
    while batch := _drain():
        try:
            shared_broker().publish(batch).result(CONFIRM_SECONDS)
        except (BrokerError, TimeoutError) as error:
            _outage.dropping(len(batch), error)
        else:
            _outage.over()


def _drain() -> list[Outgoing]:
    bodies: list[bytes] = []
    while _waiting:
        bodies.append(_waiting.popleft())
    return [
        Outgoing(
            body=body,
            key="",
            exchange=topology.EVENTS,
            ttl_seconds=EVENT_TTL_SECONDS,
            persistent=False,
            mandatory=False,
        )
        for body in bodies
    ]


_outage = _Outage()
_worker = BackgroundWorker("events", _send_waiting)
atexit.register(stop_events, 0.5)
