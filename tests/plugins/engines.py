"""Fixtures for tests of builds and containers: a Docker Engine, a base image, a git server."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import docker
import pytest

from tests.plugins.base_image import make_base_image
from tests.plugins.git_server import GitServer

# What tests make carries this label, and goes with the session.
TEST_LABEL = "crawlyard.test"


@pytest.fixture(scope="session")
def docker_engine() -> Iterator[docker.DockerClient]:
    """The local Docker Engine; what carries ``TEST_LABEL`` is removed afterwards."""
    client = docker.DockerClient(base_url="unix:///var/run/docker.sock", timeout=120)
    try:
        yield client
    finally:
        with contextlib.suppress(docker.errors.APIError):
            sweep_test_things(client)
        client.close()


def sweep_test_things(client: docker.DockerClient) -> None:
    """Remove the containers and images of tests."""
    for container in client.containers.list(all=True, filters={"label": TEST_LABEL}):
        container.remove(force=True)
    for image in client.images.list(all=False, filters={"label": TEST_LABEL}):
        with contextlib.suppress(docker.errors.APIError):
            client.images.remove(image.id, force=True)
    client.images.prune(filters={"dangling": True, "label": TEST_LABEL})


@pytest.fixture(scope="session")
def base_image(docker_engine: docker.DockerClient) -> str:
    """Name and tag of an image with this Python, pip and a shell, and nothing else."""
    return make_base_image(docker_engine)


@pytest.fixture(scope="session")
def git_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GitServer]:
    """A git server over HTTP with Basic authentication."""
    server = GitServer(Path(tmp_path_factory.mktemp("git")))
    server.start()
    yield server
    server.stop()
