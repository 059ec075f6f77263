"""Shared broker connection of this process."""

from __future__ import annotations

import atexit
import logging
import os
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from django.conf import settings

from yardkit.broker import Broker, BrokerError, BrokerUnavailable, connect
from yardkit.shared_queues import declare_shared

logger = logging.getLogger(__name__)

# Timeout of connecting: a web request fails rather than wait longer.
CONNECT_TIMEOUT_SECONDS = 3.0
# After a failed attempt further callers fail at once for this long: otherwise an outage
# would block every web thread for the whole timeout, one after the other.
FAIL_FAST_SECONDS = 2.0


@dataclass
class _SharedBroker:
    lock: threading.Lock = field(default_factory=threading.Lock)
    broker: Broker | None = None
    url: str = ""
    failed_at: float | None = None
    failure: BrokerUnavailable | None = None


_shared = _SharedBroker()
# Callbacks before the connection closes, called with (broker, timeout in seconds).
_last_words: list[Callable[[Broker, float], None]] = []


def _forget_after_fork() -> None:
    # Sockets and I/O thread belong to the parent; not even closing them is safe.
    global _shared
    _shared = _SharedBroker()


os.register_at_fork(after_in_child=_forget_after_fork)


def shared_broker(*, timeout: float = CONNECT_TIMEOUT_SECONDS, name: str = "") -> Broker:
    """The connection to ``settings.BROKER_URL`` that all threads of this process share.

    The first call connects and declares the shared queues and exchanges; the adapter then
    reconnects by itself.

    Raises:
        BrokerUnavailable: no connection within ``timeout`` seconds, or none a moment ago.
        BadBrokerURL: the setting names no broker.
    """
    shared = _shared
    url = settings.BROKER_URL
    broker = shared.broker
    if broker is not None and shared.url == url:
        return broker
    with shared.lock:
        if shared.broker is not None and shared.url == url:
            return shared.broker
        if shared.broker is not None:
            shared.broker.close()
            shared.broker = None
        _refuse_if_just_failed(shared, url)
        shared.url = url
        try:
            shared.broker = _open(url, timeout=timeout, name=name)
        except BrokerUnavailable as error:
            shared.failed_at, shared.failure = time.monotonic(), error
            raise
        shared.failed_at = None
        return shared.broker


def close_shared_broker(timeout: float = 3.0) -> None:
    """Flush and close the connection, if any; the next use opens a new one."""
    shared = _shared
    with shared.lock:
        broker, shared.broker = shared.broker, None
        shared.failed_at = None
    if broker is None:
        return
    deadline = time.monotonic() + timeout
    for say in _last_words:
        try:
            say(broker, max(0.0, deadline - time.monotonic()) / 2)
        except (BrokerError, TimeoutError) as error:
            logger.warning("not said before the end: %s", error or "no confirmation in time")
    broker.close(max(0.0, deadline - time.monotonic()))


def before_broker_closes(say: Callable[[Broker, float], None]) -> None:
    """Register ``say`` to be called with (broker, timeout) before the connection closes."""
    _last_words.append(say)


def _refuse_if_just_failed(shared: _SharedBroker, url: str) -> None:
    if (
        shared.failed_at is not None
        and shared.url == url
        and time.monotonic() - shared.failed_at < FAIL_FAST_SECONDS
    ):
        raise BrokerUnavailable(str(shared.failure))


def _open(url: str, *, timeout: float, name: str) -> Broker:
    broker = connect(
        url, name=name or f"crawlyard {socket.gethostname()} {os.getpid()}", timeout=timeout
    )
    try:
        declare_shared(broker)
    except BaseException:
        broker.close(0.0)
        raise
    return broker


# A command that exits before its last message is confirmed would lose transient messages.
atexit.register(close_shared_broker, 1.0)
