"""Broker in one SQLite file: durable, shared by the processes of one machine, no server.

Batches give throughput, Unix sockets instead of polling give latency; a confirm means committed.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Literal

from yardkit.broker.base import (
    BrokerClosed,
    Delivery,
    Outgoing,
    QueueDepth,
    QueueSpec,
    Subscription,
)
from yardkit.broker.declared import Binding
from yardkit.broker.outgoing import check, check_exchange, check_spec
from yardkit.broker.replies import Replies, reply_message
from yardkit.broker.sqlite_operations import Again, CallOperation, Publish
from yardkit.broker.sqlite_subscription import SqliteSubscription
from yardkit.broker.sqlite_tables import (
    bind,
    declare_exchange,
    declare_queue,
    depth,
    drop_queue,
    find_queue,
    purge_some,
)
from yardkit.broker.sqlite_url import parse_sqlite_url
from yardkit.broker.sqlite_worker import Result, SqliteWorker


class SqliteBroker:
    """Broker in a SQLite file; see ``yardkit.broker.base.Broker``."""

    def __init__(self, url: str, *, name: str, timeout: float) -> None:
        """Open or create the file.

        Raises:
            BadBrokerURL: no usable path, or another kind of file.
            BrokerUnavailable: the file cannot be written.
        """
        self._url = url
        self._process = os.getpid()
        self._worker = SqliteWorker(parse_sqlite_url(url), name)
        self._replies = Replies(self, name, self._discard)
        self._worker.start(timeout)

    @property
    def url(self) -> str:
        return self._url

    @property
    def connected(self) -> bool:
        return self._worker.connected and os.getpid() == self._process

    def declare(self, *queues: QueueSpec) -> None:
        check_spec(*queues)

        def run(worker: SqliteWorker) -> None:
            connection = worker.connection
            for spec in queues:
                declare_queue(connection.database, spec, connection.clock.now())
                worker.declared.queues[spec.name] = spec
            connection.refresh(worker.subscriptions)

        self._call(run)

    def declare_exchange(self, name: str, kind: Literal["fanout", "topic"]) -> None:
        check_exchange(name, kind)

        def run(worker: SqliteWorker) -> None:
            declare_exchange(worker.connection.database, name, kind)
            worker.declared.exchanges[name] = kind
            worker.connection.refresh(worker.subscriptions)

        self._call(run)

    def bind(self, queue: str, exchange: str, key: str = "#") -> None:
        def run(worker: SqliteWorker) -> None:
            bind(worker.connection.database, queue, exchange, key)
            worker.declared.bindings[Binding(queue, exchange, key)] = None
            worker.connection.refresh(worker.subscriptions)

        self._call(run)

    def publish(self, messages: Sequence[Outgoing]) -> Future[None]:
        check(messages)
        publish = Publish(tuple(messages), time.monotonic())
        if not messages:
            publish.future.set_result(None)
            return publish.future
        try:
            self._same_process()
            self._worker.submit(publish)
        except BrokerClosed as error:
            publish.future.set_exception(error)
        return publish.future

    def subscribe(
        self, queue: str, *, prefetch: int = 100, on_ready: Callable[[], None] | None = None
    ) -> Subscription:
        """Subscribe. Raises ``Unroutable`` for a queue that does not exist."""
        if prefetch < 1:
            raise ValueError(f"prefetch is at least 1, not {prefetch}")
        subscription = SqliteSubscription(self._worker, queue, prefetch, on_ready)

        def run(worker: SqliteWorker) -> None:
            worker.connection.add_consumer(subscription)
            worker.subscriptions.append(subscription)
            worker.connection.refresh(worker.subscriptions)

        self._call(run)
        return subscription

    def request(self, message: Outgoing, timeout: float) -> Delivery:
        return self._replies.request(message, timeout)

    def reply(self, to: Delivery, body: bytes) -> Future[None]:
        return self.publish([reply_message(to, body)])

    def depth(self, queue: str) -> QueueDepth:
        def run(worker: SqliteWorker) -> QueueDepth:
            connection = worker.connection
            return depth(connection.database, queue, connection.clock.now())

        return self._call(run)

    def purge(self, queue: str) -> int:
        purged = 0

        def run(worker: SqliteWorker) -> int | Again:
            nonlocal purged
            database = worker.connection.database
            removed = purge_some(database, find_queue(database, queue))
            purged += removed
            return Again() if removed else purged

        return self._call(run)

    def delete(self, queue: str) -> None:
        self._call(partial(_delete, queue))

    def _discard(self, queue: str) -> None:
        self._worker.submit(CallOperation(partial(_delete, queue), Future()))

    def close(self, timeout: float = 3.0) -> None:
        if os.getpid() != self._process:
            return
        self._replies.close()
        self._worker.stop(timeout)

    def _call(self, function: Callable[[SqliteWorker], Result | Again]) -> Result:
        self._same_process()
        return self._worker.call(function)

    def _same_process(self) -> None:
        if os.getpid() != self._process:
            raise BrokerClosed("this broker was opened before a fork; open another in the child")


def _delete(queue: str, worker: SqliteWorker) -> None:
    drop_queue(worker.connection.database, queue)
    worker.declared.forget_queue(queue)
    worker.connection.refresh(worker.subscriptions)
