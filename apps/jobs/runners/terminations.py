"""Termination of executions, which also works while the main thread of the runner hangs."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping

from apps.jobs.runners.base import ExecutionRunner, RunHandle
from yardkit.stop import Stop

_LOOK_SECONDS = 0.5
_WAIT_SECONDS = 0.02


class Terminations:
    """Sends SIGTERM at most once to each execution. Thread-safe.

    A second SIGTERM would kill a run before its last report.

    Args:
        handles: running executions by run ID; owned by the caller.
    """

    def __init__(self, runner: ExecutionRunner, handles: Mapping[int, RunHandle]) -> None:
        self._runner = runner
        self._handles = handles
        self._asked: dict[int, float] = {}
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._pause = threading.Event()

    def ask(self, run: int) -> float:
        """Terminate a run, unless that was done before; return the seconds since then."""
        with self._lock:
            handle = self._handles.get(run)
            if handle is not None and run not in self._asked:
                self._asked[run] = time.monotonic()
                self._runner.terminate(handle)
            return time.monotonic() - self._asked.get(run, time.monotonic())

    def forget(self, run: int) -> None:
        """Forget a run that has ended."""
        with self._lock:
            self._asked.pop(run, None)

    def end_all(self, *, grace_seconds: float, kill_seconds: float) -> None:
        """Terminate all executions; kill executions that still run after ``grace_seconds``."""
        for run in list(self._handles):
            self.ask(run)
        self._wait(grace_seconds)
        for handle in list(self._handles.values()):
            self._runner.kill(handle)
        self._wait(kill_seconds)

    def _wait(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while any(self._runner.poll(handle) is None for handle in list(self._handles.values())):
            if time.monotonic() >= deadline:
                return
            self._pause.wait(_WAIT_SECONDS)

    def watch(self, stop: Stop, *, grace_seconds: float, kill_seconds: float) -> None:
        """Start a thread that ends all executions when a stop signal arrives."""

        def watch() -> None:
            while not self._over.is_set():
                if stop.wait(_LOOK_SECONDS):
                    if stop.signal_name:
                        self.end_all(grace_seconds=grace_seconds, kill_seconds=kill_seconds)
                    return

        threading.Thread(target=watch, name="end-runs", daemon=True).start()

    def close(self) -> None:
        """Stop the thread that ``watch`` started."""
        self._over.set()
