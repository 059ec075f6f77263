"""Outbound for a queue in an external RabbitMQ server, with publisher confirms in batches.

The connection of ``yardkit`` is used without the declarations of the platform: in the external
virtual host only the queue of the rule is declared.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import wait
from functools import partial
from typing import ClassVar, Final

import pika

from apps.routing.engine.outbounds.base import (
    CLOSED,
    DELIVERED,
    Batch,
    Encoded,
    Outcome,
    Sent,
    Settings,
    away,
    refused,
)
from apps.routing.engine.outbounds.parameters import (
    Parameter,
    between,
    masked,
    name_of,
    read,
    url_of,
)
from apps.routing.engine.rules import Outbound as Rule
from yardkit.backoff import Backoff
from yardkit.broker import (
    BadBrokerURL,
    BrokerClosed,
    BrokerError,
    BrokerUnavailable,
    MessageRefused,
    Outgoing,
    QueueSpec,
    Unroutable,
)
from yardkit.broker.rabbitmq_control import ControlRequest, count, declare_queue
from yardkit.broker.rabbitmq_core import Core
from yardkit.broker.rabbitmq_publisher import PublishedBatch as Publication
from yardkit.broker.rabbitmq_url import parse_rabbitmq_url

_FORM: Final = "amqp://user:password@host:5672/vhost"
_CLOSE_SECONDS: Final = 1.0


def _check_url(value: str) -> str:
    wrong = url_of(("amqp", "amqps"), _FORM)(value)
    if not wrong:
        try:
            parse_rabbitmq_url(value)
        except BadBrokerURL as error:
            return str(error)
    return wrong


class RabbitQueueOutbound:
    """Outbound that publishes persistent, mandatory messages, each confirmed by the broker.

    A missing queue is declared as durable; an existing one is used unchanged.
    """

    parameters: ClassVar[Mapping[str, Parameter]] = {
        "url": Parameter(str, required=True, check=_check_url),
        "queue": Parameter(str, required=True, check=name_of("the name of a queue", 255)),
        # x-max-priority of the queue; 0 for a queue without priorities.
        "max_priority": Parameter(int, default=0, check=between(0, 255)),
        # Whether to declare a missing queue.
        "declare": Parameter(bool, default=True),
    }
    default_expects_result: ClassVar[bool] = False

    def __init__(self, rule: Rule, settings: Settings) -> None:
        """Raise ``ValueError`` for parameters that ``registry.check`` rejects."""
        values = read(rule.init, self.parameters)
        self._url: str = values["url"]
        self._queue: str = values["queue"]
        self._most: int = values["max_priority"]
        self._declares: bool = values["declare"]
        self._top = max(rule.priority, rule.rt_priority)
        self._timeout = settings.timeout_seconds
        self._name = settings.client_name
        self._lock = threading.Lock()
        self._core: Core | None = None
        self._is_ready = False
        self._backoff = Backoff()
        self._try_at = 0.0
        self._why = ""
        self._is_closed = False

    def send(self, batch: Sequence[Sent]) -> list[Outcome]:
        """See ``Outbound``."""
        work = Batch(batch)
        if not work.ready:
            return work.finish(CLOSED)
        deadline = time.monotonic() + self._timeout
        with self._lock:
            if self._is_closed:
                return [CLOSED] * len(batch)
            try:
                core = self._connected(deadline)
                self._prepare(core, deadline)
                again = self._publish(core, work, work.ready, deadline)
                for message in again:
                    # A rejected message closed the channel: send each alone to find out which.
                    alone = self._publish(core, work, [message], deadline)
                    text = "RabbitMQ does not take a message like this; it may be too large for it"
                    work.settle(alone, refused("refused", text))
            except BrokerError as error:
                return work.finish(away("unreachable", str(error)))
            except TimeoutError:
                self._drop("RabbitMQ did not answer in time")
                text = f"{masked(self._url)} does not answer in time"
                return work.finish(away("timeout", text))
        return work.finish(away("unconfirmed", "RabbitMQ did not confirm the message"))

    def depth(self) -> int | None:
        """Return the number of messages that were not delivered to a consumer yet."""
        deadline = time.monotonic() + self._timeout
        with self._lock:
            if self._is_closed:
                return None
            try:
                core = self._connected(deadline)
                return int(self._ask(core, count(self._queue), deadline).method.message_count)
            except BrokerError:
                return None
            except TimeoutError:
                self._drop("RabbitMQ did not answer in time")
                return None

    def close(self) -> None:
        """See ``Outbound``."""
        with self._lock:
            self._is_closed = True
            core, self._core = self._core, None
        if core is not None:
            core.stop(_CLOSE_SECONDS)

    # --- with the lock held --------------------------------------------------------------------

    def _connected(self, deadline: float) -> Core:
        """Return the connection; raise ``BrokerUnavailable`` at once during the back-off."""
        core = self._core
        if core is not None:
            if not core.connected:
                raise BrokerUnavailable(f"the connection to {masked(self._url)} is lost")
            return core
        if time.monotonic() < self._try_at:
            raise BrokerUnavailable(self._why)
        core = Core(parse_rabbitmq_url(self._url), self._name)
        core.declared.queues.clear()
        try:
            core.start(max(deadline - time.monotonic(), 0.0))
        except BrokerUnavailable as error:
            self._wait(str(error))
            raise
        self._backoff.reset()
        self._core, self._is_ready = core, False
        return core

    def _wait(self, why: str) -> None:
        self._why = why
        self._try_at = time.monotonic() + self._backoff.seconds()

    def _drop(self, why: str) -> None:
        """Abandon a connection that hangs, with its unsent messages."""
        core, self._core = self._core, None
        self._wait(why)
        if core is not None:
            core.stop(0.0)

    def _ask(self, core: Core, request: ControlRequest, deadline: float) -> pika.frame.Method:
        core.post(partial(core.control.submit, request))
        return request.future.result(max(deadline - time.monotonic(), 0.0))

    def _prepare(self, core: Core, deadline: float) -> None:
        if self._is_ready:
            return
        try:
            self._ask(core, count(self._queue), deadline)
        except Unroutable:
            if not self._declares:
                raise BrokerUnavailable(f"there is no queue {self._queue!r}") from None
            spec = QueueSpec(self._queue, max_priority=self._most)
            self._ask(core, declare_queue(spec), deadline)
        self._is_ready = True

    def _publish(
        self, core: Core, work: Batch, messages: Sequence[Encoded], deadline: float
    ) -> list[Encoded]:
        """Publish and settle messages; return those that failed with a rejected one.

        Raises ``TimeoutError`` or ``BrokerClosed``.
        """
        # One publication for each message, so that each has its own confirmation.
        publications = [Publication((self._outgoing(message),)) for message in messages]
        core.post(partial(_send_all, core, publications))
        # Wait for the last one first: one wake-up per message takes as long as sending them.
        wait([publications[-1].future], max(deadline - time.monotonic(), 0.0))
        again = []
        is_late = False
        for message, publication in zip(messages, publications, strict=True):
            try:
                publication.future.result(max(deadline - time.monotonic(), 0.0))
            except TimeoutError:
                # Continue: other messages may be confirmed. Past the deadline nothing blocks.
                is_late = True
            except MessageRefused:
                again.append(message)
            except Unroutable:
                self._is_ready = False
                text = f"the queue {self._queue!r} is gone"
                work.settle([message], away("no_queue", text))
            except BrokerClosed:
                raise
            except BrokerError as error:
                work.settle([message], away("unconfirmed", str(error)))
            else:
                work.settle([message], DELIVERED)
        if is_late:
            raise TimeoutError
        return again

    def _outgoing(self, message: Encoded) -> Outgoing:
        return Outgoing(
            message.body,
            self._queue,
            priority=self._priority(message.sent.priority),
            message_id=message.sent.task_uuid[:64],
            content_type="application/json",
        )

    def _priority(self, priority: int) -> int:
        """Scale a priority so that the rule's higher default maps to ``max_priority``."""
        if self._top > self._most:
            priority = priority * self._most // self._top
        return max(0, min(priority, self._most))


def _send_all(core: Core, publications: Sequence[Publication]) -> None:
    """Send all publications in one callback of the I/O thread.

    With one callback for each, each message would be a separate write to the socket.
    """
    for publication in publications:
        core.send(publication)
