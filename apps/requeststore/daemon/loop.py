"""Event loop in its own thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

T = TypeVar("T")

_START_SECONDS: Final = 10.0


class DaemonLoop:
    """Runs an event loop (uvloop's where installed) from ``start`` to ``close``."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread; returns when the loop runs."""
        running = threading.Event()
        loop = self._loop = _new_loop()

        def run() -> None:
            asyncio.set_event_loop(loop)
            loop.call_soon(running.set)
            loop.run_forever()
            loop.close()

        self._thread = threading.Thread(target=run, name=self._name, daemon=True)
        self._thread.start()
        if not running.wait(_START_SECONDS):
            raise RuntimeError("the event loop did not start")

    @property
    def alive(self) -> bool:
        """Return whether the thread runs."""
        return self._thread is not None and self._thread.is_alive()

    def do(self, work: Coroutine[Any, Any, T], timeout: float) -> T:
        """Run a coroutine in the loop and return its result. Raises its errors, and
        ``TimeoutError``.
        """
        assert self._loop is not None  # noqa: S101 - start() comes first
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout)

    def call(self, work: Callable[[], None]) -> None:
        """Schedule a function in the loop, from any thread."""
        assert self._loop is not None  # noqa: S101 - start() comes first
        self._loop.call_soon_threadsafe(work)

    def close(self, timeout: float = 1.0) -> None:
        """Stop the loop."""
        if self._loop is not None and self.alive:
            self._loop.call_soon_threadsafe(self._loop.stop)
        if self._thread is not None:
            self._thread.join(timeout)


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()
