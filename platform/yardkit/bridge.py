"""Between threads and an event loop, without holding up either.

Blocking calls that may hang (a look-up, a connection) run in daemon threads: a thread pool's
threads are waited for when the process ends, and a process that is told to stop must be gone
within seconds.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable
from typing import ParamSpec, TypeVar

T = TypeVar("T")
P = ParamSpec("P")


async def in_daemon_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call ``function`` in a thread of its own and wait for what it returns or raises.

    Cancelling stops the waiting, not the thread.
    """
    outcome: concurrent.futures.Future[T] = concurrent.futures.Future()

    def work() -> None:
        try:
            outcome.set_result(function(*args, **kwargs))
        except BaseException as error:  # noqa: BLE001 - handed to the waiting coroutine
            outcome.set_exception(error)

    threading.Thread(target=work, name=f"for-{_name(function)}", daemon=True).start()
    return await settled(outcome)


async def settled(source: concurrent.futures.Future[T]) -> T:
    """Wait for a future of another thread.

    Unlike ``asyncio.wrap_future``, cancelling leaves ``source`` alone: whoever fulfils it need not
    reckon with a future that was taken away.
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
            return  # the loop was closed meanwhile: nobody waits any more

    source.add_done_callback(done)
    return await target


def _name(function: object) -> str:
    return getattr(function, "__name__", type(function).__name__)
