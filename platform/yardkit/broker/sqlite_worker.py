"""The I/O thread of a SQLite broker: all work on the file, in batched transactions."""

from __future__ import annotations

import contextlib
import logging
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Final, TypeVar, cast

from yardkit.backoff import Backoff
from yardkit.broker.base import BrokerClosed, BrokerError, BrokerUnavailable
from yardkit.broker.declared import Declared
from yardkit.broker.sqlite_connection import FileConnection
from yardkit.broker.sqlite_operations import (
    Again,
    CallOperation,
    Operation,
    OperationBatch,
    Publish,
)
from yardkit.broker.sqlite_subscription import SqliteSubscription
from yardkit.jitter import jitter

logger = logging.getLogger(__name__)

Result = TypeVar("Result")

# How long a publish or a call waits for the file to come back before it fails.
PATIENCE_SECONDS: Final = 30.0
# The net under the wake-ups: how often an idle process looks whether anything changed.
_POLL_SECONDS = 0.25
_SWEEP_SECONDS = 0.8


class SqliteWorker:
    """The I/O thread with its queue of operations and its subscriptions."""

    def __init__(self, file: Path, name: str) -> None:
        self.declared = Declared()
        self.subscriptions: list[SqliteSubscription] = []
        self._file = file
        self._name = name
        self._connection: FileConnection | None = None
        self._lock = threading.Lock()
        self._operations: deque[Operation] = deque()
        self._refuses = ""
        self._asleep = False
        self._stop = threading.Event()
        self._next_poll = self._next_sweep = 0.0
        self._first: Future[None] = Future()
        self._thread = threading.Thread(target=self._run, name=f"broker {name}", daemon=True)

    # --- any thread ----------------------------------------------------------------------------

    def start(self, timeout: float) -> None:
        """Start the thread and wait for the file; raises the error of opening it."""
        self._thread.start()
        try:
            self._first.result(timeout)
        except TimeoutError:
            self.stop(0.0)
            raise BrokerUnavailable(
                f"the broker file {self._file} was locked for {timeout:g} s"
            ) from None

    @property
    def connected(self) -> bool:
        return self._connection is not None and not self._refuses

    def submit(self, operation: Operation) -> None:
        """Queue an operation; raises ``BrokerClosed``."""
        with self._lock:
            if self._refuses:
                raise BrokerClosed(self._refuses)
            self._operations.append(operation)
        self._nudge()

    def _nudge(self) -> None:
        if self._asleep:
            self._asleep = False
            connection = self._connection
            if connection is not None:
                connection.session.nudge()

    def call(self, function: Callable[[SqliteWorker], Result | Again]) -> Result:
        """Run ``function`` in the I/O thread, in order, and wait."""
        if threading.current_thread() is self._thread:
            raise RuntimeError("on_ready must not call a method of the broker that waits")
        call = CallOperation(function, Future())
        self.submit(call)
        try:
            return cast(Result, call.future.result(PATIENCE_SECONDS))
        except TimeoutError:
            raise BrokerUnavailable(
                f"the broker file {self._file} did not answer for {PATIENCE_SECONDS:g} s"
            ) from None

    def unsubscribe(self, subscription: SqliteSubscription) -> None:
        """Remove a subscription; without waiting when called in the I/O thread."""

        def leave(worker: SqliteWorker) -> None:
            if subscription in worker.subscriptions:
                worker.subscriptions.remove(subscription)
                if subscription.consumer_id:
                    worker.connection.remove_consumer(subscription)
                    worker.connection.refresh(worker.subscriptions)

        try:
            if threading.current_thread() is self._thread:
                self.submit(CallOperation(leave, Future()))
            else:
                self.call(leave)
        except BrokerClosed:
            return  # closing the broker has done it

    def let_be(self, subscription: SqliteSubscription) -> None:
        """Stop claiming for it; everything claimed is in its inbox afterwards."""
        with contextlib.suppress(BrokerError):
            self.call(lambda _worker: subscription.claim_no_more())

    def stop(self, timeout: float, because: str = "the broker is closed") -> None:
        """Refuse new operations; execute queued ones for up to ``timeout`` seconds."""
        with self._lock:
            if self._refuses:
                return
            self._refuses = because
        self._stop.set()
        if self._connection is not None:
            self._connection.session.nudge()
        if threading.current_thread() is not self._thread:
            self._thread.join(timeout)
        if self._thread.is_alive():
            logger.warning("broker %s: closed before everything was flushed", self._name)
        self._fail_all(BrokerClosed(because))

    # --- the I/O thread ------------------------------------------------------------------------

    @property
    def connection(self) -> FileConnection:
        """Return the open file, for functions run by ``call``."""
        if self._connection is None:
            raise BrokerUnavailable(f"the broker file {self._file} is not open")
        return self._connection

    def _run(self) -> None:
        backoff = Backoff()
        while True:
            try:
                self._open()
                backoff.reset()
                self._serve()
            except (sqlite3.Error, OSError, BrokerError) as error:
                self._lost(error)
            except Exception as error:  # the thread must outlive a defect
                logger.exception("broker %s: starting over after an unexpected error", self._name)
                self._lost(error)
            finally:
                self._leave()
            if self._stop.is_set() or not self._came_up:
                break
            self._give_up_old()
            self._stop.wait(backoff.seconds())
        for subscription in self.subscriptions:
            subscription.shut(self._refuses or "the broker is closed")

    @property
    def _came_up(self) -> bool:
        """Whether the file has been open at least once."""
        return self._first.done() and self._first.exception() is None

    def _open(self) -> None:
        connection = FileConnection(self._file, self._name, self.declared)
        self._connection = connection
        connection.refresh(self.subscriptions)
        self._next_poll = self._next_sweep = 0.0
        if self._first.done():
            logger.info("broker %s: %s is open again", self._name, self._file)
        else:
            self._first.set_result(None)

    def _lost(self, error: Exception) -> None:
        if not self._first.done():
            known = error if isinstance(error, BrokerError) else self._unavailable(error)
            self._first.set_exception(known)
        else:
            logger.warning("broker %s: lost %s: %s", self._name, self._file, error)

    def _leave(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
        for subscription in self.subscriptions:
            subscription.detach()

    def _unavailable(self, error: Exception) -> BrokerUnavailable:
        return BrokerUnavailable(f"the broker file {self._file} cannot be used: {error}")

    def _give_up_old(self) -> None:
        """Fail publishes that have waited too long for the file."""
        oldest = time.monotonic() - PATIENCE_SECONDS
        while self._operations:
            operation = self._operations[0]
            if isinstance(operation, Publish) and operation.made_at > oldest:
                return
            self._operations.popleft()
            if isinstance(operation, Publish):
                text = f"the broker file {self._file} stayed away for {PATIENCE_SECONDS:g} s"
                operation.future.set_exception(BrokerUnavailable(text))
            elif isinstance(operation, CallOperation):
                operation.future.set_exception(
                    BrokerUnavailable(f"the broker file {self._file} was lost")
                )
            # Acknowledgements of before the loss mean nothing any more.

    def _fail_all(self, error: BrokerClosed) -> None:
        while True:
            try:
                operation = self._operations.popleft()
            except IndexError:
                return
            if isinstance(operation, Publish | CallOperation):
                operation.future.set_exception(error)

    def _serve(self) -> None:
        connection = self.connection
        while True:
            self._look_after(connection)
            if self._operations or self._claim_in() == 0.0:
                self._work(connection)
            elif self._stop.is_set():
                return
            else:
                self._sleep(connection)

    def _work(self, connection: FileConnection) -> None:
        batch = OperationBatch()
        operations = self._operations
        while operations and not batch.full:
            operation = operations[0]
            if isinstance(operation, CallOperation) and batch:
                break  # it comes after what was asked before it
            operations.popleft()
            if isinstance(operation, CallOperation):
                self._do_call(operation)
                return
            batch.add(operation)
        try:
            connection.commit(batch, self.subscriptions)
        except Exception as error:
            batch.fail(self._unavailable(error))
            raise
        connection.reap_if_needed(self.subscriptions)

    def _do_call(self, call: CallOperation) -> None:
        try:
            result = call.function(self)
        except sqlite3.Error as error:
            call.future.set_exception(self._unavailable(error))
            raise
        except Exception as error:  # the caller gets it  # noqa: BLE001
            call.future.set_exception(error)
        else:
            if isinstance(result, Again):
                self._operations.append(call)
            else:
                call.future.set_result(result)

    def _claim_in(self) -> float | None:
        """Return the seconds until a subscription claims; None: none will."""
        now = time.monotonic()
        return min(
            (
                seconds
                for subscription in self.subscriptions
                if (seconds := subscription.claims_in(now)) is not None
            ),
            default=None,
        )

    def _sleep(self, connection: FileConnection) -> None:
        now = time.monotonic()
        seconds = min(self._next_poll, self._next_sweep) - now
        claim_in = self._claim_in()
        if claim_in is not None:
            seconds = min(seconds, claim_in)
        self._asleep = True
        # Whatever was submitted before the flag was set has sent no nudge.
        if self._operations or self._stop.is_set():
            seconds = 0.0
        news = connection.session.wait(seconds)
        self._asleep = False
        for subscription in self.subscriptions:
            if news is None or subscription.queue_id in news:
                subscription.look_again()

    def _look_after(self, connection: FileConnection) -> None:
        now = time.monotonic()
        if now >= self._next_poll:
            self._next_poll = now + _POLL_SECONDS
            connection.check_for_changes(self.subscriptions)
        if now >= self._next_sweep:
            more = connection.sweep(self.subscriptions)
            # Spread, so that not all processes look in the same moment.
            pause = 0.0 if more else jitter(_SWEEP_SECONDS, 0.8, 1.2)
            self._next_sweep = now + pause
