"""Creation of the runner that RUNNER_URL names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

from apps.jobs.runners.base import ExecutionRunner
from apps.jobs.runners.process import ProcessRunner
from yardkit.env import EnvError

SETTING: Final = "RUNNER_URL"
PROCESS: Final = "process"
DOCKER: Final = "docker"
DEFAULT_SOCKET: Final = "unix:///var/run/docker.sock"
_REMEDY: Final = "use process://, docker://, unix:///path/of/socket or tcp://host:port"


def runner_kind(url: str) -> str:
    """Return the kind of runner, ``process`` or ``docker``. Raises ``EnvError``."""
    return DOCKER if docker_url(url) else PROCESS


def docker_url(url: str) -> str:
    """Return the engine's URL, "" for local processes.

    Raises:
        EnvError: the URL is neither.
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise EnvError(SETTING, f"{url!r} cannot be read", _REMEDY) from error
    if parts.scheme == PROCESS and not (parts.netloc or parts.path):
        return ""
    if parts.scheme == DOCKER and not (parts.netloc or parts.path):
        return DEFAULT_SOCKET
    if parts.scheme == "unix" and not parts.netloc and parts.path.startswith("/"):
        return url
    if parts.scheme == "tcp" and parts.hostname and port and parts.path in ("", "/"):
        return url.rstrip("/")
    raise EnvError(SETTING, f"{url!r} names no runner", _REMEDY)


def make_runner(
    url: str, *, installation: str, host: str, network: str, labels: Mapping[str, str] | None = None
) -> ExecutionRunner:
    """Return the runner of this host. Raises ``EnvError``."""
    engine = docker_url(url)
    if not engine:
        return ProcessRunner()
    # Imported here: Docker's SDK is slow to import, and process hosts do not need it.
    from apps.jobs.runners.docker import DockerRunner

    return DockerRunner(
        engine, installation=installation, host=host, network=network, labels=labels
    )
