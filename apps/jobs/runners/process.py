"""Runs as local processes: for a laptop, and for hosts without a container engine.

A run is foreign code, so its environment is built from nothing: it gets the broker's address and
its own token, never the database's address or the secret key.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import psutil

LOG_FILE: Final = "log.txt"
EXIT_FILE: Final = "exit.json"
# Of the runner's own environment a run gets these and nothing else.
INHERITED: Final = (
    "PATH",
    "HOME",
    "LANG",
    "LC_ALL",
    "TZ",
    "TMPDIR",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "FAILPOINTS",
)
ITEMS_FILE: Final = "items.jsonl"
RUN: Final = "CRAWLYARD_RUN"
BOOT: Final = "CRAWLYARD_BOOT"
_LOG_TAIL_BYTES: Final = 16_384
# What a run wrote is foreign: no more of it than this is read, or kept as its reason.
_EXIT_FILE_BYTES: Final = 1024 * 1024
_REASON_CHARACTERS: Final = 1000


@dataclass(frozen=True, slots=True)
class RunSpec:
    """What to start."""

    run: int
    boot: str
    spider: str
    folder: Path
    environment: dict[str, str]
    python_path: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Exit:
    """How a run ended. ``code`` is None when nobody could see it."""

    code: int | None
    state: str = ""
    reason: str = ""


@dataclass(slots=True)
class Handle:
    """A started process. ``process`` is set where it is a child of this very process.

    Which process it is, is known by ``identity`` and not by the pid, which may be another's soon.
    """

    run: int
    boot: str
    folder: Path
    identity: psutil.Process
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def pid(self) -> int:
        """Its process id, which is also that of its process group."""
        return self.identity.pid

    @property
    def started(self) -> float:
        """When it started, Unix seconds; 0 when it is gone already."""
        return _started(self.identity)

    @property
    def alive(self) -> bool:
        """Whether it still runs."""
        if self.process is not None:
            return self.process.poll() is None
        return _runs(self.identity)


class ProcessRunner:
    """Starts ``yardspider run`` in a session of its own, one folder a run."""

    def start(self, spec: RunSpec) -> Handle:
        """Start the process.

        Raises:
            OSError: the folder or the process cannot be made.
            ValueError: an argument or a variable that no process can be given.
        """
        spec.folder.mkdir(parents=True, exist_ok=True)
        (spec.folder / EXIT_FILE).unlink(missing_ok=True)
        environment = {name: os.environ[name] for name in INHERITED if name in os.environ}
        environment |= spec.environment
        environment["PYTHONPATH"] = os.pathsep.join(spec.python_path)
        environment["PYTHONUNBUFFERED"] = "1"
        environment["CRAWLYARD_RUN_DIR"] = str(spec.folder)
        environment |= {RUN: str(spec.run), BOOT: spec.boot}
        with (spec.folder / LOG_FILE).open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "yardspider", "run", spec.spider],
                cwd=spec.folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        # Nobody else can reap our own child, so its pid is its own until we do.
        return Handle(spec.run, spec.boot, spec.folder, psutil.Process(process.pid), process)

    def find(
        self, *, run: int, boot: str, folder: Path, pid: int = 0, started: float = 0.0
    ) -> Handle | None:
        """The living process of one execution of a run on this host, whoever started it.

        It is known by the environment it was started with: a runner that was killed may not have
        come to write its pid down. A run may also have overwritten its environment; ``pid`` and
        ``started`` are what was written down.
        """
        leaders = [one for one in _processes_of(run, boot) if _leads_session(one)]
        if not leaders and pid:
            leaders = [one for one in _process(pid) if abs(_started(one) - started) < 1.0]
        if not leaders:
            return None
        return Handle(run, boot, folder, min(leaders, key=_started))

    def poll(self, handle: Handle) -> Exit | None:
        """None while it runs; else how it ended, in its own words where it left any."""
        if handle.alive:
            return None
        code = handle.process.returncode if handle.process is not None else None
        return read_exit(handle.folder, code)

    def terminate(self, handle: Handle) -> None:
        """Ask it to stop."""
        self._signal(handle, signal.SIGTERM)

    def kill(self, handle: Handle) -> None:
        """End it, and whatever it started, now."""
        self._signal(handle, signal.SIGKILL)

    def sweep(self, *, run: int, boot: str) -> int:
        """End what an execution that is over has left running; returns how many that were."""
        left = _processes_of(run, boot)
        for process in left:
            with contextlib.suppress(psutil.Error):
                process.kill()
        return len(left)

    def _signal(self, handle: Handle, number: signal.Signals) -> None:
        if not handle.alive:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(handle.pid, number)


def never_began(folder: Path) -> bool:
    """Whether a run has left no trace: its process was never started, or died at once.

    Before its first request a run has opened its file of items.
    """
    return not ((folder / ITEMS_FILE).exists() or (folder / EXIT_FILE).exists() or log_tail(folder))


def read_exit(folder: Path, code: int | None) -> Exit:
    """What the run wrote about its end, else what its exit code and last log line say."""
    told = _read_exit_file(folder / EXIT_FILE)
    state, reason = str(told.get("state", "")), str(told.get("reason", ""))
    if not reason and code not in (0, None):
        died = f"killed by signal {-code}" if code and code < 0 else f"exit status {code}"
        last = log_tail(folder).strip().rpartition("\n")[2]
        reason = f"{died}: {last}" if last else died
    return Exit(code=code, state=state, reason=_storable(reason))


def _read_exit_file(path: Path) -> dict[str, Any]:
    try:
        # A run may leave a pipe there, which nobody would ever fill.
        if not path.is_file():
            return {}
        with path.open("rb") as file:
            told = json.loads(file.read(_EXIT_FILE_BYTES))
    except (OSError, ValueError, RecursionError):
        return {}
    return told if isinstance(told, dict) else {}


def _storable(text: str) -> str:
    """One line that every database can hold."""
    whole = text[:_REASON_CHARACTERS].encode("utf-8", "replace").decode()
    return "".join(one if one.isprintable() else " " for one in whole)


def log_tail(folder: Path, limit: int = _LOG_TAIL_BYTES) -> str:
    """The last ``limit`` bytes of the run's log, as whole lines where possible."""
    try:
        if not (folder / LOG_FILE).is_file():
            return ""
        with (folder / LOG_FILE).open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - limit))
            text = file.read(limit).decode("utf-8", "replace")
    except OSError:
        return ""
    return text if size <= limit else text.partition("\n")[2]


def _process(pid: int) -> list[psutil.Process]:
    try:
        return [psutil.Process(pid)]
    except psutil.Error:
        return []


def _started(process: psutil.Process) -> float:
    try:
        return process.create_time()
    except psutil.Error:
        return 0.0


def _processes_of(run: int, boot: str) -> list[psutil.Process]:
    """Every process with the environment of this execution: the run itself and what it started."""
    found = []
    for process in psutil.process_iter():
        try:
            environment = process.environ()
        except (psutil.Error, OSError):
            continue  # gone meanwhile, or another user's
        if environment.get(RUN) == str(run) and environment.get(BOOT) == boot:
            found.append(process)
    return [one for one in found if _runs(one)]


def _runs(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def _leads_session(process: psutil.Process) -> bool:
    try:
        return os.getsid(process.pid) == process.pid
    except ProcessLookupError:
        return False
