"""The port of the runners: what the daemon asks of processes and of containers alike."""

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
    """The engine does not answer: nothing is known of the runs, and nothing can be started."""


class CannotRun(Exception):
    """This execution can never be started like this; the text says why, for the run's page."""


@dataclass(frozen=True, slots=True)
class ContainerLimits:
    """What a container may use. A local process has no limits of its own."""

    cpus: float = 1.0
    memory_bytes: int = 1024**3
    pids: int = 256


@dataclass(frozen=True, slots=True)
class RegistryLogin:
    """Where an image may be pulled from, and as whom."""

    username: str = ""
    password: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class Volume:
    """A folder of the host that a container sees as ``target``."""

    source: str
    target: str
    read_only: bool


@dataclass(frozen=True, slots=True)
class RunSpec:
    """What to start: a command, else a spider, else what the image itself says.

    Attributes:
        image: what the engine runs, by digest: its own id of the image, or ``name@sha256:…``;
            "" is a local process.
        image_name: ``name:tag``, for people and for a pull.
        labels: of the container, besides those of the run itself.
        volumes: what a container sees of its host besides ``folder``.
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
    """One started execution."""

    @property
    def run(self) -> int:
        """The run's id."""

    @property
    def boot(self) -> str:
        """Which execution of the run."""

    @property
    def folder(self) -> Path:
        """The folder it writes to; of an adopted run a folder of the runner that started it."""

    @property
    def pid(self) -> int | None:
        """The process id on this host, where the run is a local process."""

    @property
    def started(self) -> float:
        """When it started, Unix seconds; 0 when that is not known."""

    @property
    def container(self) -> str:
        """The container's id, where the run is one."""


class ExecutionRunner(Protocol):
    """Starts, finds, watches and ends executions on this host.

    Every method may raise ``RunnerAway``. Each returns soon: what takes long goes on in a thread.
    """

    # What of the hosts' kinds this is.
    kind: str
    # Whether the runs go on while no runner is there, and their ends can still be read later.
    outlives_daemon: bool

    def engine(self) -> str:
        """What runs the runs, with its version; also the check that it is there."""

    def ready(self, spec: RunSpec) -> bool:
        """Whether it can be started now. False: what it needs is being fetched, ask again.

        Raises:
            CannotRun: it cannot be had.
        """

    def start(self, spec: RunSpec) -> RunHandle:
        """Start it, or find it started: no execution is ever begun twice.

        Raises:
            CannotRun: it cannot be started like this.
        """

    def may_have_begun(self, *, run: int, boot: str, folder: Path) -> bool:
        """Whether this execution has, or may have, begun. Only then is it not started again."""

    def find(
        self, *, run: int, boot: str, folder: Path, pid: int = 0, started: float = 0.0
    ) -> RunHandle | None:
        """One execution that somebody has started here; also an ended one, where it can be seen."""

    def ended(self, *, run: int, boot: str, folder: Path) -> RunExit:
        """What can still be told of the end of an execution that ``find`` does not find."""

    def poll(self, handle: RunHandle) -> RunExit | None:
        """None while it runs; else how it ended, in its own words where it left any."""

    def terminate(self, handle: RunHandle) -> None:
        """Ask it to stop."""

    def kill(self, handle: RunHandle) -> None:
        """End it, and whatever it started, now."""

    def freeze(self, handle: RunHandle) -> None:
        """Let it stand still, whether it listens or not."""

    def thaw(self, handle: RunHandle) -> None:
        """Let it go on."""

    def sweep(self, *, run: int, boot: str) -> int:
        """End what an execution that is over has left running; returns how many that were."""

    def tidy(self, *, now: datetime, known: Mapping[int, str]) -> int:
        """Remove what nobody needs any more; returns how many that were.

        Args:
            known: run to boot of what shall run here; what else still runs here is ended.
        """

    def log(self, *, run: int, boot: str, folder: Path) -> LogSource:
        """What an execution writes, or has written, from its beginning."""

    def close(self) -> None:
        """Let go of the engine; what runs goes on."""
