"""The caller's side of request and reply, on every broker."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import replace

from yardkit.broker.base import Broker, BrokerClosed, Delivery, Outgoing, QueueSpec, Subscription
from yardkit.broker.gateway import belongs_to, sender_of

# Long enough for a reconnect, short enough that the queue of a killed asker does not stay.
REPLY_QUEUE_EXPIRES_SECONDS = 60.0
# An answer that is not waited for should not outlive its question for long.
REPLY_TTL_SECONDS = 60.0
_PREFETCH = 1000


class Replies:
    """One private reply queue for each broker object, created at the first request.

    An ordinary expiring queue, so that replies sent during a reconnect arrive.
    """

    def __init__(
        self, broker: Broker, name: str, discard: Callable[[str], None], *, own: str = ""
    ) -> None:
        """``discard`` deletes a queue without waiting.

        ``own``: the limited account that asks; its queue is named after it.
        """
        self._broker = broker
        self._discard = discard
        self._queue = f"{own or 'reply'}.{name[:100]}.{uuid.uuid4().hex}"
        self._lock = threading.Lock()
        self._subscription: Subscription | None = None
        self._asked: dict[str, Future[Delivery]] = {}

    def request(self, message: Outgoing, timeout: float) -> Delivery:
        """See ``Broker.request``."""
        self._open()
        correlation_id = uuid.uuid4().hex
        ttl = timeout if message.ttl_seconds is None else message.ttl_seconds
        question = replace(
            message, reply_to=self._queue, correlation_id=correlation_id, ttl_seconds=ttl
        )
        answer: Future[Delivery] = Future()
        self._asked[correlation_id] = answer
        try:
            self._broker.publish([question]).add_done_callback(
                lambda confirm: _fail_with(answer, confirm.exception())
            )
            return answer.result(timeout)
        except TimeoutError:
            raise TimeoutError(f"no reply from {message.key!r} within {timeout:g} s") from None
        finally:
            self._asked.pop(correlation_id, None)

    def close(self) -> None:
        """Delete the queue if possible at once, and fail waiting callers. Otherwise it expires."""
        with self._lock:
            was_open = self._subscription is not None
        if was_open:
            with suppress(BrokerClosed):
                self._discard(self._queue)
        self.abandon()

    def abandon(self) -> None:
        """Fail waiting callers."""
        for answer in list(self._asked.values()):
            _fail_with(answer, BrokerClosed("the broker was closed before the reply came"))

    def _open(self) -> None:
        with self._lock:
            if self._subscription is not None:
                return
            self._broker.declare(
                QueueSpec(self._queue, durable=False, expires_seconds=REPLY_QUEUE_EXPIRES_SECONDS)
            )
            self._subscription = self._broker.subscribe(
                self._queue, prefetch=_PREFETCH, on_ready=self._collect
            )

    def _collect(self) -> None:
        subscription = self._subscription
        if subscription is None:
            return
        try:
            deliveries = subscription.take(_PREFETCH)
        except BrokerClosed:
            self.abandon()
            return
        for delivery in deliveries:
            answer = self._asked.get(delivery.correlation_id)
            if answer is not None:
                with suppress(InvalidStateError):  # it gave up in this very moment
                    answer.set_result(delivery)
        if deliveries:
            subscription.ack(deliveries)


def reply_message(to: Delivery, body: bytes) -> Outgoing:
    """Return the reply to ``to``.

    Raises ``ValueError`` when no reply was requested, or into another account's queue.
    """
    if not to.reply_to:
        raise ValueError("this message asks for no reply")
    sender = sender_of(to)
    if sender and not belongs_to(to.reply_to, sender):
        raise ValueError(f"{sender} asks for a reply to {to.reply_to[:100]!r}")
    return Outgoing(
        body,
        key=to.reply_to,
        correlation_id=to.correlation_id,
        ttl_seconds=REPLY_TTL_SECONDS,
        persistent=False,
        mandatory=False,
    )


def _fail_with(answer: Future[Delivery], error: BaseException | None) -> None:
    if error is not None:
        with suppress(InvalidStateError):  # the answer, or another failure, was faster
            answer.set_exception(error)
