"""Runs as containers of a Docker Engine.

The engine remembers what a runner forgets: a container's name says which execution it is, so a
second one of that name cannot be made, and how it ended can be read long after.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from docker.errors import APIError, NotFound

from apps.jobs.runners.base import CannotRun, RunExit, RunHandle, RunSpec
from apps.jobs.runners.bootstrap import mark_file
from apps.jobs.runners.containers import (
    BOOT_LABEL,
    FOLDER,
    HOST_LABEL,
    INSTALLATION_LABEL,
    RUN_LABEL,
    container_name,
    container_options,
    make_folder,
)
from apps.jobs.runners.docker_engine import DockerEngine, Images, answering, shortened
from apps.jobs.runners.docker_log import DockerLog, last_line
from apps.jobs.runners.log_sources import LogSource
from apps.jobs.runners.outputs import EXIT_FILE, read_exit, storable
from yardkit import failpoints

# An ended container is removed after so long (seed S1.14).
KEEP_ENDED: Final = timedelta(minutes=30)
LOOK_SECONDS: Final = 0.4
_ALIVE: Final = frozenset({"running", "paused", "restarting"})
_MEBIBYTE: Final = 1024**2


@dataclass(frozen=True, slots=True)
class ContainerHandle:
    """A container that has been started."""

    run: int
    boot: str
    folder: Path
    container: str
    started: float = 0.0
    pid: int | None = None


class DockerRunner:
    """Starts one container for each execution.

    Args:
        url: of the engine, as the SDK of Docker understands it.
        installation: tells our containers from those of another installation.
        host: the runner's name; another runner of the same engine leaves its containers alone.
        network: of the containers: bridge, host, none or a name.
        labels: further labels of every container.
    """

    kind = "docker"
    outlives_daemon = True

    def __init__(
        self,
        url: str,
        *,
        installation: str,
        host: str,
        network: str = "bridge",
        labels: Mapping[str, str] | None = None,
    ) -> None:
        self._engine = DockerEngine(url)
        self._images = Images(self._engine)
        self._network = network
        self._labels = {**(labels or {}), INSTALLATION_LABEL: installation, HOST_LABEL: host}
        self._installation = f"{INSTALLATION_LABEL}={installation}"
        self._here = f"{HOST_LABEL}={host}"
        self._seen: dict[str, str] = {}
        self._looked = 0.0

    def engine(self) -> str:
        """Its version, as the check that it is there."""
        return self._engine.version()

    # --- starting -------------------------------------------------------------------------------

    def ready(self, spec: RunSpec) -> bool:
        """Whether the image is here; it is pulled where it is of a registry.

        Raises:
            CannotRun: there is no such image.
        """
        if not spec.image:
            raise CannotRun("a run without an image needs a host for local processes")
        return self._images.ready(spec)

    def start(self, spec: RunSpec) -> ContainerHandle:
        """Make the container and start it, or whatever of that a killed runner has left to do."""
        facts = self._engine.inspect(container_name(spec.run, spec.boot))
        if facts is None:
            facts = self._create(spec)
        if _status(facts) == "created":
            self._start(spec, facts)
            facts = self._engine.inspect(facts["Id"]) or facts
        self._looked = 0.0
        return self._handle(spec.run, spec.boot, spec.folder, facts)

    def _create(self, spec: RunSpec) -> dict[str, Any]:
        image = self._images.find(spec)
        if image is None:
            raise CannotRun(f"the image {spec.image_name or spec.image} is not on this host")
        try:
            make_folder(spec.folder)
            (spec.folder / EXIT_FILE).unlink(missing_ok=True)
        except OSError as error:
            raise CannotRun(f"the run's folder cannot be made: {error}") from error
        api = self._engine.api
        options = container_options(
            api,
            spec,
            image=image,
            network=self._network,
            labels=self._labels,
            has_init=self._engine.has_init,
        )
        try:
            with answering():
                created = api.create_container(**options)
        except (APIError, TypeError, ValueError) as error:
            raise CannotRun(f"the container could not be made: {_said(error)}") from error
        failpoints.hit("jobs.container_created")
        found = self._engine.inspect(created["Id"])
        if found is None:
            raise CannotRun("the container was removed before it began")
        return found

    def _start(self, spec: RunSpec, facts: dict[str, Any]) -> None:
        # It outlives the container, which a person may remove.
        mark_file(spec.folder, spec.boot).touch()
        try:
            with answering():
                self._engine.api.start(facts["Id"])
        except APIError as error:
            raise CannotRun(f"the container could not be started: {_said(error)}") from error

    def may_have_begun(self, *, run: int, boot: str, folder: Path) -> bool:
        """Whether its container was ever started."""
        facts = self._engine.inspect(container_name(run, boot))
        if facts is not None:
            return _status(facts) != "created"
        return mark_file(folder, boot).exists()

    def find(
        self, *, run: int, boot: str, folder: Path, pid: int = 0, started: float = 0.0
    ) -> ContainerHandle | None:
        """Its container, running or ended; one that was never started is not counted."""
        facts = self._engine.inspect(container_name(run, boot)) if boot else None
        if facts is None or _status(facts) == "created":
            return None
        return self._handle(run, boot, _folder_of(facts) or folder, facts)

    # --- ending ---------------------------------------------------------------------------------

    def poll(self, handle: RunHandle) -> RunExit | None:
        """None while it runs; else its exit code, what it left, and whether memory was short."""
        ours = _ours(handle)
        if self._look().get(ours.container) in _ALIVE:
            return None
        facts = self._engine.inspect(ours.container)
        if facts is None:
            return self.ended(run=ours.run, boot=ours.boot, folder=ours.folder)
        if _status(facts) in _ALIVE:
            return None
        state = facts["State"]
        code = int(state.get("ExitCode", 0))
        if code and state.get("OOMKilled"):
            limit = int(facts["HostConfig"].get("Memory") or 0) // _MEBIBYTE
            return RunExit(code=code, reason=f"killed: memory limit of {limit} MiB")
        told = read_exit(ours.folder, code, last_line=self._last_line(ours, code))
        if code and state.get("Error"):
            return RunExit(code=code, state=told.state, reason=storable(str(state["Error"])))
        return told

    def ended(self, *, run: int, boot: str, folder: Path) -> RunExit:
        """Without its container only its own words are left."""
        told = read_exit(folder, None)
        return told if told.state else RunExit(code=None, reason="its container was removed")

    def _last_line(self, handle: ContainerHandle, code: int) -> str:
        if not code:
            return ""
        with contextlib.suppress(APIError), answering():
            return last_line(self._engine.api, handle.container)
        return ""

    def _look(self) -> dict[str, str]:
        """State by container id: one question for all of them."""
        if time.monotonic() - self._looked > LOOK_SECONDS:
            found = self._engine.listing(self._installation, self._here)
            self._seen = {each["Id"]: str(each["State"]) for each in found}
            self._looked = time.monotonic()
        return self._seen

    def terminate(self, handle: RunHandle) -> None:
        """SIGTERM to its first process; a frozen one is thawed, else it would hear nothing."""
        self.thaw(handle)
        self._ask("kill", _ours(handle).container, signal="SIGTERM")

    def kill(self, handle: RunHandle) -> None:
        """SIGKILL."""
        self.thaw(handle)
        self._ask("kill", _ours(handle).container)

    def freeze(self, handle: RunHandle) -> None:
        """The engine's own pause."""
        self._ask("pause", _ours(handle).container)

    def thaw(self, handle: RunHandle) -> None:
        """Let it go on."""
        self._ask("unpause", _ours(handle).container)

    def sweep(self, *, run: int, boot: str) -> int:
        """Nothing outlives a container; one that still runs is killed."""
        facts = self._engine.inspect(container_name(run, boot)) if boot else None
        if facts is None or _status(facts) not in _ALIVE:
            return 0
        self.kill(self._handle(run, boot, Path(), facts))
        return 1

    def _ask(self, what: str, container: str, **options: str) -> None:
        """Ask the engine; that it has ended, or stands still already, is no trouble."""
        self._looked = 0.0
        try:
            with answering():
                getattr(self._engine.api, what)(container, **options)
        except NotFound:
            return
        except APIError as error:
            # 409: not running, already paused, not paused. Old engines say 500 to the last two.
            if error.status_code not in (409, 500):
                raise

    # --- the rest -------------------------------------------------------------------------------

    def tidy(self, *, now: datetime, known: Mapping[int, str]) -> int:
        """End containers of runs that nobody wants here, remove those that ended long ago."""
        gone = 0
        for each in self._engine.listing(self._installation):
            labels = each.get("Labels") or {}
            run, boot = labels.get(RUN_LABEL, ""), labels.get(BOOT_LABEL, "")
            if str(each["State"]) in _ALIVE:
                ours = f"{HOST_LABEL}={labels.get(HOST_LABEL)}" == self._here
                wanted = run.isdigit() and known.get(int(run)) == boot
                if ours and not wanted:
                    self.kill(ContainerHandle(0, boot, Path(), each["Id"]))
            elif run and self._ended_before(each["Id"], now - KEEP_ENDED):
                gone += self._remove(each["Id"])
        return gone

    def _ended_before(self, container: str, before: datetime) -> bool:
        facts = self._engine.inspect(container)
        if facts is None or _status(facts) in _ALIVE:
            return False
        moment = _moment(facts["State"].get("FinishedAt")) or _moment(facts.get("Created"))
        return moment is not None and moment < before

    def _remove(self, container: str) -> int:
        try:
            with answering():
                self._engine.api.remove_container(container, v=True)
        except APIError:
            # Somebody else removes it just now, or the next time will do.
            return 0
        return 1

    def log(self, *, run: int, boot: str, folder: Path) -> LogSource:
        """Its output from the beginning, as the engine kept it."""
        return DockerLog(self._engine, container_name(run, boot))

    def close(self) -> None:
        """Close the connection."""
        self._engine.close()

    def _handle(self, run: int, boot: str, folder: Path, facts: dict[str, Any]) -> ContainerHandle:
        started = _moment(facts["State"].get("StartedAt"))
        return ContainerHandle(
            run, boot, folder, facts["Id"], started.timestamp() if started else 0.0
        )


def _ours(handle: RunHandle) -> ContainerHandle:
    if not isinstance(handle, ContainerHandle):
        raise TypeError(f"{handle!r} is no container")
    return handle


def _folder_of(facts: dict[str, Any]) -> Path | None:
    """The host's folder that the container was made with, where this process can see it."""
    sources = [Path(m["Source"]) for m in facts.get("Mounts", []) if m["Destination"] == FOLDER]
    return next((source for source in sources if source.is_dir()), None)


def _status(facts: dict[str, Any]) -> str:
    return str(facts["State"]["Status"])


def _said(error: Exception) -> str:
    return storable(shortened(error))


def _moment(text: object) -> datetime | None:
    """``2026-01-02T03:04:05.123456789Z``; None for the year 1, which means never."""
    if not isinstance(text, str) or text.startswith("0001-"):
        return None
    whole = text.partition(".")[0].removesuffix("Z")
    try:
        return datetime.fromisoformat(whole).replace(tzinfo=UTC)
    except ValueError:
        return None
