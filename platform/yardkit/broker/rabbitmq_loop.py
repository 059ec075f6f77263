"""The I/O thread of a RabbitMQ broker object."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable

from pika.adapters.select_connection import IOLoop

logger = logging.getLogger(__name__)


class Loop:
    """One pika event loop in one thread, shared by the connections of a broker object."""

    def __init__(self, name: str, on_defect: Callable[[], None]) -> None:
        """``on_defect`` is called in the thread after an unforeseen exception."""
        self.ioloop = IOLoop()
        self._name = name
        self._on_defect = on_defect
        self._posted: deque[Callable[[], None]] = deque()
        self._is_posted = False
        self._thread = threading.Thread(target=self._run, name=f"broker {name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def is_current(self) -> bool:
        """Whether the caller is the I/O thread itself."""
        return threading.current_thread() is self._thread

    def post(self, function: Callable[[], None]) -> None:
        """Run ``function`` in the thread, in the order of posting. Any thread may call this.

        Waking the loop costs a system call, so only the first of many posts does it.
        """
        self._posted.append(function)
        if not self._is_posted:
            self._is_posted = True
            self.ioloop.add_callback_threadsafe(self._run_posted)

    def _run_posted(self) -> None:
        self._is_posted = False
        posted = self._posted
        try:
            while posted:
                posted.popleft()()
        finally:
            if posted:  # one of them raised: the others still have their turn
                self._is_posted = True
                self.ioloop.add_callback_threadsafe(self._run_posted)

    def soon(self, function: Callable[[], None]) -> None:
        """Run ``function`` after the events that the loop has received. I/O thread only."""
        self.ioloop.call_later(0, function)

    def later(self, seconds: float, function: Callable[[], None]) -> object:
        """Run ``function`` after ``seconds``; return a handle for ``cancel``. I/O thread only."""
        return self.ioloop.call_later(seconds, function)

    def cancel(self, handle: object) -> None:
        self.ioloop.remove_timeout(handle)

    def stop(self) -> None:
        """Let the thread end. I/O thread only."""
        self.ioloop.stop()

    def join(self, timeout: float) -> bool:
        """Wait for the thread; False when it is still running."""
        if self.is_current:
            return False
        self._thread.join(max(timeout, 0.0))
        return not self._thread.is_alive()

    def _run(self) -> None:
        while True:
            try:
                self.ioloop.start()
            except Exception:  # the thread must outlive a defect
                logger.exception("broker %s: starting over after an unexpected error", self._name)
                self.ioloop.add_callback_threadsafe(self._on_defect)
            else:
                break
        self.ioloop.close()
