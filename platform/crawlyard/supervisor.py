"""Small supervisor: starts one box's processes, restarts them with back-off, merges logs.

It does not import Django. Each child runs in its own session, so that only the supervisor receives
Ctrl-C and stops the children in order.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import psutil

from yardkit.backoff import Backoff
from yardkit.stop import DIE_WITH_PARENT

# A child that ran this long is healthy: the back-off restarts at its shortest.
HEALTHY_SECONDS: Final = 30.0
FIRST_BACKOFF_SECONDS: Final = 0.5
LONGEST_BACKOFF_SECONDS: Final = 15.0
# Longer lines are split: output without a newline would fill the memory.
LONGEST_LINE_BYTES: Final = 64 * 1024
# The stop ends within 5 s: units with ``stops_first`` get 3.2 s, the others the rest of 4.4 s.
FIRST_GRACE_SECONDS: Final = 3.2
GRACE_SECONDS: Final = 4.4
# A retired unit may finish its work first while others go on.
RETIRE_SECONDS: Final = 60.0
# Exit status of a daemon for a bad setting, which no restart fixes. A child that has run before
# had good settings; it uses the same status for an unreachable database or broker.
BAD_SETTING_STATUS: Final = 2


@dataclass(frozen=True, slots=True)
class Unit:
    """Process to keep running. ``stops_first``: the other units must outlive it."""

    name: str
    argv: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    stops_first: bool = False


@dataclass(slots=True)
class _Child:
    unit: Unit
    process: subprocess.Popen[bytes] | None = None
    started: float = 0.0
    restarts: int = 0
    start_at: float = 0.0
    backoff: Backoff = field(
        default_factory=lambda: Backoff(FIRST_BACKOFF_SECONDS, LONGEST_BACKOFF_SECONDS)
    )
    rest: bytes = b""
    last_line: str = ""
    # Time at which a retired child is killed.
    retire_by: float | None = None


class UnitFailed(Exception):
    """A child cannot run with these settings; the text is its last output line."""


class Supervisor:
    """Call ``start()``, then ``step()`` repeatedly, then ``stop()``."""

    def __init__(self, units: Sequence[Unit], write_line: Callable[[str, str], None]) -> None:
        self._children = [_Child(unit) for unit in units]
        self._write_line = write_line
        self._selector = selectors.DefaultSelector()

    def start(self) -> None:
        """Start every unit."""
        for child in self._children:
            self._spawn(child)

    def pids(self) -> dict[str, int]:
        """Return the process ids of running children by unit name."""
        return {c.unit.name: c.process.pid for c in self._children if c.process is not None}

    def restarts(self) -> int:
        """Number of restarts of all children."""
        return sum(child.restarts for child in self._children)

    def add(self, unit: Unit) -> None:
        """Start another unit, or keep a retiring one of that name."""
        for child in self._children:
            if child.unit.name == unit.name:
                # It was terminated already, and is started again afterwards.
                child.retire_by, child.unit = None, unit
                return
        child = _Child(unit)
        self._children.append(child)
        self._spawn(child)

    def retire(self, name: str) -> None:
        """Terminate a unit without a restart; kill it if it still runs after a minute."""
        for child in self._children:
            if child.unit.name == name and child.retire_by is None:
                child.retire_by = time.monotonic() + RETIRE_SECONDS
                _tell(child, signal.SIGTERM)

    def step(self, timeout: float) -> None:
        """Copy log lines for up to ``timeout`` seconds, reap and restart.

        Raises:
            UnitFailed: a child reports a bad setting.
        """
        self._copy_logs(timeout)
        _reap_strangers({c.process.pid for c in self._children if c.process is not None})
        now = time.monotonic()
        for child in list(self._children):
            if child.retire_by is not None:
                self._retiring(child, now)
            elif child.process is None:
                if now >= child.start_at:
                    child.restarts += 1
                    self._spawn(child)
            elif child.process.poll() is not None:
                self._ended(child, now)

    def stop(self) -> None:
        """Stop all children, those with ``stops_first`` first; kill those that do not end."""
        began = time.monotonic()
        family = [descendant for child in self._children for descendant in _descendants(child)]
        first = [child for child in self._children if child.unit.stops_first]
        rest = [child for child in self._children if not child.unit.stops_first]
        self._terminate(first, began + FIRST_GRACE_SECONDS)
        self._terminate(rest, began + GRACE_SECONDS)
        self._copy_logs(0.0)
        for child in self._children:
            self._close(child)
        self._selector.close()
        # A killed child could not end processes that it had started in other sessions.
        for process in family:
            with contextlib.suppress(psutil.Error):
                process.kill()

    def _spawn(self, child: _Child) -> None:
        environment = {
            **os.environ,
            **child.unit.environment,
            DIE_WITH_PARENT: str(os.getpid()),
            "PYTHONUNBUFFERED": "1",
        }
        child.started = time.monotonic()
        try:
            child.process = subprocess.Popen(
                list(child.unit.argv),
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            # Out of memory or processes: retried later.
            self._back_off(child, f"{child.unit.name} cannot be started: {error}")
            return
        assert child.process.stdout is not None  # noqa: S101 - PIPE was asked for
        os.set_blocking(child.process.stdout.fileno(), False)
        self._selector.register(child.process.stdout, selectors.EVENT_READ, child)

    def _retiring(self, child: _Child, now: float) -> None:
        if _alive(child):
            if child.retire_by is not None and now >= child.retire_by:
                self._write_line("up", f"{child.unit.name} did not end in time: killed")
                _signal(child, signal.SIGKILL)
            return
        if child.process is not None:
            self._read(child)
            _signal(child, signal.SIGKILL)
            self._close(child)
        self._children.remove(child)

    def _ended(self, child: _Child, now: float) -> None:
        assert child.process is not None  # noqa: S101 - the caller looked
        self._read(child)
        code = child.process.returncode
        # Its own children must not go on, for example hold its port.
        _signal(child, signal.SIGKILL)
        self._close(child)
        healthy = now - child.started >= HEALTHY_SECONDS
        if code == BAD_SETTING_STATUS and not child.restarts and not healthy:
            raise UnitFailed(child.last_line or f"{child.unit.name} refused to start")
        if healthy:
            child.backoff.reset()
        how = f"signal {-code}" if code < 0 else f"exit status {code}"
        message = f"{child.unit.name} ended with {how}"
        if healthy:
            child.start_at = now
            self._write_line("up", f"{message}; starting again")
        else:
            self._back_off(child, message)

    def _back_off(self, child: _Child, what: str) -> None:
        seconds = child.backoff.seconds()
        child.start_at = time.monotonic() + seconds
        self._write_line("up", f"{what}; starting again in {seconds:.1f} s")

    def _close(self, child: _Child) -> None:
        if child.process is None:
            return
        stdout = child.process.stdout
        if stdout is not None and not stdout.closed:
            with contextlib.suppress(KeyError):
                self._selector.unregister(stdout)
            stdout.close()
        child.process = None

    def _copy_logs(self, timeout: float) -> None:
        if not self._selector.get_map():
            time.sleep(min(timeout, 0.05))
            return
        for key, _events in self._selector.select(timeout):
            self._read(key.data)

    def _read(self, child: _Child) -> None:
        assert child.process is not None and child.process.stdout is not None  # noqa: S101, PT018
        stdout = child.process.stdout
        while True:
            try:
                data = os.read(stdout.fileno(), LONGEST_LINE_BYTES)
            except BlockingIOError:
                break
            if not data:
                # The pipe is closed: ``poll()`` returns whether the child has ended.
                with contextlib.suppress(KeyError):
                    self._selector.unregister(stdout)
                break
            *lines, child.rest = (child.rest + data).split(b"\n")
            for line in lines:
                self._log(child, line)
            if len(child.rest) >= LONGEST_LINE_BYTES:
                self._log(child, child.rest)
                child.rest = b""
        if child.process.poll() is not None and child.rest:
            self._log(child, child.rest)
            child.rest = b""

    def _log(self, child: _Child, line: bytes) -> None:
        text = line.decode("utf-8", "replace").rstrip()
        if text:
            child.last_line = text
            self._write_line(child.unit.name, text)

    def _terminate(self, children: list[_Child], deadline: float) -> None:
        running = [c for c in children if c.process is not None and c.process.poll() is None]
        for child in running:
            _signal(child, signal.SIGTERM)
        while time.monotonic() < deadline and any(_alive(child) for child in running):
            self._copy_logs(0.02)
        for child in running:
            if _alive(child):
                self._write_line("up", f"{child.unit.name} did not stop in time: killed")
            # The process group, too: a killed child must not leave orphans.
            _signal(child, signal.SIGKILL)
            if child.process is not None:
                child.process.wait()


def _alive(child: _Child) -> bool:
    return child.process is not None and child.process.poll() is None


def _tell(child: _Child, number: signal.Signals) -> None:
    """Signal the process alone: it ends its own children."""
    if child.process is not None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(child.process.pid, number)


def _signal(child: _Child, number: signal.Signals) -> None:
    if child.process is None:
        return
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.process.pid, number)


def _descendants(child: _Child) -> list[psutil.Process]:
    if child.process is None:
        return []
    try:
        return psutil.Process(child.process.pid).children(recursive=True)
    except psutil.Error:
        return []


def _reap_strangers(own: Collection[int]) -> None:
    """Reap orphans, as the first process of a container must."""
    if os.getpid() != 1:
        return
    with contextlib.suppress(ChildProcessError):
        while ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            if ended.si_pid in own:
                return  # own children are reaped elsewhere
            os.waitpid(ended.si_pid, os.WNOHANG)
