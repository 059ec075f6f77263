"""One consumer of one queue in RabbitMQ, on a channel of its own.

The prefetch limit, and the closing of the channel after an error, apply to a channel.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING

import pika
from pika.channel import Channel
from pika.exceptions import ChannelClosed

from yardkit.backoff import Backoff
from yardkit.broker import traffic
from yardkit.broker.base import (
    DEAD_QUEUE,
    BrokerClosed,
    BrokerError,
    Delivery,
    Outgoing,
    QueueSpec,
    Unroutable,
)
from yardkit.broker.deadletters import dead_headers
from yardkit.broker.echoes import echo_messages
from yardkit.broker.inbox import Inbox
from yardkit.broker.rabbitmq_connection import Connection
from yardkit.broker.rabbitmq_control import bind, declare_queue
from yardkit.broker.rabbitmq_messages import Tag, to_delivery
from yardkit.broker.rabbitmq_publisher import PublishedBatch

if TYPE_CHECKING:
    from yardkit.broker.rabbitmq_core import Core

logger = logging.getLogger(__name__)

_NOT_FOUND = 404
_CLOSE_SECONDS = 5.0
# A process that ends does not wait longer for a server that hangs.
_CANCEL_SECONDS = 1.0
_BURIAL_ATTEMPTS = 3


class RabbitSubscription:
    """Subscription on RabbitMQ; see ``yardkit.broker.base.Subscription``."""

    def __init__(
        self, core: Core, queue: str, prefetch: int, on_ready: Callable[[], None] | None
    ) -> None:
        self._core = core
        self._queue = queue
        self._prefetch = prefetch
        self._inbox = Inbox(on_ready, self._echo)
        # Settled when the broker has accepted the consumer, or has refused it.
        self.accepted: Future[None] = Future()
        # From here on: the I/O thread's alone.
        self._connection: Connection | None = None
        self._channel: Channel | None = None
        self._generation = 0
        self._backoff = Backoff()
        self._arrived: list[Delivery] = []
        # In the order of delivery; ``_open`` are those not yet settled.
        self._order: deque[int] = deque()
        self._open: set[int] = set()
        self._acked: set[int] = set()
        self._burying: set[int] = set()
        self._flush_planned = False
        self._is_ending = False
        self._when_closed: list[Callable[[], None]] = []
        self._consumer = ""
        self._is_cancelled = False
        self._when_cancelled: list[Callable[[], None]] = []

    # --- any thread ----------------------------------------------------------------------------

    @property
    def queue(self) -> str:
        return self._queue

    def take(self, limit: int = 100, timeout: float = 0.0) -> list[Delivery]:
        return self._inbox.take(limit, timeout)

    def ack(self, deliveries: Sequence[Delivery]) -> None:
        traffic.settled(self._queue, len(deliveries))
        self._core.post(partial(self._finish, _tags(deliveries), give_back=False))

    def requeue(self, deliveries: Sequence[Delivery]) -> None:
        self._core.post(partial(self._finish, _tags(deliveries), give_back=True))

    def dead_letter(self, delivery: Delivery, reason: str) -> None:
        tag = delivery.tag
        if not isinstance(tag, Tag):
            return
        dead = Outgoing(
            delivery.body,
            key=DEAD_QUEUE,
            priority=delivery.priority,
            message_id=delivery.message_id,
            reply_to=delivery.reply_to,
            correlation_id=delivery.correlation_id,
            headers=dead_headers(
                delivery.headers, reason=reason, queue=self._queue, died_at=time.time()
            ),
        )
        traffic.settled(self._queue, 1)
        self._core.post(partial(self._publish_dead_letter, tag, dead))

    def _echo(self, asked: list[Delivery]) -> None:
        if answers := echo_messages(asked):
            self._core.post(partial(self._core.send, PublishedBatch(answers)))
        self._core.post(partial(self._finish, _tags(asked), give_back=False))

    def cancel(self) -> None:
        self._wait_for(self._consume_no_more, _CANCEL_SECONDS)
        self._inbox.end()

    def close(self) -> None:
        self._inbox.close(f"the subscription of {self._queue!r} is closed")
        self._wait_for(self._shut, _CLOSE_SECONDS)

    def _wait_for(self, ending: Callable[[Callable[[], None]], None], seconds: float) -> None:
        """Run ``ending`` in the I/O thread and wait for its callback."""
        done: Future[None] = Future()
        try:
            self._core.post(partial(ending, lambda: done.set_result(None)))
        except BrokerClosed:
            return  # closing the broker has done it
        if not self._core.loop.is_current:
            try:
                done.result(seconds)
            except TimeoutError:
                logger.warning("RabbitMQ did not confirm the end of %r", self._queue)

    # --- the I/O thread: connecting ------------------------------------------------------------

    def up(self, connection: Connection) -> None:
        """Consume on a new connection; declared queues exist again."""
        self._connection = connection
        if not self._takes_no_more:
            connection.channel(on_open_callback=self._opened)

    def down(self) -> None:
        """Discard deliveries: they are redelivered."""
        self._connection = None
        self._lose_channel()

    def end(self, because: str) -> None:
        """Fail waiting callers: the broker object is closed."""
        self._inbox.close(because)
        if not self.accepted.done():
            self.accepted.set_exception(BrokerClosed(because))

    def _opened(self, channel: Channel) -> None:
        if self._takes_no_more:
            channel.close()
            return
        self._channel = channel
        self._generation += 1
        channel.add_on_close_callback(self._closed)
        channel.add_on_cancel_callback(self._cancelled)
        channel.basic_qos(prefetch_count=self._prefetch, callback=lambda _: self._consume(channel))

    def _consume(self, channel: Channel) -> None:
        if channel.is_open and self._connection is not None:
            self._connection.read_plain(channel.channel_number, self._received_plain)
            self._consumer = channel.basic_consume(
                self._queue, on_message_callback=self._received, callback=self._consuming
            )

    def _consuming(self, frame: pika.frame.Method) -> None:
        self._backoff.reset()
        if not self.accepted.done():
            self.accepted.set_result(None)

    def _cancelled(self, frame: pika.frame.Method) -> None:
        if self._queue in self._core.declared.queues:  # else it was this very process
            logger.warning("the queue %r was deleted; declaring it again", self._queue)
        if self._channel is not None and self._channel.is_open:
            self._channel.close()

    def _closed(self, channel: Channel, reason: BaseException) -> None:
        if channel is not self._channel:
            return
        self._lose_channel()
        if self._is_ending:
            self._notify_closed()
        elif not isinstance(reason, ChannelClosed) or self._connection is None:
            return  # the connection went with it, and ``down`` follows
        elif self.accepted.done():
            self._core.loop.later(self._backoff.seconds(), self._come_back)
        elif reason.reply_code == _NOT_FOUND:
            self.accepted.set_exception(Unroutable([self._queue]))
        else:
            self.accepted.set_exception(
                BrokerError(f"cannot consume {self._queue!r}: {reason.reply_text}")
            )

    def _lose_channel(self) -> None:
        if self._channel is not None and self._connection is not None:
            self._connection.read_all(self._channel.channel_number)
        self._channel = None
        self._generation += 1
        self._arrived.clear()
        for tags in (self._open, self._acked, self._burying):
            tags.clear()
        self._order.clear()
        self._inbox.clear()
        self._notify_cancelled()

    def _come_back(self) -> None:
        """Consume again after the queue was deleted; declare it first if it is ours."""
        connection = self._connection
        if connection is None or self._channel is not None or self._takes_no_more:
            return
        declared = self._core.declared
        spec = declared.queues.get(self._queue)
        if spec is not None:
            self._core.control.submit(declare_queue(spec))
            for binding in declared.bindings_of(spec.name):
                self._core.control.submit(bind(binding))
        connection.channel(on_open_callback=self._opened)

    @property
    def _takes_no_more(self) -> bool:
        return self._is_ending or self._is_cancelled

    def _consume_no_more(self, done: Callable[[], None]) -> None:
        self._is_cancelled = True
        self._when_cancelled.append(done)
        channel = self._channel
        if channel is None or not channel.is_open or not self._consumer:
            self._notify_cancelled()
            return
        consumer, self._consumer = self._consumer, ""
        channel.basic_cancel(consumer, callback=lambda _: self._notify_cancelled())
        # pika rejects what comes until the broker has confirmed, and it would come again.
        channel._cancelled.discard(consumer)

    def _notify_cancelled(self) -> None:
        self._hand_over()
        while self._when_cancelled:
            self._when_cancelled.pop()()

    def _shut(self, done: Callable[[], None]) -> None:
        self._core.forget(self)
        self._is_ending = True
        self._when_closed.append(done)
        self.flush()
        self._close_channel_when_ready()

    def _close_channel_when_ready(self) -> None:
        if not self._is_ending or self._burying:
            return  # a dead letter is on its way: its original must not come back meanwhile
        if self._channel is None:
            self._notify_closed()
        elif self._channel.is_open:
            self._channel.close()

    def _notify_closed(self) -> None:
        while self._when_closed:
            self._when_closed.pop()()

    # --- the I/O thread: deliveries ------------------------------------------------------------

    def _received(
        self,
        channel: Channel,
        method: pika.spec.Basic.Deliver,
        properties: pika.BasicProperties,
        body: bytes,
    ) -> None:
        if channel is self._channel:
            self._came(
                to_delivery(
                    method, properties, body, queue=self._queue, generation=self._generation
                ),
                method.delivery_tag,
            )

    def _received_plain(
        self,
        number: int,
        redelivered: bool,
        exchange: str,
        key: str,
        properties: pika.BasicProperties | None,
        message_id: str,
        body: bytes,
    ) -> None:
        """Handle a delivery decoded by the fast path."""
        if properties is not None:
            method = pika.spec.Basic.Deliver("", number, redelivered, exchange, key)
            delivery = to_delivery(
                method, properties, body, queue=self._queue, generation=self._generation
            )
        else:
            tag = Tag(self._generation, number)
            delivery = Delivery(
                body, self._queue, exchange, key, redelivered, 0, message_id, "", "", {}, tag
            )
        self._came(delivery, number)

    def _came(self, delivery: Delivery, number: int) -> None:
        self._order.append(number)
        self._open.add(number)
        if not self._arrived:
            # Many deliveries come in one read: hand them over together.
            self._core.loop.soon(self._hand_over)
        self._arrived.append(delivery)

    def _hand_over(self) -> None:
        if self._arrived:
            arrived, self._arrived = self._arrived, []
            self._inbox.put(arrived)

    def _finish(self, tags: Sequence[Tag], *, give_back: bool) -> None:
        for generation, number in tags:
            if not self._is_open(generation, number):
                continue
            self._open.discard(number)
            if not give_back:
                self._acked.add(number)
            elif self._channel is not None and self._channel.is_open:
                self._channel.basic_nack(number, requeue=True)
        self._plan_flush()

    def _is_open(self, generation: int, number: int) -> bool:
        """Return whether this delivery is still unacknowledged and of this connection."""
        return (
            generation == self._generation and number in self._open and number not in self._burying
        )

    def _plan_flush(self) -> None:
        if self._acked and not self._flush_planned:
            self._flush_planned = True
            self._core.loop.soon(self.flush)

    def flush(self) -> None:
        """Send acknowledgements, combined up to the first unfinished delivery."""
        self._flush_planned = False
        channel, order, acked = self._channel, self._order, self._acked
        if channel is None or not channel.is_open:
            return
        last = together = 0
        while order and order[0] not in self._open:
            number = order.popleft()
            if number in acked:
                acked.discard(number)
                last = number
                together += 1
        if together:
            channel.basic_ack(last, multiple=together > 1)
        for number in acked:
            channel.basic_ack(number)
        acked.clear()

    def _publish_dead_letter(self, tag: Tag, dead: Outgoing, attempt: int = 1) -> None:
        if attempt == 1:
            if not self._is_open(*tag):
                return
            self._burying.add(tag.number)
        batch = PublishedBatch([dead])
        batch.future.add_done_callback(partial(self._dead_letter_published, tag, dead, attempt))
        self._core.send(batch)

    def _dead_letter_published(
        self, tag: Tag, dead: Outgoing, attempt: int, confirm: Future[None]
    ) -> None:
        error = confirm.exception()
        if tag.generation != self._generation or tag.number not in self._burying:
            return  # the connection was lost: the original comes again
        if error is not None and attempt < _BURIAL_ATTEMPTS and not isinstance(error, BrokerClosed):
            if isinstance(error, Unroutable):
                self._core.control.submit(declare_queue(QueueSpec(DEAD_QUEUE)))
            self._core.loop.later(
                self._backoff.seconds(), partial(self._publish_dead_letter, tag, dead, attempt + 1)
            )
            return
        self._burying.discard(tag.number)
        self._finish([tag], give_back=error is not None)
        if self._is_ending:
            self.flush()
            self._close_channel_when_ready()


def _tags(deliveries: Sequence[Delivery]) -> list[Tag]:
    return [delivery.tag for delivery in deliveries if isinstance(delivery.tag, Tag)]
