"""Runner for executions as local processes, for hosts without a container engine.

A run is untrusted code: its environment contains the broker's URL and its own token, never the
database's URL or the secret key.
"""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Final

import psutil

from apps.jobs.runners.base import (
    BOOT,
    RUN,
    RUN_DIR,
    CannotRun,
    RunExit,
    RunHandle,
    RunSpec,
    spider_program,
)
from apps.jobs.runners.bootstrap import bootstrap_argv, mark_file, read_status
from apps.jobs.runners.log_sources import FileLog, LogSource
from apps.jobs.runners.outputs import EXIT_FILE, LOG_FILE, log_file, read_exit
from apps.jobs.runners.spider_files import has_module, modules_in, scrapy_environment, similar

# The only variables that a run inherits from the runner.
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
# Tolerance between the recorded start time and that of the kernel.
_SAME_START_SECONDS: Final = 1.0


@dataclass(slots=True)
class ProcessHandle:
    """Handle of a started process. ``process`` is set if it is a child of this process.

    The process is identified by ``identity`` instead of the pid, which may be reused.
    """

    run: int
    boot: str
    folder: Path
    identity: psutil.Process
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def pid(self) -> int:
        """Process ID, which is also the ID of the process group."""
        return self.identity.pid

    @property
    def started(self) -> float:
        """Start time in Unix seconds; 0 if the process is gone."""
        return _started(self.identity)

    @property
    def container(self) -> str:
        """Empty: a local process has no container."""
        return ""

    @property
    def alive(self) -> bool:
        """Whether the process still runs."""
        if self.process is not None:
            return self.process.poll() is None
        return _runs(self.identity)


class ProcessRunner:
    """Runner that starts each execution in its own session and folder."""

    kind = "process"
    outlives_daemon = False

    def engine(self) -> str:
        """Return the Python version that runs spiders."""
        return f"Python {platform.python_version()}"

    def ready(self, spec: RunSpec) -> bool:
        """Check the specification; return True, since local processes need no image.

        Raises:
            CannotRun: the job needs a container, or its program or module is not on this host.
        """
        if spec.image:
            raise CannotRun("an image needs a host with a container engine")
        program = spec.command[0] if spec.command else sys.executable
        if os.sep not in program and shutil.which(program, path=_path_of(spec)) is None:
            raise CannotRun(f"there is no program {program!r} on this host")
        if not (spec.command or spec.spider):
            raise CannotRun("the job names neither an image nor a command nor a spider")
        module = spec.spider.partition(":")[0]
        ours = not spec.command and ":" in spec.spider
        if ours and not has_module(module, spec.python_path):
            raise CannotRun(_no_module(module, Path(spec.python_path[-1])))
        return True

    def start(self, spec: RunSpec) -> ProcessHandle:
        """Start the process.

        Raises:
            CannotRun: the folder or the process cannot be created.
        """
        try:
            return self._start(spec)
        except (OSError, ValueError) as error:
            raise CannotRun(f"the process could not be started: {error}") from error

    def _start(self, spec: RunSpec) -> ProcessHandle:
        spec.folder.mkdir(parents=True, exist_ok=True)
        (spec.folder / EXIT_FILE).unlink(missing_ok=True)
        environment = {name: os.environ[name] for name in INHERITED if name in os.environ}
        environment |= spec.environment
        environment["PYTHONPATH"] = os.pathsep.join(spec.python_path)
        environment["PYTHONUNBUFFERED"] = "1"
        environment |= {RUN_DIR: str(spec.folder), RUN: str(spec.run), BOOT: spec.boot}
        program = [*spec.command] or spider_program(sys.executable, spec.spider)
        if spec.spider and ":" not in spec.spider and spec.python_path:
            # A run has a folder of its own, where Scrapy would find no scrapy.cfg.
            environment = {**scrapy_environment(Path(spec.python_path[-1])), **environment}
        with _new_log(spec).open("ab") as log:
            process = subprocess.Popen(
                bootstrap_argv(spec.folder, spec.boot, program, guarded=bool(spec.command)),
                cwd=spec.folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        # The pid of a child is not reused until this process reaps it.
        return ProcessHandle(spec.run, spec.boot, spec.folder, psutil.Process(process.pid), process)

    def may_have_begun(self, *, run: int, boot: str, folder: Path) -> bool:
        """Return whether the file exists that is written just before the process is started."""
        return mark_file(folder, boot).exists()

    def find(
        self, *, run: int, boot: str, folder: Path, pid: int = 0, started: float = 0.0
    ) -> ProcessHandle | None:
        """Return the running process of an execution on this host, started by any runner.

        The process is recognised by its environment, because a killed runner may not have stored
        the pid. For a run that has overwritten its environment, ``pid`` and ``started`` decide.
        """
        leaders = [process for process in _processes_of(run, boot) if _leads_session(process)]
        if not leaders and pid:
            leaders = [
                process
                for process in _process(pid)
                if abs(_started(process) - started) < _SAME_START_SECONDS
            ]
        if not leaders:
            return None
        leader = min(leaders, key=_started)
        return ProcessHandle(run, boot, _folder_of(leader) or folder, leader)

    def poll(self, handle: RunHandle) -> RunExit | None:
        """Return the end of the process, by its exit file if there is one; None while it runs."""
        ours = _ours(handle)
        if ours.alive:
            return None
        if ours.process is None:
            return self.ended(run=ours.run, boot=ours.boot, folder=ours.folder)
        return read_exit(ours.folder, ours.process.returncode)

    def ended(self, *, run: int, boot: str, folder: Path) -> RunExit:
        """Return the end from the exit file and the recorded exit status."""
        return read_exit(folder, read_status(folder, boot))

    def terminate(self, handle: RunHandle) -> None:
        """Send SIGTERM, then SIGCONT: a stopped process would not handle it."""
        self._signal(handle, signal.SIGTERM)
        self._signal(handle, signal.SIGCONT)

    def kill(self, handle: RunHandle) -> None:
        """Kill the process group."""
        self._signal(handle, signal.SIGKILL)

    def sweep(self, *, run: int, boot: str) -> int:
        """Kill the processes that an ended execution left running; return their number."""
        left = _processes_of(run, boot)
        for process in left:
            with contextlib.suppress(psutil.Error):
                process.kill()
        return len(left)

    def freeze(self, handle: RunHandle) -> None:
        """Send SIGSTOP, which cannot be ignored, to the process group."""
        self._signal(handle, signal.SIGSTOP)

    def thaw(self, handle: RunHandle) -> None:
        """Send SIGCONT to the process group."""
        self._signal(handle, signal.SIGCONT)

    def tidy(self, *, now: datetime, known: Mapping[int, str]) -> int:
        """Do nothing: an ended process leaves only its folder."""
        return 0

    def log(self, *, run: int, boot: str, folder: Path) -> LogSource:
        """Return the file that the process writes to."""
        return FileLog(log_file(folder, boot))

    def close(self) -> None:
        """Do nothing: there is no connection."""

    def _signal(self, handle: RunHandle, number: signal.Signals) -> None:
        ours = _ours(handle)
        if not ours.alive:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(ours.pid, number)


def _ours(handle: RunHandle) -> ProcessHandle:
    if not isinstance(handle, ProcessHandle):
        raise TypeError(f"{handle!r} is no local process")
    return handle


def _no_module(module: str, folder: Path) -> str:
    there = modules_in(folder)
    near = similar(module, there)
    hint = (
        f"did you mean {', '.join(near)}?" if near else f"it has: {', '.join(there) or 'nothing'}"
    )
    return f"SPIDERS_DIR ({folder}) has no module {module!r}; {hint}"


def _path_of(spec: RunSpec) -> str | None:
    return spec.environment.get("PATH") or os.environ.get("PATH")


def _new_log(spec: RunSpec) -> Path:
    """Return the log file of this execution, after linking ``log.txt`` to it."""
    path = log_file(spec.folder, spec.boot)
    newest = spec.folder / f"{LOG_FILE}.new"
    newest.unlink(missing_ok=True)
    newest.symlink_to(path.name)
    newest.replace(spec.folder / LOG_FILE)
    return path


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
    """Return every process with the environment of this execution, including child processes."""
    processes = []
    for process in psutil.process_iter():
        try:
            environment = process.environ()
        except (psutil.Error, OSError):
            continue  # the process has ended, or belongs to another user
        if environment.get(RUN) == str(run) and environment.get(BOOT) == boot:
            processes.append(process)
    return [process for process in processes if _runs(process)]


def _runs(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def _folder_of(process: psutil.Process) -> Path | None:
    """Return the run's folder from the environment of the process."""
    try:
        folder = process.environ().get(RUN_DIR)
    except (psutil.Error, OSError):
        return None
    return Path(folder) if folder else None


def _leads_session(process: psutil.Process) -> bool:
    try:
        return os.getsid(process.pid) == process.pid
    except ProcessLookupError:
        return False
