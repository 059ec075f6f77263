"""Builds with the classic builder of a Docker Engine, through the engine's API.

A build has limits of network, memory and time. Its disk usage is measured from outside, since the
engine has no limit for layers of the classic builder.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import docker
import requests
from docker.errors import APIError, DockerException, ImageNotFound, NotFound
from docker.utils import parse_repository_tag

from apps.projects.engine.builder.control import BuildControl, BuildStepFailed
from apps.projects.engine.builder.logs import BuildLog
from apps.projects.engine.builder.plan import BUILD_LABEL, LAYER_LABEL, EngineOptions
from yardkit.errors import first_line

# Timeout of short queries, in seconds.
ASK_SECONDS: Final = 60.0
POLL_SECONDS: Final = 0.2
RETRY_SECONDS: Final = 2.0
SIZE_SECONDS: Final = 1.0
GONE_SECONDS: Final = 20.0
# Below this free space the engine's disk counts as full, whatever uses it.
MIN_FREE_BYTES: Final = 512 * 1024**2
_ENDED: Final = object()
_HOURS: Final = 24 * 3600.0

Failure = DockerException | requests.RequestException | OSError
FAILURES: Final = (DockerException, requests.RequestException, OSError)


class BuildEngine:
    """Connection to the engine for queries; each build uses a further connection."""

    def __init__(self, options: EngineOptions) -> None:
        self.options = options
        self.api = _connect(options.url)
        self._root = _root_on_this_machine(options.url, self.api)

    def close(self) -> None:
        """Close the connection."""
        self.api.close()

    def image(self, digest: str) -> dict[str, Any] | None:
        """Return the engine's data of an image; None if the engine does not have it."""
        try:
            facts: dict[str, Any] = self.api.inspect_image(digest)
        except ImageNotFound:
            return None
        return facts

    def tag(self, digest: str, repository: str, tag: str) -> None:
        """Assign a name to an image, removing it from another image."""
        self.api.tag(digest, repository, tag, force=True)

    def remove(self, digest: str) -> None:
        """Remove an image and its unshared layers, unless the image is in use."""
        with contextlib.suppress(APIError):
            self.api.remove_image(digest)

    def nameless(self) -> list[tuple[str, str]]:
        """Return (digest, build ID) of unnamed images of this installation.

        The build ID is "" for layers of unfinished builds.
        """
        label = f"{LAYER_LABEL}={self.options.owner}"
        images = self.api.images(filters={"dangling": True, "label": [label]})
        return [(image["Id"], (image.get("Labels") or {}).get(BUILD_LABEL, "")) for image in images]

    def free_bytes(self) -> int | None:
        """Return the free bytes of the engine's disk; None if the engine is on another machine."""
        if self._root is None:
            return None
        with contextlib.suppress(OSError):
            disk = os.statvfs(self._root)
            return disk.f_bavail * disk.f_frsize
        return None


class BuildLimitWatcher:
    """Monitor of the disk usage of one running build.

    Containers of the build are identified by ``mark``, a line of their hosts file, since the
    Dockerfile controls labels, names and output.
    """

    def __init__(self, engine: BuildEngine, mark: str, max_bytes: int) -> None:
        self._engine = engine
        self._mark = mark
        self._max_bytes = max_bytes
        self._known: dict[str, bool] = {}
        self._next = 0.0

    def check(self) -> None:
        """Raise ``BuildStepFailed`` if the limit is exceeded. Measures at intervals only."""
        now = time.monotonic()
        if now < self._next:
            return
        with contextlib.suppress(*FAILURES):
            for container in self.containers(running=True):
                containers = self._engine.api.containers(filters={"id": container}, size=True)
                size = max((int(facts.get("SizeRootFs") or 0) for facts in containers), default=0)
                if size > self._max_bytes:
                    raise BuildStepFailed("build_too_large", limit=self._max_bytes, size=size)
        free = self._engine.free_bytes()
        if free is not None and free < MIN_FREE_BYTES:
            raise BuildStepFailed("build_disk_full", free=free)
        # Measuring trees with many files is slow: lengthen the interval by the time it took.
        self._next = time.monotonic() + max(SIZE_SECONDS, 5 * (time.monotonic() - now))

    def containers(self, *, running: bool = False) -> list[str]:
        """Return the IDs of the build's containers. Raises ``FAILURES``."""
        ids = [cid["Id"] for cid in self._engine.api.containers(all=not running)]
        self._known = {cid: self._known[cid] for cid in ids if cid in self._known}
        for cid in ids:
            if cid not in self._known:
                with contextlib.suppress(NotFound):
                    self._known[cid] = self._is_ours(self._engine.api.inspect_container(cid))
        return [cid for cid in ids if self._known.get(cid)]

    def end_containers(self) -> None:
        """Wait until the engine has ended the build's containers; kill them after a timeout.

        The engine ends the containers of a build whose connection was closed.
        """
        deadline = time.monotonic() + GONE_SECONDS
        with contextlib.suppress(*FAILURES):
            while left := self.containers():
                if time.monotonic() > deadline:
                    for container in left:
                        with contextlib.suppress(APIError):
                            self._engine.api.remove_container(container, force=True, v=True)
                    return
                time.sleep(POLL_SECONDS)

    def _is_ours(self, container: Mapping[str, Any]) -> bool:
        hosts = (container.get("HostConfig") or {}).get("ExtraHosts") or []
        return any(host.partition(":")[0] == self._mark for host in hosts)


class EngineStream:
    """Messages of a long call to the engine, read by a thread so that silence does not block.

    ``ask`` starts the call on a separate connection.
    """

    def __init__(self, options: EngineOptions, ask: Callable[[Any], Iterator[Any]]) -> None:
        self._options = options
        self._ask = ask
        self._messages: queue.Queue[Any] = queue.Queue(maxsize=1000)
        self._response: Any = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._read, name="docker-build", daemon=True)

    def messages(self, tick: Callable[[], None]) -> Iterator[dict[str, Any]]:
        """Yield all messages; ``tick`` is called regularly and may raise.

        Raises ``APIError`` if the engine refuses the call, ``BuildStepFailed`` if the connection is
        lost.
        """
        self._thread.start()
        while True:
            tick()
            try:
                message = self._messages.get(timeout=POLL_SECONDS)
            except queue.Empty:
                continue
            if message is _ENDED:
                return
            if isinstance(message, APIError):
                raise message
            if isinstance(message, Exception):
                raise BuildStepFailed("engine_lost", error=first_line(message)) from message
            yield message

    def end(self) -> None:
        """Close the connection, which makes the engine abort the call."""
        self._ended.set()
        response = self._response
        if response is not None:
            # Wake the thread, which is blocked in a read.
            with contextlib.suppress(AttributeError, OSError):
                response.raw._fp.fp.raw._sock.shutdown(socket.SHUT_RDWR)
        self._thread.join(GONE_SECONDS)

    def _read(self) -> None:
        try:
            api = _connect(self._options.url)
            api.hooks = {"response": [self._caught]}
            with contextlib.closing(api):
                for message in self._ask(api):
                    if isinstance(message, dict) and not self._put(message):
                        return
            self._put(_ENDED)
        except Exception as error:  # noqa: BLE001 - raised again by the thread that waits for it
            self._put(error)

    def _caught(self, response: Any, *_args: Any, **_kwargs: Any) -> None:
        self._response = response
        if self._ended.is_set():
            response.close()

    def _put(self, message: Any) -> bool:
        while not self._ended.is_set():
            with contextlib.suppress(queue.Full):
                self._messages.put(message, timeout=POLL_SECONDS)
                return True
        return False


def building(context: Path, parameters: dict[str, Any]) -> Callable[[Any], Iterator[Any]]:
    """Return the function that starts a build, for ``EngineStream``."""

    def ask(api: Any) -> Iterator[Any]:
        with context.open("rb") as file:
            yield from api.build(
                fileobj=file, custom_context=True, decode=True, timeout=_HOURS, **parameters
            )

    return ask


def pulling(image: str, platform: str) -> Callable[[Any], Iterator[Any]]:
    """Return the function that starts a pull, for ``EngineStream``; the default tag is latest."""
    repository, tag = parse_repository_tag(image)

    def ask(api: Any) -> Iterator[Any]:
        yield from api.pull(
            repository, tag=tag or "latest", platform=platform or None, stream=True, decode=True
        )

    return ask


def wait_for_engine(options: EngineOptions, control: BuildControl, log: BuildLog) -> BuildEngine:
    """Connect to the engine, with retries for a limited time. Raises ``BuildStepFailed``."""
    deadline = time.monotonic() + options.wait_seconds
    reported = False
    while True:
        try:
            return BuildEngine(options)
        except FAILURES as error:
            if time.monotonic() >= deadline:
                raise BuildStepFailed(
                    "engine_away", url=without_password(options.url), error=first_line(error)
                ) from error
            if not reported:
                text = f"the Docker Engine at {without_password(options.url)} is away; waiting"
                log.say(text, source="build", level="WARNING")
                reported = True
        log.tick()
        control.wait(RETRY_SECONDS)


def _connect(url: str) -> Any:
    if url.startswith("unix://"):
        # The SDK does not close the socket if the connection fails.
        with contextlib.closing(socket.socket(socket.AF_UNIX)) as probe:
            probe.settimeout(ASK_SECONDS)
            probe.connect("/" + url.removeprefix("unix://").lstrip("/"))
    # Ignore environment variables and files of the user that select an engine.
    return docker.APIClient(base_url=url, version="auto", timeout=ASK_SECONDS)


def _root_on_this_machine(url: str, api: Any) -> Path | None:
    if not url.startswith("unix://"):
        return None
    root = Path(api.info().get("DockerRootDir") or "/nowhere")
    return root if root.is_dir() else None


def without_password(url: str) -> str:
    """Return the URL without its password."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def words_of(error: APIError) -> str:
    """Return the error message of the engine."""
    text = str(error.explanation or error)
    with contextlib.suppress(ValueError):
        text = str(json.loads(text).get("message", text))
    return re.sub(r"\s+", " ", text).strip()
