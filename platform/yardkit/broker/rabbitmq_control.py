"""Serial declare, delete and count requests on a channel of their own.

RabbitMQ closes the channel on an error, so nothing else may share it.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Final

import pika
from pika.channel import Channel
from pika.exceptions import ChannelClosed

from yardkit.broker.base import BrokerError, BrokerUnavailable, QueueSpec, Unroutable
from yardkit.broker.declared import Binding, Declared
from yardkit.broker.rabbitmq_connection import Connection
from yardkit.broker.rabbitmq_loop import Loop
from yardkit.broker.rabbitmq_messages import queue_arguments

logger = logging.getLogger(__name__)

# How long anything waits for a lost connection before it fails.
PATIENCE_SECONDS: Final = 30.0
_NOT_FOUND = 404

Done = Callable[[pika.frame.Method], None]


@dataclass(slots=True)
class ControlRequest:
    """One request to the broker. ``subject`` names it in errors."""

    start: Callable[[Channel, Done], object]
    subject: str
    restoring: bool = False
    future: Future[pika.frame.Method] = field(default_factory=Future)
    made_at: float = field(default_factory=time.monotonic)


class Control:
    """Execute requests in order; repeat the one interrupted by a lost connection."""

    def __init__(
        self, loop: Loop, declared: Declared, on_restored: Callable[[Connection], None]
    ) -> None:
        """``on_restored`` is called when connected and everything declared exists again."""
        self._loop = loop
        self._declared = declared
        self._on_restored = on_restored
        self._connection: Connection | None = None
        self._channel: Channel | None = None
        self._current: ControlRequest | None = None
        self._waiting: deque[ControlRequest] = deque()

    # --- what the link says --------------------------------------------------------------------

    def up(self, connection: Connection) -> None:
        """Restore declarations on a new connection, then continue."""
        self._connection = connection
        requests = self._restoring()
        for request in requests:
            request.restoring = True
            request.future.add_done_callback(_log_failure)
        if requests:
            requests[-1].future.add_done_callback(lambda _: self._on_restored(connection))
        else:
            self._on_restored(connection)
        self._waiting.extendleft(reversed(requests))
        self._open()

    def down(self) -> None:
        """Keep requests for the next connection."""
        self._connection = self._channel = None
        if self._current is not None:
            self._waiting.appendleft(self._current)
            self._current = None
        self._waiting = deque(request for request in self._waiting if not request.restoring)
        self._loop.later(PATIENCE_SECONDS, self._give_up_old)

    def fail_all(self, error: BrokerError) -> None:
        """Fail all requests: the broker object is closed."""
        if self._current is not None:
            self._waiting.appendleft(self._current)
            self._current = None
        while self._waiting:
            self._waiting.popleft().future.set_exception(error)

    def _give_up_old(self) -> None:
        if self._connection is not None:
            return
        oldest = time.monotonic() - PATIENCE_SECONDS
        waiting = list(self._waiting)
        self._waiting.clear()
        for request in waiting:
            if request.made_at > oldest:
                self._waiting.append(request)
            else:
                text = f"no connection to RabbitMQ for {PATIENCE_SECONDS:g} s"
                request.future.set_exception(BrokerUnavailable(text))
        if self._waiting:
            wait = self._waiting[0].made_at - oldest
            self._loop.later(wait, self._give_up_old)

    # --- requests ------------------------------------------------------------------------------

    def submit(self, request: ControlRequest) -> None:
        """Queue a request. I/O thread only."""
        self._waiting.append(request)
        if self._connection is None:
            self._loop.later(PATIENCE_SECONDS, self._give_up_old)
        self._next()

    def _restoring(self) -> list[ControlRequest]:
        declared = self._declared
        return [
            *map(declare_queue, declared.queues.values()),
            *(declare_exchange(name, kind) for name, kind in declared.exchanges.items()),
            *map(bind, declared.bindings),
        ]

    def _open(self) -> None:
        if self._connection is not None and self._connection.is_open:
            self._connection.channel(on_open_callback=self._opened)

    def _opened(self, channel: Channel) -> None:
        self._channel = channel
        channel.add_on_close_callback(self._closed)
        self._next()

    def _next(self) -> None:
        channel = self._channel
        if self._current is None and self._waiting and channel is not None and channel.is_open:
            request = self._current = self._waiting.popleft()
            request.start(channel, lambda frame: self._done(request, frame))

    def _done(self, request: ControlRequest, frame: pika.frame.Method) -> None:
        if self._current is request:
            self._current = None
            request.future.set_result(frame)
            self._next()

    def _closed(self, channel: Channel, reason: BaseException) -> None:
        if channel is not self._channel:
            return
        self._channel = None
        if not isinstance(reason, ChannelClosed):
            return  # the connection went with it, and ``down`` follows
        request, self._current = self._current, None
        if request is not None:
            request.future.set_exception(_explain(request, reason))
        self._open()


def _explain(request: ControlRequest, reason: ChannelClosed) -> BrokerError:
    # "PRECONDITION_FAILED - inequivalent arg 'x-expires' for queue 'q' in vhost '/': received ..."
    text = reason.reply_text.partition(" - ")[2] or reason.reply_text
    if reason.reply_code == _NOT_FOUND and "no queue" in text:
        return Unroutable([request.subject])
    if reason.reply_code == _NOT_FOUND and "home node" in text:
        # "home node 'rabbit@b' of durable queue 'q' in vhost '/' is down or inaccessible"
        return BrokerUnavailable(text)
    if reason.reply_code == _NOT_FOUND:
        return BrokerError(f"there is {text}")
    if "inequivalent" in text:
        return BrokerError(f"{request.subject!r} exists with other settings: {text}")
    return BrokerError(f"RabbitMQ refused {request.subject!r}: {text}")


def _log_failure(future: Future[pika.frame.Method]) -> None:
    error = future.exception()
    if error is not None:
        logger.warning("cannot declare again: %s", error)


def declare_queue(spec: QueueSpec) -> ControlRequest:
    return ControlRequest(
        lambda channel, done: channel.queue_declare(
            spec.name, durable=spec.durable, arguments=queue_arguments(spec), callback=done
        ),
        spec.name,
    )


def declare_exchange(name: str, kind: str) -> ControlRequest:
    return ControlRequest(
        lambda channel, done: channel.exchange_declare(
            name, exchange_type=kind, durable=True, callback=done
        ),
        name,
    )


def find_exchange(name: str) -> ControlRequest:
    """Fails with ``BrokerError`` when the exchange does not exist."""
    return ControlRequest(
        lambda channel, done: channel.exchange_declare(name, passive=True, callback=done), name
    )


def bind(binding: Binding) -> ControlRequest:
    return ControlRequest(
        lambda channel, done: channel.queue_bind(
            binding.queue, binding.exchange, routing_key=binding.key, callback=done
        ),
        binding.queue,
    )


def count(queue: str) -> ControlRequest:
    return ControlRequest(
        lambda channel, done: channel.queue_declare(queue, passive=True, callback=done), queue
    )


def purge(queue: str) -> ControlRequest:
    return ControlRequest(lambda channel, done: channel.queue_purge(queue, callback=done), queue)


def delete(queue: str) -> ControlRequest:
    return ControlRequest(lambda channel, done: channel.queue_delete(queue, callback=done), queue)
