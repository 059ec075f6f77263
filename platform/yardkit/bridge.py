"""Calls between threads and an event loop, without blocking either.

Blocking calls that may hang (name resolution, connecting) run in daemon threads: the interpreter
waits for the threads of a pool at exit, and a stopping process must be gone within seconds.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import os
import queue
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Final, ParamSpec, TypeVar

T = TypeVar("T")
P = ParamSpec("P")

_END_SECONDS: Final = 1.0
# How long a thread waits for its next call: starting one costs more than most lookups.
_IDLE_SECONDS: Final = 10.0

_Calls = queue.SimpleQueue[Callable[[], None]]
# Queues of the threads that wait for a call. Appending and popping are atomic.
_idle: list[_Calls] = []
# The threads of the parent do not exist in a forked child.
os.register_at_fork(after_in_child=_idle.clear)


async def in_daemon_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call ``function`` in a daemon thread that has nothing else to do, and await its result.

    Cancelling stops the waiting, not the thread.
    """
    outcome: concurrent.futures.Future[T] = concurrent.futures.Future()

    def work() -> None:
        try:
            outcome.set_result(function(*args, **kwargs))
        except BaseException as error:  # noqa: BLE001 - handed to the waiting coroutine
            outcome.set_exception(error)

    try:
        _idle.pop().put(work)
    except IndexError:
        threading.Thread(target=_serve, args=(work,), name="calls", daemon=True).start()
    return await settled(outcome)


def _serve(work: Callable[[], None] | None) -> None:
    """Make calls until none has come for a while."""
    calls: _Calls = queue.SimpleQueue()
    while work is not None:
        work()
        # An idle thread must not keep arguments and result alive.
        work = None
        _idle.append(calls)
        try:
            work = calls.get(timeout=_IDLE_SECONDS)
        except queue.Empty:
            try:
                _idle.remove(calls)
            except ValueError:
                # Somebody has just taken the queue to put a call into it.
                work = calls.get()


async def settled(source: concurrent.futures.Future[T]) -> T:
    """Await a future of another thread.

    Unlike ``asyncio.wrap_future``, cancelling does not cancel ``source``, so its producer can
    always set a result.
    """
    loop = asyncio.get_running_loop()
    target: asyncio.Future[T] = loop.create_future()

    def copy() -> None:
        if target.done():
            return
        if source.cancelled():
            target.cancel()
        elif (error := source.exception()) is not None:
            target.set_exception(error)
        else:
            target.set_result(source.result())

    def done(_: concurrent.futures.Future[T]) -> None:
        try:
            loop.call_soon_threadsafe(copy)
        except RuntimeError:
            return  # the loop was closed meanwhile: no caller waits any more

    source.add_done_callback(done)
    return await target


class LoopThread:
    """An event loop in a daemon thread, started by the first ``submit``."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def submit(self, work: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        """Run a coroutine in the loop; cancelling the future cancels the coroutine."""
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(
                    target=_run_forever, args=(self._loop,), name=self._name, daemon=True
                )
                self._thread.start()
            loop = self._loop
        return asyncio.run_coroutine_threadsafe(work, loop)

    def close(self) -> None:
        """Cancel running work and end the thread."""
        with self._lock:
            loop, self._loop = self._loop, None
            thread, self._thread = self._thread, None
        if loop is None or thread is None:
            return
        with contextlib.suppress(TimeoutError):
            asyncio.run_coroutine_threadsafe(_cancel_all(), loop).result(_END_SECONDS)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(_END_SECONDS)


async def _cancel_all() -> None:
    me = asyncio.current_task()
    tasks = [task for task in asyncio.all_tasks() if task is not me]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _run_forever(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
    finally:
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()
