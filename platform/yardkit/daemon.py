"""The main loop of every daemon: signals, heartbeat, waiting, back-off, exit.

A daemon implements ``setup()``, ``step()`` and ``teardown()`` and does not parse arguments.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import sys
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, Protocol

from yardkit import failpoints
from yardkit.backoff import back_off
from yardkit.broker.base import BadBrokerURL, BrokerError
from yardkit.env import EnvError
from yardkit.heartbeat import Beat, read_beat, write_beat
from yardkit.liveness import LivenessReporter
from yardkit.stop import Stop

logger = logging.getLogger(__name__)

EXIT_OK: Final = 0
EXIT_FAILED: Final = 1
EXIT_BAD_SETTING: Final = 2
EXIT_NOT_RUNNING: Final = 3

# Below the 5 s in which every process must have ended.
STOP_GRACE_SECONDS: Final = 4.0
_GUARD_POLL_SECONDS: Final = 0.25
_STALE_HEARTBEATS: Final = 3

State = Literal["starting", "running", "failing", "stopping", "stopped"]


class CannotStart(Exception):
    """A daemon cannot run with these settings; the text is for the operator (exit status 2)."""


class Daemon(Protocol):
    """Interface of a daemon. Every method runs in the main thread."""

    def setup(self) -> None:
        """Connect and claim. Repeated with back-off when it raises."""

    def step(self) -> bool:
        """Do some work. True: call again at once; False: idle, wait."""

    def teardown(self) -> None:
        """Release everything. Called once, also after a failed ``setup``."""


@dataclass(frozen=True, slots=True)
class Options:
    """Options of ``run``.

    ``once`` exits when a step is idle. ``status`` only reports on the process that writes
    ``heartbeat_file``. ``max_failures`` failures in a row exit with status 1. ``expected_errors``
    are logged as one line, others with a traceback at their first occurrence.
    """

    name: str
    once: bool = False
    status: bool = False
    poll_seconds: float = 1.0
    heartbeat_seconds: float = 5.0
    heartbeat_file: Path | None = None
    max_failures: int = 10
    first_delay_seconds: float = 0.5
    longest_delay_seconds: float = 30.0
    expected_errors: tuple[type[Exception], ...] = (OSError, BrokerError)


def run(
    daemon: Daemon,
    options: Options,
    *,
    beat: Callable[[Beat], None] | None = None,
    stop: Stop | None = None,
) -> int:
    """Run until a signal, an idle ``once`` or too many failures; return the exit status.

    Args:
        beat: called with each heartbeat; its errors are logged once for each outage and ignored.
        stop: passed by tests and by daemons that wait on it.
    """
    if options.status:
        return report_status(options)
    owned = stop is None
    stop = stop or Stop()
    if owned:
        stop.install()
    try:
        return _Loop(daemon, options, beat, stop).run()
    finally:
        if owned:
            stop.close()


def report_status(options: Options) -> int:
    """Print one line about the running daemon; return 0 when it is alive, 3 otherwise."""
    if options.heartbeat_file is None:
        return _say(f"{options.name}: no heartbeat file is set", EXIT_BAD_SETTING)
    beat = read_beat(options.heartbeat_file)
    if beat is None:
        return _say(f"{options.name}: not running (no heartbeat file)", EXIT_NOT_RUNNING)
    age = max(0.0, time.time() - beat.at)
    facts = f"{beat.state}, pid {beat.pid}, {age:.0f} s ago, {beat.steps} steps"
    if beat.error:
        facts += f", last error: {beat.error}"
    stale = age > options.heartbeat_seconds * _STALE_HEARTBEATS
    if beat.state == "stopped" or stale:
        return _say(f"{options.name}: not running (was {facts})", EXIT_NOT_RUNNING)
    return _say(f"{options.name}: {facts}", EXIT_OK)


def _say(line: str, status: int) -> int:
    sys.stdout.write(line + "\n")
    return status


class _Loop:
    def __init__(
        self, daemon: Daemon, options: Options, beat: Callable[[Beat], None] | None, stop: Stop
    ) -> None:
        self._daemon = daemon
        self._options = options
        self._beat = beat
        self._stop = stop
        self._life = LivenessReporter.take(options.name, os.environ)
        self._boot = uuid.uuid4().hex
        self._started = time.monotonic()
        self._next_beat = 0.0
        self._beat_failing = False
        self._state: State = "starting"
        self._steps = 0
        self._failures = 0
        self._error = ""

    def run(self) -> int:
        try:
            failpoints.configure()
        except EnvError as error:
            logger.error("%s", error)
            return EXIT_BAD_SETTING
        guard = _StopGuard(self._stop, self._options.name)
        status = EXIT_FAILED
        try:
            status = self._work()
        finally:
            self._change("stopping")
            self._life.stopping()
            self._teardown()
            self._change("stopped")
            guard.release()
        seconds = time.monotonic() - self._started
        logger.info(
            "%s stopped (%s) after %.0f s and %d steps",
            self._options.name,
            self._why(status),
            seconds,
            self._steps,
        )
        return status

    def _why(self, status: int) -> str:
        if self._stop.requested:
            return self._stop.signal_name or "asked to"
        return "failed" if status else "done"

    def _work(self) -> int:
        logger.info("%s starts (pid %d)", self._options.name, os.getpid())
        self._change("starting")
        ready = False
        while not self._stop.requested:
            try:
                if not ready:
                    self._daemon.setup()
                    ready = True
                    self._life.ready()
                    logger.info("%s is running", self._options.name)
                busy = self._daemon.step()
            except (EnvError, BadBrokerURL, CannotStart) as error:
                logger.error("%s", error)
                return EXIT_BAD_SETTING
            except Exception as error:  # noqa: BLE001 - the loop's last guard, logged in _failed
                if self._failed(error):
                    return EXIT_FAILED
                continue
            self._succeeded()
            if not busy:
                if self._options.once:
                    return EXIT_OK
                self._wait(self._options.poll_seconds)
        return EXIT_OK

    def _succeeded(self) -> None:
        self._steps += 1
        if self._failures:
            logger.info("%s works again", self._options.name)
        self._failures = 0
        self._error = ""
        self._change("running")

    def _failed(self, error: Exception) -> bool:
        """Count a failure and wait; True when there were too many."""
        options = self._options
        self._failures += 1
        self._error = f"{type(error).__name__}: {error}"[:500]
        # Expected errors need one line; defects need their traceback, once.
        expected = isinstance(error, options.expected_errors)
        logger.error(
            "%s failed (%d of %d): %s",
            options.name,
            self._failures,
            options.max_failures,
            self._error,
            exc_info=None if expected or self._failures > 1 else error,
        )
        self._change("failing")
        if options.once or self._failures >= options.max_failures:
            return True
        self._wait(
            back_off(self._failures, options.first_delay_seconds, options.longest_delay_seconds)
        )
        return False

    def _wait(self, seconds: float) -> None:
        """Wait for the stop, sending heartbeats meanwhile."""
        deadline = time.monotonic() + seconds
        while True:
            left = deadline - time.monotonic()
            until_beat = self._next_beat - time.monotonic()
            if left <= 0 or self._stop.wait(min(left, max(0.0, until_beat))):
                return
            self._heartbeat()

    def _teardown(self) -> None:
        try:
            self._daemon.teardown()
        except Exception:  # the process ends all the same
            logger.exception("%s: teardown failed", self._options.name)

    def _change(self, state: State) -> None:
        changed = state != self._state or state == "starting"
        self._state = state
        self._heartbeat(now=changed)

    def _heartbeat(self, *, now: bool = False) -> None:
        if not now and time.monotonic() < self._next_beat:
            return
        # Only from the thread that does the work: a hanging step must not send heartbeats.
        if self._state not in ("stopping", "stopped"):
            self._life.feed(self._state, self._error, now=True)
        self._next_beat = time.monotonic() + self._options.heartbeat_seconds
        beat = Beat(
            name=self._options.name,
            boot=self._boot,
            host=socket.gethostname(),
            pid=os.getpid(),
            state=self._state,
            at=time.time(),
            steps=self._steps,
            failures=self._failures,
            error=self._error,
        )
        try:
            if self._options.heartbeat_file is not None:
                write_beat(self._options.heartbeat_file, beat)
            if self._beat is not None:
                self._beat(beat)
        except Exception as error:  # noqa: BLE001 - must not stop the work it reports on; logged
            if not self._beat_failing:
                logger.warning(
                    "%s: heartbeat fails: %s: %s", beat.name, type(error).__name__, error
                )
            self._beat_failing = True
        else:
            if self._beat_failing:
                logger.info("%s: heartbeat works again", beat.name)
            self._beat_failing = False


class _StopGuard:
    """Exit the process when it does not stop in time after a request.

    This is safe: unacknowledged work is redelivered. Python runs signal handlers in the main thread
    between bytecodes, so a main thread inside a database library notices no signal; the kernel's
    part of the handler writes to a pipe, which this object's thread reads.
    """

    def __init__(self, stop: Stop, name: str) -> None:
        self._stop = stop
        self._name = name
        self._ended = threading.Event()
        self._wake_reader, self._wake_writer = socket.socketpair()
        self._wake_reader.settimeout(_GUARD_POLL_SECONDS)
        self._wake_writer.setblocking(False)
        self._before: int | None = None
        if threading.current_thread() is threading.main_thread():
            descriptor = self._wake_writer.fileno()
            self._before = signal.set_wakeup_fd(descriptor, warn_on_full_buffer=False)
        self._thread = threading.Thread(target=self._watch, name="stop-guard", daemon=True)
        self._thread.start()

    def release(self) -> None:
        self._ended.set()
        if self._before is not None:
            signal.set_wakeup_fd(self._before)
        with contextlib.suppress(OSError):
            self._wake_writer.send(b"\0")
        self._thread.join()
        self._wake_reader.close()
        self._wake_writer.close()

    def _watch(self) -> None:
        while not self._ended.is_set():
            with contextlib.suppress(TimeoutError):
                for number in self._wake_reader.recv(64):
                    self._stop.note(number)
            if self._stop.requested and not self._ended.wait(STOP_GRACE_SECONDS):
                logger.error("%s did not stop in %.0f s, leaves", self._name, STOP_GRACE_SECONDS)
                logging.shutdown()
                os._exit(EXIT_FAILED)
