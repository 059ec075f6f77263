"""Runs as local processes: for a laptop, and for hosts without a container engine.

A run is foreign code, so its environment is built from nothing: it gets the broker's address and
its own token, never the database's address or the secret key.
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

from apps.jobs.runners.base import BOOT, RUN, RUN_DIR, CannotRun, RunExit, RunHandle, RunSpec
from apps.jobs.runners.bootstrap import bootstrap_argv, mark_file, read_status
from apps.jobs.runners.log_sources import FileLog, LogSource
from apps.jobs.runners.outputs import EXIT_FILE, LOG_FILE, log_file, read_exit
from apps.jobs.runners.spider_files import has_module, modules_in, similar

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
# A process wrote its own start down; the kernel's clock and ours agree so well.
_SAME_START_SECONDS: Final = 1.0


@dataclass(slots=True)
class ProcessHandle:
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
    def container(self) -> str:
        """It is none."""
        return ""

    @property
    def alive(self) -> bool:
        """Whether it still runs."""
        if self.process is not None:
            return self.process.poll() is None
        return _runs(self.identity)


class ProcessRunner:
    """Starts commands and spiders in a session of their own, one folder a run."""

    kind = "process"
    outlives_daemon = False

    def engine(self) -> str:
        """The Python that runs spiders."""
        return f"Python {platform.python_version()}"

    def ready(self, spec: RunSpec) -> bool:
        """Always: nothing has to be fetched.

        Raises:
            CannotRun: an image, or a program that is not here.
        """
        if spec.image:
            raise CannotRun("an image needs a host with a container engine")
        program = spec.command[0] if spec.command else sys.executable
        if os.sep not in program and shutil.which(program, path=_path_of(spec)) is None:
            raise CannotRun(f"there is no program {program!r} on this host")
        if not (spec.command or spec.spider):
            raise CannotRun("the job names neither an image nor a command nor a spider")
        module = spec.spider.partition(":")[0]
        if not spec.command and not has_module(module, spec.python_path):
            raise CannotRun(_no_module(module, Path(spec.python_path[-1])))
        return True

    def start(self, spec: RunSpec) -> ProcessHandle:
        """Start the process.

        Raises:
            CannotRun: the folder or the process cannot be made.
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
        program = [*spec.command] or [sys.executable, "-m", "yardspider", "run", spec.spider]
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
        # Nobody else can reap our own child, so its pid is its own until we do.
        return ProcessHandle(spec.run, spec.boot, spec.folder, psutil.Process(process.pid), process)

    def may_have_begun(self, *, run: int, boot: str, folder: Path) -> bool:
        """Whether it has left its mark."""
        return mark_file(folder, boot).exists()

    def find(
        self, *, run: int, boot: str, folder: Path, pid: int = 0, started: float = 0.0
    ) -> ProcessHandle | None:
        """The living process of one execution of a run on this host, whoever started it.

        It is known by the environment it was started with: a runner that was killed may not have
        come to write its pid down. A run may also have overwritten its environment; ``pid`` and
        ``started`` are what was written down.
        """
        leaders = [one for one in _processes_of(run, boot) if _leads_session(one)]
        if not leaders and pid:
            leaders = [
                one for one in _process(pid) if abs(_started(one) - started) < _SAME_START_SECONDS
            ]
        if not leaders:
            return None
        leader = min(leaders, key=_started)
        return ProcessHandle(run, boot, _folder_of(leader) or folder, leader)

    def poll(self, handle: RunHandle) -> RunExit | None:
        """None while it runs; else how it ended, in its own words where it left any."""
        here = _ours(handle)
        if here.alive:
            return None
        if here.process is None:
            return self.ended(run=here.run, boot=here.boot, folder=here.folder)
        return read_exit(here.folder, here.process.returncode)

    def ended(self, *, run: int, boot: str, folder: Path) -> RunExit:
        """Its own words, and of a command its exit status."""
        return read_exit(folder, read_status(folder, boot))

    def terminate(self, handle: RunHandle) -> None:
        """Ask it to stop; a frozen one is thawed, else it would hear nothing."""
        self._signal(handle, signal.SIGTERM)
        self._signal(handle, signal.SIGCONT)

    def kill(self, handle: RunHandle) -> None:
        """End it, and whatever it started, now."""
        self._signal(handle, signal.SIGKILL)

    def sweep(self, *, run: int, boot: str) -> int:
        """End what an execution that is over has left running; returns how many that were."""
        left = _processes_of(run, boot)
        for process in left:
            with contextlib.suppress(psutil.Error):
                process.kill()
        return len(left)

    def freeze(self, handle: RunHandle) -> None:
        """Stop the process and its children by SIGSTOP, which none can refuse."""
        self._signal(handle, signal.SIGSTOP)

    def thaw(self, handle: RunHandle) -> None:
        """Let them go on."""
        self._signal(handle, signal.SIGCONT)

    def tidy(self, *, now: datetime, known: Mapping[int, str]) -> int:
        """Nothing: a process that has ended leaves only its folder."""
        return 0

    def log(self, *, run: int, boot: str, folder: Path) -> LogSource:
        """The file that the process writes to."""
        return FileLog(log_file(folder, boot))

    def close(self) -> None:
        """Nothing is held."""

    def _signal(self, handle: RunHandle, number: signal.Signals) -> None:
        here = _ours(handle)
        if not here.alive:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(here.pid, number)


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
    """The file of this execution's output, which ``log.txt`` now names."""
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


def _folder_of(process: psutil.Process) -> Path | None:
    """The folder that the run was started with, by a runner of whatever data folder."""
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
