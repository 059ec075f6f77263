"""Publisher with a window of outstanding confirms, on a connection of its own.

RabbitMQ stops reading from publishing connections during a memory alarm; acknowledgements on the
same connection would not be read, and the queues could never drain.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Final

import pika
from pika.channel import Channel
from pika.exceptions import ChannelClosed

from yardkit.broker.base import BrokerError, BrokerUnavailable, MessageRefused, Outgoing, Unroutable
from yardkit.broker.outgoing import new_future
from yardkit.broker.rabbitmq_connection import Connection
from yardkit.broker.rabbitmq_control import PATIENCE_SECONDS
from yardkit.broker.rabbitmq_loop import Loop
from yardkit.broker.rabbitmq_messages import number_of, to_properties

logger = logging.getLogger(__name__)

# As many messages, or as many bytes, may be on their way at once; the rest waits here.
WINDOW_MESSAGES: Final = 2000
WINDOW_BYTES: Final = 32 * 1024 * 1024
_PRECONDITION_FAILED: Final = 406


class PublishedBatch:
    """Messages of one ``publish()`` call in flight."""

    __slots__ = ("failed", "future", "made_at", "messages", "open", "unroutable")

    def __init__(self, messages: Sequence[Outgoing]) -> None:
        self.messages = messages
        self.future: Future[None] = new_future()
        self.made_at = time.monotonic()
        self.open = len(messages)
        self.unroutable: list[str] = []
        self.failed = False

    def confirm_one(self) -> None:
        self.open -= 1
        self.settle_if_done()

    def settle_if_done(self) -> None:
        if self.open > 0 or self.failed:
            return
        if self.unroutable:
            self.future.set_exception(Unroutable(self.unroutable))
        else:
            self.future.set_result(None)

    def fail(self, error: BrokerError) -> None:
        if not self.failed and self.open > 0:
            self.failed = True
            self.future.set_exception(error)


class Publisher:
    """Send batches and track confirms. Used in the loop's thread."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._connection: Connection | None = None
        self._channel: Channel | None = None
        self._waiting: deque[tuple[Outgoing, PublishedBatch]] = deque()
        self._outstanding: dict[int, tuple[Outgoing, PublishedBatch]] = {}
        self._oldest = 1
        self._last = 0
        self._bytes = 0
        self._watching = False
        self._held = False
        self._on_idle: Callable[[], None] | None = None

    # --- what the link says --------------------------------------------------------------------

    def up(self, connection: Connection) -> None:
        self._connection = connection
        connection.channel(on_open_callback=self._opened)

    def down(self, why: str) -> None:
        """Fail unconfirmed batches: their outcome is unknown."""
        self._connection = None
        text = f"the connection was lost before the confirm came: {why}"
        self._lose_channel(BrokerUnavailable(text))
        self._watch()

    def _lose_channel(self, error: BrokerError) -> None:
        self._channel = None
        outstanding, self._outstanding = self._outstanding, {}
        self._bytes = 0
        for _, batch in outstanding.values():
            batch.fail(error)
        while self._waiting and self._waiting[0][1].failed:
            self._waiting.popleft()
        self._check_idle()

    def _opened(self, channel: Channel) -> None:
        channel.add_on_close_callback(self._closed)
        channel.add_on_return_callback(self._returned)
        channel.confirm_delivery(self._answered, callback=lambda _: self._ready(channel))

    def _ready(self, channel: Channel) -> None:
        self._channel = channel
        self._oldest, self._last = 1, 0
        self._pump()

    def _closed(self, channel: Channel, reason: BaseException) -> None:
        connection = self._connection
        if connection is None or not connection.is_open:
            return  # ``down`` follows
        # A message the broker cannot take, or an exchange that was deleted meanwhile.
        logger.warning("RabbitMQ closed the publishing channel: %s", reason)
        text = f"RabbitMQ refused a message: {reason}"
        # Missing rights close the channel as well; then no message is to blame.
        at_fault = isinstance(reason, ChannelClosed) and reason.reply_code == _PRECONDITION_FAILED
        self._lose_channel(MessageRefused(text) if at_fault else BrokerUnavailable(text))
        connection.channel(on_open_callback=self._opened)

    def hold(self) -> None:
        """Stop sending until queues are declared again."""
        self._held = True
        self._watch()

    def release(self) -> None:
        """Resume sending: everything is declared again."""
        self._held = False
        self._pump()

    # --- the way out ---------------------------------------------------------------------------

    def submit(self, batch: PublishedBatch) -> None:
        """Send a batch as soon as the window allows."""
        self._waiting.extend([(message, batch) for message in batch.messages])
        self._pump()
        self._watch()

    def _pump(self) -> None:
        channel, waiting, outstanding = self._channel, self._waiting, self._outstanding
        if channel is None or not channel.is_open or self._held:
            return
        while waiting and len(outstanding) < WINDOW_MESSAGES and self._bytes < WINDOW_BYTES:
            entry = waiting.popleft()
            message, batch = entry
            if batch.failed:
                continue
            self._last = number = self._last + 1
            outstanding[number] = entry
            self._bytes += len(message.body)
            channel.basic_publish(
                message.exchange,
                message.key,
                message.body,
                to_properties(message, number),
                mandatory=message.mandatory,
            )

    def _answered(self, frame: pika.frame.Method) -> None:
        method = frame.method
        number = method.delivery_tag
        if method.multiple:
            numbers: Sequence[int] = range(self._oldest, number + 1)
            self._oldest = number + 1
        else:
            numbers = (number,)
            if number == self._oldest:
                self._oldest += 1
        refused = isinstance(method, pika.spec.Basic.Nack)
        for each in numbers:
            entry = self._outstanding.pop(each, None)
            if entry is None:
                continue
            message, batch = entry
            self._bytes -= len(message.body)
            if refused:
                batch.fail(BrokerUnavailable("RabbitMQ could not store the message"))
            batch.confirm_one()
        self._pump()
        self._check_idle()

    def _returned(
        self,
        channel: Channel,
        method: pika.spec.Basic.Return,
        properties: pika.BasicProperties,
        body: bytes,
    ) -> None:
        """Note an unroutable message; its confirm follows."""
        entry = self._outstanding.get(number_of(properties) or 0)
        if entry is not None:
            message, batch = entry
            batch.unroutable.append(message.key)

    # --- waiting -------------------------------------------------------------------------------

    def _watch(self) -> None:
        """Fail batches that have waited too long, about once a second."""
        if not self._watching and self._waiting and (self._channel is None or self._held):
            self._watching = True
            self._loop.later(1.0, self._give_up_old)

    def _give_up_old(self) -> None:
        self._watching = False
        if self._channel is not None and not self._held:
            return
        oldest = time.monotonic() - PATIENCE_SECONDS
        error = BrokerUnavailable(f"no connection to RabbitMQ for {PATIENCE_SECONDS:g} s")
        while self._waiting and self._waiting[0][1].made_at <= oldest:
            self._waiting.popleft()[1].fail(error)
        self._check_idle()
        self._watch()

    def when_idle(self, function: Callable[[], None]) -> None:
        """Call ``function`` once everything submitted is settled."""
        self._on_idle = function
        self._check_idle()

    def _check_idle(self) -> None:
        if self._on_idle is not None and not self._waiting and not self._outstanding:
            function, self._on_idle = self._on_idle, None
            self._loop.soon(function)

    def fail_all(self, error: BrokerError) -> None:
        """Fail all batches: the broker object is closed."""
        for _, batch in (*self._outstanding.values(), *self._waiting):
            batch.fail(error)
        self._outstanding.clear()
        self._waiting.clear()
