"""Interface of runners, which the daemon uses for local processes and containers alike."""

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
    """The engine does not answer: the state of executions is unknown, and none can be started."""


class CannotRun(Exception):
    """The execution can never be started; the text becomes the reason of the run."""


@dataclass(frozen=True, slots=True)
class ContainerLimits:
    """Resource limits of a container; local processes have no limits."""

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
    """Host folder that is mounted into the container at ``target``."""

    source: str
    target: str
    read_only: bool


@dataclass(frozen=True, slots=True)
class RunSpec:
    """Specification of an execution: a command, else a spider, else the image's own entry point.

    Attributes:
        image: by digest: the engine's image ID, or ``name@sha256:…``; "" means a local process.
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
    """End of an execution.

    Attributes:
        code: exit status, negative for a signal; None if no process observed it.
        total: number of the run's requests, if reported.
        failed: number of the run's failed requests, if reported.
        items: number of the run's items, if reported.
        exceptions: number of exceptions in the spider, if reported.
    """

    code: int | None
    state: str = ""
    reason: str = ""
    total: int | None = None
    failed: int | None = None
    items: int | None = None
    exceptions: int | None = None


def spider_program(python: str, spider: str) -> list[str]:
    """Return the command line of a spider: ours is ``module:Class``, Scrapy's is a name."""
    if ":" in spider:
        return [python, "-m", "yardspider", "run", spider]
    return [python, "-m", "yardscrapy", "crawl", spider]


class RunHandle(Protocol):
    """Handle of a started execution."""

    @property
    def run(self) -> int:
        """ID of the run."""

    @property
    def boot(self) -> str:
        """ID of the execution, which changes with each restart."""

    @property
    def folder(self) -> Path:
        """Folder that the execution writes to.

        For an adopted run it is in the data folder of the runner that started the run.
        """

    @property
    def pid(self) -> int | None:
        """Process ID on this host; None for a container."""

    @property
    def started(self) -> float:
        """Start time in Unix seconds; 0 if unknown."""

    @property
    def container(self) -> str:
        """Container ID; empty for a local process."""


class ExecutionRunner(Protocol):
    """Starts, finds, watches and ends executions on this host.

    Every method may raise ``RunnerAway``. No method blocks for long: slow work, such as pulling an
    image, is done in a thread.
    """

    # A value of ``HostKind``.
    kind: str
    # Whether executions continue without a runner, and their ends can be read later.
    outlives_daemon: bool

    def engine(self) -> str:
        """Return name and version of the engine; also used to check that the engine answers."""

    def ready(self, spec: RunSpec) -> bool:
        """Return whether the execution can be started now; False while its image is being pulled.

        Raises:
            CannotRun: the image or program is missing.
        """

    def start(self, spec: RunSpec) -> RunHandle:
        """Start the execution. Idempotent: an execution is never started twice.

        Raises:
            CannotRun: the execution cannot be started.
        """

    def may_have_begun(self, *, run: int, boot: str, folder: Path) -> bool:
        """Return whether this execution was or may have been started."""

    def find(
        self, *, run: int, boot: str, folder: Path, pid: int = 0, started: float = 0.0
    ) -> RunHandle | None:
        """Return an execution on this host, started by any runner; None if there is none.

        An ended execution is returned as long as the engine keeps it.
        """

    def ended(self, *, run: int, boot: str, folder: Path) -> RunExit:
        """Return the recorded end of an execution that ``find`` no longer finds."""

    def poll(self, handle: RunHandle) -> RunExit | None:
        """Return the end of the execution; None while it runs."""

    def terminate(self, handle: RunHandle) -> None:
        """Ask the execution to stop (SIGTERM)."""

    def kill(self, handle: RunHandle) -> None:
        """Kill the execution and all processes that it started."""

    def freeze(self, handle: RunHandle) -> None:
        """Suspend the execution without its cooperation."""

    def thaw(self, handle: RunHandle) -> None:
        """Resume a suspended execution."""

    def sweep(self, *, run: int, boot: str) -> int:
        """Kill processes that an ended execution left running; return their number."""

    def tidy(self, *, now: datetime, known: Mapping[int, str]) -> int:
        """Remove ended executions that are no longer needed; return their number.

        Args:
            known: boot by run ID of the runs of this host; other executions are ended.
        """

    def log(self, *, run: int, boot: str, folder: Path) -> LogSource:
        """Return the output of an execution, from its first line."""

    def close(self) -> None:
        """Close the connection to the engine; executions continue."""
