"""Docker runners of one test, and their containers' end."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from typing import Any

import docker
import pytest

from apps.jobs.runners.docker import DockerRunner
from tests.plugins.engines import TEST_LABEL

SOCKET = "unix:///var/run/docker.sock"


@pytest.fixture
def installation(docker_engine: docker.DockerClient) -> Iterator[str]:
    """A name of this test's own; its containers are removed afterwards."""
    name = f"test-{secrets.token_hex(6)}"
    yield name
    label = f"crawlyard.installation={name}"
    for container in docker_engine.containers.list(all=True, filters={"label": label}):
        container.remove(force=True)


@pytest.fixture
def docker_runner(installation: str) -> Iterator[Callable[..., DockerRunner]]:
    """Makes runners of the local engine."""
    made: list[DockerRunner] = []

    def make(host: str = "host-1", url: str = SOCKET, **options: Any) -> DockerRunner:
        options.setdefault("network", "none")
        runner = DockerRunner(
            url, installation=installation, host=host, labels={TEST_LABEL: "1"}, **options
        )
        made.append(runner)
        return runner

    yield make
    for runner in made:
        runner.close()


@pytest.fixture
def base_image_id(docker_engine: docker.DockerClient, base_image: str) -> str:
    """The engine's own id of the base image."""
    return str(docker_engine.images.get(base_image).id)
