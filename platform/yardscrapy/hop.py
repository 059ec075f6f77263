"""Calls from other threads into the thread of the crawl, in batches."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable

log = logging.getLogger("yardscrapy")


class Hop:
    """Run work in the thread in which this was made; any thread may call it.

    That thread runs an asyncio loop or Twisted's reactor, which may start later. Work that comes
    while a wake-up is on its way shares it: many results cost one.
    """

    def __init__(self) -> None:
        self._work: deque[Callable[[], None]] = deque()
        self._is_woken = False
        self._wake = _waker()

    def __call__(self, work: Callable[[], None]) -> None:
        self._work.append(work)
        if not self._is_woken:
            self._is_woken = True
            with contextlib.suppress(RuntimeError):  # the loop has ended
                self._wake(self._run)

    def _run(self) -> None:
        # First, so that work which comes from now on wakes again.
        self._is_woken = False
        while self._work:
            try:
                self._work.popleft()()
            except Exception:
                log.exception("work from another thread failed")


def _waker() -> Callable[[Callable[[], None]], object]:
    try:
        return asyncio.get_running_loop().call_soon_threadsafe
    except RuntimeError:
        # Importing it installs it, so only where a loop is not running already.
        from twisted.internet import reactor

        wake: Callable[[Callable[[], None]], object] = reactor.callFromThread
        return wake
