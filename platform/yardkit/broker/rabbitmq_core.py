"""Parts of a RabbitMQ broker object, its start and its end."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from typing import TypeVar

import pika

from yardkit.broker.base import BrokerClosed, BrokerError, BrokerUnavailable
from yardkit.broker.declared import Declared
from yardkit.broker.gateway import GATEWAY, gateway_key
from yardkit.broker.rabbitmq_connection import Connection
from yardkit.broker.rabbitmq_control import PATIENCE_SECONDS, Control, ControlRequest, find_exchange
from yardkit.broker.rabbitmq_link import Link
from yardkit.broker.rabbitmq_loop import Loop
from yardkit.broker.rabbitmq_publisher import PublishedBatch, Publisher
from yardkit.broker.rabbitmq_subscription import RabbitSubscription
from yardkit.broker.rabbitmq_url import RabbitAddress

logger = logging.getLogger(__name__)

Result = TypeVar("Result")

# How long dropping a connection may take that answers no more.
_ABORT_SECONDS = 0.2


class Core:
    """One I/O thread, one connection for consuming and control, one for publishing."""

    def __init__(self, address: RabbitAddress, name: str) -> None:
        self.declared = Declared() if not address.own else Declared(queues={})
        self.loop = Loop(name, self._start_over)
        self.control = Control(self.loop, self.declared, self._restored)
        self._name = name
        self._address = address
        self._publisher = Publisher(self.loop)
        self._subscriptions: list[RabbitSubscription] = []
        self._connection: Connection | None = None
        self._known_exchanges: set[str] = set()
        self._lock = threading.Lock()
        self._closed_because = ""
        self._first: Future[None] = Future()
        self._refusal = ""
        self._publishes = False
        self._link = Link(
            self.loop, address, name, on_up=self._up, on_down=self._down, on_refused=self._refused
        )
        self._publishing_link = Link(
            self.loop,
            address,
            f"{name} (publishing)",
            on_up=self._publisher.up,
            on_down=self._publisher.down,
            loss_level=logging.INFO,
        )

    # --- any thread ----------------------------------------------------------------------------

    def start(self, timeout: float) -> None:
        """Connect. Raises ``BrokerUnavailable``."""
        self.loop.start()
        self.loop.post(self._link.connect)
        try:
            self._first.result(timeout)
        except TimeoutError:
            why = self._refusal or (
                f"no answer from RabbitMQ at {self._address.host}:{self._address.port}"
            )
            self.stop(0.0)
            raise BrokerUnavailable(f"{why} (tried for {timeout:g} s)") from None
        except BrokerUnavailable:
            self.stop(0.0)
            raise

    @property
    def connected(self) -> bool:
        """Whether the connections are up; the publishing one counts once it is needed."""
        return (
            self._connection is not None
            and (self._publishing_link.is_up or not self._publishes)
            and not self._closed_because
        )

    def post(self, function: Callable[[], None]) -> None:
        """Run ``function`` in the I/O thread; raises ``BrokerClosed``."""
        with self._lock:
            if self._closed_because:
                raise BrokerClosed(self._closed_because)
            self.loop.post(function)

    def ask(
        self, request: ControlRequest, then: Callable[[], None] | None = None
    ) -> pika.frame.Method:
        """Execute a request and wait; ``then`` runs in the I/O thread on success."""
        if self.loop.is_current:
            raise RuntimeError("on_ready must not call a method of the broker that waits")
        if then is not None:
            request.future.add_done_callback(lambda future: None if future.exception() else then())
        self.post(partial(self.control.submit, request))
        # The control fails it when there is no connection; one second more lets it say so.
        return self._wait(request.future, request.subject)

    def _wait(self, future: Future[Result], subject: str) -> Result:
        try:
            return future.result(PATIENCE_SECONDS + 1.0)
        except TimeoutError:
            raise BrokerUnavailable(f"no answer from RabbitMQ about {subject!r}") from None

    def subscribe(self, subscription: RabbitSubscription) -> None:
        """Start consuming; raises ``Unroutable`` for a queue that does not exist."""
        if self.loop.is_current:
            raise RuntimeError("on_ready must not call a method of the broker that waits")
        self.post(partial(self._add, subscription))
        try:
            self._wait(subscription.accepted, subscription.queue)
        except BrokerError:
            subscription.close()
            raise

    def stop(self, timeout: float) -> None:
        """Flush for up to ``timeout`` seconds, then disconnect."""
        with self._lock:
            if self._closed_because:
                return
            self._closed_because = "the broker is closed"
            self.loop.post(partial(self._publisher.when_idle, self._flushed))
        deadline = time.monotonic() + timeout
        if self.loop.join(deadline - time.monotonic()):
            return
        if timeout > 0:
            logger.warning("broker %s: closed before everything was flushed", self._name)
        self.loop.post(self._abort)
        self.loop.join(1.0)

    # --- the I/O thread ------------------------------------------------------------------------

    def send(self, batch: PublishedBatch) -> None:
        """Publish a batch, after checking exchanges that were not declared here.

        RabbitMQ closes the channel over a message to an unknown exchange, and the confirms of all
        other messages on it would be lost.
        """
        if not self._publishes:
            self._publishes = True
            self._publishing_link.connect()
        own = self._address.own
        if own:
            batch.messages = tuple(
                message
                if message.exchange
                else replace(message, exchange=GATEWAY, key=gateway_key(message.key, own))
                for message in batch.messages
            )
        unknown = {message.exchange for message in batch.messages} - self._known_exchanges
        unknown -= self.declared.exchanges.keys() | {"", GATEWAY if own else ""}
        if not unknown:
            self._publisher.submit(batch)
            return
        exchange = unknown.pop()
        request = find_exchange(exchange)
        request.future.add_done_callback(partial(self._send_after_look, batch, exchange))
        self.control.submit(request)

    def _send_after_look(
        self, batch: PublishedBatch, exchange: str, found: Future[pika.frame.Method]
    ) -> None:
        error = found.exception()
        if isinstance(error, BrokerUnavailable | BrokerClosed):
            batch.fail(error)
            return
        if error is None:
            self._known_exchanges.add(exchange)
        else:
            rest = [message for message in batch.messages if message.exchange != exchange]
            batch.unroutable += [
                message.key for message in batch.messages if message.exchange == exchange
            ]
            batch.messages, batch.open = rest, len(rest)
            batch.settle_if_done()
        if batch.messages:
            self.send(batch)

    def forget(self, subscription: RabbitSubscription) -> None:
        if subscription in self._subscriptions:
            self._subscriptions.remove(subscription)

    def _add(self, subscription: RabbitSubscription) -> None:
        self._subscriptions.append(subscription)
        if self._connection is not None:
            subscription.up(self._connection)

    def _up(self, connection: Connection) -> None:
        self.control.up(connection)

    def _restored(self, connection: Connection) -> None:
        self._connection = connection
        self._publisher.release()
        if not self._first.done():
            self._first.set_result(None)
        for subscription in list(self._subscriptions):
            subscription.up(connection)

    def _down(self, why: str) -> None:
        self._connection = None
        self._known_exchanges.clear()
        self._publisher.hold()
        self.control.down()
        for subscription in list(self._subscriptions):
            subscription.down()

    def _refused(self, why: str, for_good: bool) -> None:
        self._refusal = why
        if for_good and not self._first.done():
            self._first.set_exception(BrokerUnavailable(why))

    def _start_over(self) -> None:
        self._link.abort()
        self._publishing_link.abort()

    def _flushed(self) -> None:
        """Send acknowledgements and close, after the last confirm."""
        for subscription in list(self._subscriptions):
            subscription.flush()
        links = [self._link, self._publishing_link]

        def closed(link: Link) -> None:
            if link in links:
                links.remove(link)
                if not links:
                    self._end()

        for link in list(links):
            link.close(partial(closed, link))

    def _abort(self) -> None:
        """Drop the connections: flushing timed out."""
        self._flushed()
        self._start_over()
        self.loop.later(_ABORT_SECONDS, self._end)

    def _end(self) -> None:
        """Fail all waiting callers and end the thread."""
        error = BrokerClosed(self._closed_because)
        self._publisher.fail_all(error)
        self.control.fail_all(error)
        for subscription in list(self._subscriptions):
            subscription.end(self._closed_because)
        self._subscriptions.clear()
        self.loop.stop()
