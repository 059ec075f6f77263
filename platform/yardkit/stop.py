"""Stop requests by signal, and waiting that a signal interrupts at once.

A signal handler may interrupt any line, also one that holds a lock: ``threading.Event.set()``
called there can deadlock on a lock of its own thread. So the handler only sets a bool and writes
one byte to a pipe, and waiting is ``select`` on that pipe.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from types import FrameType, TracebackType
from typing import Self

# Set by a supervisor for its children: its process id, or 1 for any parent.
DIE_WITH_PARENT = "CRAWLYARD_DIE_WITH_PARENT"
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)

_PR_SET_PDEATHSIG = 1
_LONGEST_SELECT_SECONDS = 3600.0


class Stop:
    """Stop request, from a signal or from ``request()``.

    The first signal is recorded and restores the previous handlers, so that a second signal kills.
    Children that use this class must be started in a session of their own
    (``start_new_session=True``): Ctrl-C reaches a whole process group, and the supervisor's own
    SIGTERM would be the second signal.

        with Stop() as stop:
            while not stop.requested:
                ...
                stop.wait(1.0)
    """

    def __init__(self, signals: Sequence[signal.Signals] = STOP_SIGNALS) -> None:
        self._signals = tuple(signals)
        self._requested = False
        self._signum: int | None = None
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._reader, False)
        os.set_blocking(self._writer, False)
        self._before: dict[int, object] = {}

    @property
    def requested(self) -> bool:
        """Whether a signal arrived or ``request()`` was called."""
        return self._requested

    @property
    def signal_name(self) -> str:
        """``SIGTERM`` or ``SIGINT``; "" when no signal asked for the stop."""
        return signal.Signals(self._signum).name if self._signum is not None else ""

    def fileno(self) -> int:
        """Return a descriptor that is readable once a stop is requested, for ``select`` or a
        loop.
        """
        return self._reader

    def request(self) -> None:
        """Request the stop from code; safe in any thread and in a signal handler."""
        self._requested = True
        with contextlib.suppress(BlockingIOError, OSError):
            os.write(self._writer, b"\0")

    def note(self, number: int) -> None:
        """Request the stop as signal ``number`` does, if it is handled here; safe in any thread."""
        if number in self._signals:
            self._signum = number
            self.request()

    def wait(self, seconds: float) -> bool:
        """Sleep up to ``seconds``; return True at once when a stop is requested."""
        deadline = time.monotonic() + max(0.0, seconds)
        while not self._requested:
            left = min(deadline - time.monotonic(), _LONGEST_SELECT_SECONDS)
            readable, _, _ = select.select([self._reader], [], [], max(0.0, left))
            if readable or left <= 0:
                break
        return self._requested

    def install(self) -> Self:
        """Install the signal handlers. Raises ``ValueError`` outside the main thread."""
        for number in self._signals:
            self._before[number] = signal.signal(number, self._handle)
        return self

    def uninstall(self) -> None:
        """Restore the previous signal handlers; the object stays usable."""
        for number, handler in self._before.items():
            signal.signal(number, handler or signal.SIG_DFL)  # type: ignore[arg-type]
        self._before.clear()

    def close(self) -> None:
        """``uninstall()`` and close the pipe."""
        if threading.current_thread() is threading.main_thread():
            self.uninstall()
        for descriptor in (self._reader, self._writer):
            with contextlib.suppress(OSError):
                os.close(descriptor)

    def __enter__(self) -> Self:
        return self.install()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self._signum = number
        self.request()
        for other, handler in self._before.items():
            # Python's own SIGINT handler would raise KeyboardInterrupt and print a traceback; the
            # second Ctrl-C must kill quietly.
            if handler is None or handler is signal.default_int_handler:
                handler = signal.SIG_DFL
            signal.signal(other, handler)  # type: ignore[arg-type]


def stop_event(
    loop: asyncio.AbstractEventLoop | None = None, signals: Sequence[signal.Signals] = STOP_SIGNALS
) -> asyncio.Event:
    """Return an asyncio event of the running loop that the first signal sets.

    The second signal kills. Call it in the main thread, inside the loop that will wait.
    """
    loop = loop or asyncio.get_running_loop()
    event = asyncio.Event()

    def handle() -> None:
        event.set()
        release_signals(loop, signals)

    for number in signals:
        loop.add_signal_handler(number, handle)
    return event


def release_signals(
    loop: asyncio.AbstractEventLoop, signals: Sequence[signal.Signals] = STOP_SIGNALS
) -> None:
    """Undo ``stop_event``: each of ``signals`` kills the process again, without a traceback."""
    for number in signals:
        loop.remove_signal_handler(number)
        signal.signal(number, signal.SIG_DFL)


def die_with_parent(
    signum: signal.Signals = signal.SIGTERM, *, parent_pid: int | None = None
) -> bool:
    """Ask Linux to send ``signum`` to this process when its parent dies.

    For children of a supervisor: without it, SIGKILL of the supervisor leaves orphans. The
    request belongs to the parent's *thread* that started the child, so a supervisor starts its
    children from a thread that lives as long as itself.

    Args:
        parent_pid: the expected parent. When it is already gone, the signal is sent at once: the
            request alone would miss a parent that died before it.

    Returns:
        True where the kernel supports it (Linux), False where nothing was done.
    """
    if not sys.platform.startswith("linux"):
        return False
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, int(signum), 0, 0, 0) != 0:
        return False
    if parent_pid is not None and os.getppid() != parent_pid:
        os.kill(os.getpid(), signum)
    return True


def die_with_parent_if_asked(environ: Mapping[str, str]) -> None:
    """Apply ``CRAWLYARD_DIE_WITH_PARENT``; called first in a supervised process."""
    parent = environ.get(DIE_WITH_PARENT, "").strip()
    if parent.isdecimal() and int(parent) > 1:
        die_with_parent(parent_pid=int(parent))
    elif parent.lower() not in ("", "0", "false", "no", "off"):
        die_with_parent()
