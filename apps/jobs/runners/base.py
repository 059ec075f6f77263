"""Interface of the runners: what the daemon needs of local processes and of containers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Final, Protocol

from apps.jobs.runners.log_sources import LogSource

RUN: Final = "CRAWLYARD_RUN"
BOOT: Final = "CRAWLYARD_BOOT"
RUN_DIR: Final = "CRAWLYARD_RUN_DIR"


class RunnerAway(Exception):
    """The engine does not answer: nothing is known of executions, and none can be started."""


class CannotRun(Exception):
    """An execution that can never be started; the text becomes the run's reason."""


@dataclass(frozen=True, slots=True)
class ContainerLimits:
    """Resource limits of a container; local processes have none."""

    cpus: float = 1.0
    memory_bytes: int = 1024**3
    pids: int = 256


@dataclass(frozen=True, slots=True)
class RegistryLogin:
    """Credentials for pulling an image."""

    username: str = ""
    password: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class Volume:
    """A host folder that is mounted into the container at ``target``."""

    source: str
    target: str
    read_only: bool


@dataclass(frozen=True, slots=True)
class RunSpec:
    """What to start: a command, else a spider, else the image's own entry point.

    Attributes:
        image: by digest: the engine's image id, or ``name@sha256:…``; "" means a local process.
        image_name: ``name:tag``, for messages and for a pull.
        labels: further labels of the container.
        volumes: further mounts besides ``folder``.
    """

    run: int
    boot: str
    folder: Path
    environment: Mapping[str, str] = field(repr=False)
    spider: str = ""
    command: tuple[str, ...] = ()
    python_path: tuple[str, ...] = ()
    image: str = ""
    image_name: str = ""
    registry: RegistryLogin = RegistryLogin()
    limits: ContainerLimits = ContainerLimits()
    labels: Mapping[str, str] = field(default_factory=dict)
    volumes: tuple[Volume, ...] = ()


@dataclass(frozen=True, slots=True)
class RunExit:
    """How a run ended.

    Attributes:
        code: exit status, negative for a signal; None when no process saw it.
        total: its requests, where it reported them.
        failed: its requests that failed, where it reported them.
    """

    code: int | None
    state: str = ""
    reason: str = ""
    total: int | None = None
    failed: int | None = None


class RunHandle(Protocol):
    """A started execution."""

    @property
    def run(self) -> int:
        """Id of the run."""

    @property
    def boot(self) -> str:
        """Id of the execution, which changes with each restart."""

    @property
    def folder(self) -> Path:
        """Folder that it writes to; for an adopted run, in the data folder of the runner that
        started it.
        """

    @property
    def pid(self) -> int | None:
        """Process id on this host, for a local process."""

    @property
    def started(self) -> float:
        """Start time, Unix seconds; 0 when unknown."""

    @property
    def container(self) -> str:
        """Container id, for a container."""


class ExecutionRunner(Protocol):
    """Starts, finds, watches and ends executions on this host.

    Every method may raise ``RunnerAway`` and returns soon: long work is done in a thread.
    """

    # One of ``HostKind``.
    kind: str
    # Whether executions go on without a runner, and their ends can be read later.
    outlives_daemon: bool

    def engine(self) -> str:
        """Return name and version of the engine; also the check that it answers."""

    def ready(self, spec: RunSpec) -> bool:
        """Return whether the execution can be started now; False: its image is being pulled.

        Raises:
            CannotRun: the image or program is missing.
        """

    def start(self, spec: RunSpec) -> RunHandle:
        """Start the execution; idempotent: no execution is started twice.

        Raises:
            CannotRun: it cannot be started.
        """

    def may_have_begun(self, *, run: int, boot: str, folder: Path) -> bool:
        """Return whether this execution has, or may have, been started."""

    def find(
        self, *, run: int, boot: str, folder: Path, pid: int = 0, started: float = 0.0
    ) -> RunHandle | None:
        """Return an execution on this host, of any runner; an ended one where it is still
        known.
        """

    def ended(self, *, run: int, boot: str, folder: Path) -> RunExit:
        """Return what is still known of the end of an execution that ``find`` does not find."""

    def poll(self, handle: RunHandle) -> RunExit | None:
        """Return how the execution ended; None while it runs."""

    def terminate(self, handle: RunHandle) -> None:
        """Ask the execution to stop (SIGTERM)."""

    def kill(self, handle: RunHandle) -> None:
        """Kill the execution and everything it started."""

    def freeze(self, handle: RunHandle) -> None:
        """Suspend the execution without its cooperation."""

    def thaw(self, handle: RunHandle) -> None:
        """Resume a suspended execution."""

    def sweep(self, *, run: int, boot: str) -> int:
        """Kill what an ended execution has left running; return the number of processes."""

    def tidy(self, *, now: datetime, known: Mapping[int, str]) -> int:
        """Remove what is no longer needed; return the number of removals.

        Args:
            known: boot by run id of the runs of this host; other executions are ended.
        """

    def log(self, *, run: int, boot: str, folder: Path) -> LogSource:
        """Return the output of an execution from its first line."""

    def close(self) -> None:
        """Close the connection to the engine; executions go on."""
