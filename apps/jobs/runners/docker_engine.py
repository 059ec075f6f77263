"""Connection to a Docker Engine; errors are mapped to the exceptions of ``runners.base``."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from typing import Any, Final

import requests
import urllib3
from docker import APIClient
from docker.errors import APIError, DockerException, NotFound

from apps.jobs.runners.base import CannotRun, RegistryLogin, RunnerAway, RunSpec

# Timeout of requests: waiting longer for the engine would delay all other work of a runner.
ENGINE_SECONDS: Final = 10.0
PULL_SECONDS: Final = 1800.0
# Prefix of the names of built images; names of registry images begin with the host.
_BUILT: Final = "crawlyard/"


@contextlib.contextmanager
def answering() -> Iterator[None]:
    """Map connection errors to ``RunnerAway``; API errors of the engine are raised unchanged."""
    try:
        yield
    except APIError:
        raise
    except (
        DockerException,
        requests.RequestException,
        urllib3.exceptions.HTTPError,
        OSError,
    ) as error:
        raise RunnerAway(f"Docker does not answer: {shortened(error)}") from error


def shortened(error: Exception) -> str:
    """Return an error of the engine as one line, without request headers."""
    text = str(getattr(error, "explanation", "") or error) or type(error).__name__
    return " ".join(text.split())[:500]


class DockerEngine:
    """Client of a Docker Engine that connects on first use."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._client: APIClient | None = None
        self._init: bool | None = None

    @property
    def api(self) -> APIClient:
        """API client of Docker's SDK. Raises ``RunnerAway``."""
        if self._client is None:
            with answering():
                self._client = self.connect(ENGINE_SECONDS)
        return self._client

    def connect(self, timeout: float) -> APIClient:
        """Return a new client, for use in another thread."""
        if self.url.startswith("unix://"):
            # The SDK does not close the socket if the connection fails.
            with contextlib.closing(socket.socket(socket.AF_UNIX)) as probe:
                probe.settimeout(timeout)
                probe.connect("/" + self.url.removeprefix("unix://").lstrip("/"))
        return APIClient(base_url=self.url, version="auto", timeout=timeout)

    @property
    def has_init(self) -> bool:
        """Whether the engine can add an init process, which forwards signals."""
        if self._init is None:
            with answering():
                self._init = bool(self.api.info().get("InitBinary"))
        return self._init

    def version(self) -> str:
        """Return name and version, such as ``Docker 28.1``. Raises ``RunnerAway``."""
        with answering():
            return f"Docker {self.api.version().get('Version', '?')}"

    def inspect(self, container: str) -> dict[str, Any] | None:
        """Return the engine's data of a container by ID or name; None if it does not exist."""
        try:
            with answering():
                facts: dict[str, Any] = self.api.inspect_container(container)
        except NotFound:
            return None
        return facts

    def listing(self, *labels: str) -> list[dict[str, Any]]:
        """Return a summary of all containers with these labels."""
        with answering():
            containers: list[dict[str, Any]] = self.api.containers(
                all=True, filters={"label": list(labels)}
            )
        return containers

    def image(self, reference: str) -> str | None:
        """Return the engine's ID of an image; None if it has no image of that name or digest."""
        try:
            with answering():
                return str(self.api.inspect_image(reference)["Id"])
        except (NotFound, APIError):
            return None

    def close(self) -> None:
        """Close the connection; the next use reconnects."""
        client, self._client = self._client, None
        if client is not None:
            client.close()


class Images:
    """Finds images by digest, and pulls missing images from their registry."""

    def __init__(self, engine: DockerEngine) -> None:
        self._engine = engine
        self._pulls: dict[str, _Pull] = {}

    def find(self, spec: RunSpec) -> str | None:
        """Return the engine's ID of the image; None if the image is not on this host.

        The digest of a registry's image comes from a webhook: it is only looked up together with
        the image's name, since a bare ID could identify an image of another project.
        """
        return self._engine.image(spec.image if _built_here(spec) else _by_digest(spec))

    def ready(self, spec: RunSpec) -> bool:
        """Return whether the image is available; False while it is pulled. Raises ``CannotRun``."""
        if self.find(spec) is not None:
            self._pulls.pop(spec.image, None)
            return True
        reference = _by_digest(spec)
        if not _of_registry(reference):
            name = spec.image_name or spec.image
            raise CannotRun(f"the image {name} ({spec.image[:19]}…) is not on this host")
        pull = self._pulls.get(spec.image)
        if pull is None:
            pull = self._pulls[spec.image] = _Pull(self._engine, reference, spec.registry)
        if pull.is_alive():
            return False
        # The next run of this image starts another pull.
        del self._pulls[spec.image]
        raise CannotRun(f"the image {reference} cannot be pulled: {pull.problem or 'no reason'}")


class _Pull(threading.Thread):
    """Thread that pulls one image."""

    def __init__(self, engine: DockerEngine, reference: str, registry: RegistryLogin) -> None:
        super().__init__(name=f"pull {reference[:40]}", daemon=True)
        self._engine = engine
        self._reference = reference
        self._registry = registry
        self.problem = ""
        self.start()

    def run(self) -> None:
        who = self._registry
        auth = {"username": who.username, "password": who.password} if who.username else None
        try:
            client = self._engine.connect(PULL_SECONDS)
            try:
                for line in client.pull(
                    self._reference, stream=True, decode=True, auth_config=auth
                ):
                    self.problem = str(line.get("error", ""))[:500] or self.problem
            finally:
                client.close()
        except (DockerException, requests.RequestException, OSError) as error:
            self.problem = shortened(error)


def _by_digest(spec: RunSpec) -> str:
    """Return the image as ``name@sha256:…``, the form that a registry accepts."""
    name, slash, last = spec.image_name.rpartition("/")
    repository = f"{name}{slash}{last.partition(':')[0]}"
    return spec.image if "@" in spec.image or not repository else f"{repository}@{spec.image}"


def _built_here(spec: RunSpec) -> bool:
    return not spec.image_name or spec.image_name.startswith(_BUILT)


def _of_registry(reference: str) -> bool:
    """Return whether the reference begins with a registry's host: other images are not pulled."""
    host, slash, _rest = reference.partition("/")
    return bool(slash) and ("." in host or ":" in host or host == "localhost")
