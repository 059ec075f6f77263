"""Runner for executions as containers of a Docker Engine.

The engine stores the state: a container's name identifies its execution, so that no execution is
started twice, and the end of a container can be read long after.
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

# Ended containers are removed after this time (seed S1.14).
KEEP_ENDED: Final = timedelta(minutes=30)
LOOK_SECONDS: Final = 0.4
_ALIVE: Final = frozenset({"running", "paused", "restarting"})
_MEBIBYTE: Final = 1024**2


@dataclass(frozen=True, slots=True)
class ContainerHandle:
    """Handle of a started container."""

    run: int
    boot: str
    folder: Path
    container: str
    started: float = 0.0
    pid: int | None = None


class DockerRunner:
    """Runner that starts each execution in a container.

    Args:
        url: of the engine, in the form of Docker's SDK.
        installation: distinguishes containers of this installation from those of others.
        host: name of this runner; runners that share an engine use only their own containers.
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
        self._host_label = f"{HOST_LABEL}={host}"
        self._seen: dict[str, str] = {}
        self._looked = 0.0

    def engine(self) -> str:
        """Return the engine's version; also used to check that the engine answers."""
        return self._engine.version()

    # --- start ------------------------------------------------------------------------------------

    def ready(self, spec: RunSpec) -> bool:
        """Return whether the image is on this host; a missing image of a registry is pulled.

        Raises:
            CannotRun: the image does not exist.
        """
        if not spec.image:
            raise CannotRun("a run without an image needs a host for local processes")
        return self._images.ready(spec)

    def start(self, spec: RunSpec) -> ContainerHandle:
        """Create and start the container, or start a container that a killed runner created."""
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
            raise CannotRun(f"the container could not be made: {_error_text(error)}") from error
        failpoints.hit("jobs.container_created")
        facts = self._engine.inspect(created["Id"])
        if facts is None:
            raise CannotRun("the container was removed before it began")
        return facts

    def _start(self, spec: RunSpec, facts: dict[str, Any]) -> None:
        # The mark outlives the container, which an administrator may remove.
        mark_file(spec.folder, spec.boot).touch()
        try:
            with answering():
                self._engine.api.start(facts["Id"])
        except APIError as error:
            raise CannotRun(f"the container could not be started: {_error_text(error)}") from error

    def may_have_begun(self, *, run: int, boot: str, folder: Path) -> bool:
        """Return whether the container was ever started."""
        facts = self._engine.inspect(container_name(run, boot))
        if facts is not None:
            return _status(facts) != "created"
        return mark_file(folder, boot).exists()

    def find(
        self, *, run: int, boot: str, folder: Path, pid: int = 0, started: float = 0.0
    ) -> ContainerHandle | None:
        """Return the running or ended container; None if it was never started."""
        facts = self._engine.inspect(container_name(run, boot)) if boot else None
        if facts is None or _status(facts) == "created":
            return None
        return self._handle(run, boot, _folder_of(facts) or folder, facts)

    # --- end --------------------------------------------------------------------------------------

    def poll(self, handle: RunHandle) -> RunExit | None:
        """Return exit code, reported end and memory kills; None while the container runs."""
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
        reported = read_exit(ours.folder, code, last_line=self._last_line(ours, code))
        if code and state.get("Error"):
            return RunExit(code=code, state=reported.state, reason=storable(str(state["Error"])))
        return reported

    def ended(self, *, run: int, boot: str, folder: Path) -> RunExit:
        """Return the end that the execution recorded itself, for a removed container."""
        reported = read_exit(folder, None)
        removed = RunExit(code=None, reason="its container was removed")
        return reported if reported.state else removed

    def _last_line(self, handle: ContainerHandle, code: int) -> str:
        if not code:
            return ""
        with contextlib.suppress(APIError), answering():
            return last_line(self._engine.api, handle.container)
        return ""

    def _look(self) -> dict[str, str]:
        """Return states by container ID, with one request for all containers."""
        if time.monotonic() - self._looked > LOOK_SECONDS:
            containers = self._engine.listing(self._installation, self._host_label)
            self._seen = {container["Id"]: str(container["State"]) for container in containers}
            self._looked = time.monotonic()
        return self._seen

    def terminate(self, handle: RunHandle) -> None:
        """Thaw the container, since frozen processes get no signals, and send SIGTERM."""
        self.thaw(handle)
        self._ask("kill", _ours(handle).container, signal="SIGTERM")

    def kill(self, handle: RunHandle) -> None:
        """Send SIGKILL to the container."""
        self.thaw(handle)
        self._ask("kill", _ours(handle).container)

    def freeze(self, handle: RunHandle) -> None:
        """Pause the container."""
        self._ask("pause", _ours(handle).container)

    def thaw(self, handle: RunHandle) -> None:
        """Unpause the container."""
        self._ask("unpause", _ours(handle).container)

    def sweep(self, *, run: int, boot: str) -> int:
        """Kill the container if it still runs; no process outlives its container."""
        facts = self._engine.inspect(container_name(run, boot)) if boot else None
        if facts is None or _status(facts) not in _ALIVE:
            return 0
        self.kill(self._handle(run, boot, Path(), facts))
        return 1

    def _ask(self, what: str, container: str, **options: str) -> None:
        """Call the engine; ignore that the container has ended or is already in that state."""
        self._looked = 0.0
        try:
            with answering():
                getattr(self._engine.api, what)(container, **options)
        except NotFound:
            return
        except APIError as error:
            # 409: not running, already paused or not paused. Old engines answer 500 to the latter
            # two.
            if error.status_code not in (409, 500):
                raise

    # --- cleanup and log --------------------------------------------------------------------------

    def tidy(self, *, now: datetime, known: Mapping[int, str]) -> int:
        """End containers of unknown runs of this host; remove containers that ended long ago."""
        removed = 0
        for container in self._engine.listing(self._installation):
            labels = container.get("Labels") or {}
            run, boot = labels.get(RUN_LABEL, ""), labels.get(BOOT_LABEL, "")
            if str(container["State"]) in _ALIVE:
                ours = f"{HOST_LABEL}={labels.get(HOST_LABEL)}" == self._host_label
                wanted = run.isdigit() and known.get(int(run)) == boot
                if ours and not wanted:
                    self.kill(ContainerHandle(0, boot, Path(), container["Id"]))
            elif run and self._ended_before(container["Id"], now - KEEP_ENDED):
                removed += self._remove(container["Id"])
        return removed

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
            # Another process is removing the container, or the next call will.
            return 0
        return 1

    def log(self, *, run: int, boot: str, folder: Path) -> LogSource:
        """Return the output of the container, as stored by the engine."""
        return DockerLog(self._engine, container_name(run, boot))

    def close(self) -> None:
        """Close the connection to the engine."""
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
    """Return the host folder that is mounted as the run's folder, if this process can access it."""
    sources = [Path(m["Source"]) for m in facts.get("Mounts", []) if m["Destination"] == FOLDER]
    return next((source for source in sources if source.is_dir()), None)


def _status(facts: dict[str, Any]) -> str:
    return str(facts["State"]["Status"])


def _error_text(error: Exception) -> str:
    return storable(shortened(error))


def _moment(text: object) -> datetime | None:
    """Parse the engine's timestamps with nanoseconds; None for the year 1, which means never."""
    if not isinstance(text, str) or text.startswith("0001-"):
        return None
    whole = text.partition(".")[0].removesuffix("Z")
    try:
        return datetime.fromisoformat(whole).replace(tzinfo=UTC)
    except ValueError:
        return None
