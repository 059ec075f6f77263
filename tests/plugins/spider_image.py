"""The images that spiders build on, made as their users make them: ``make spider-image``."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import docker
import pytest

from tests.plugins.base_image import make_base_image
from tools.requirement_marks import ROOT

NAME = "crawlyard-test-spider"
SCRAPY_NAME = "crawlyard-test-scrapy"
# Of the first stage of deploy/spider/Dockerfile.
STAGE_LABEL = "crawlyard.stage=wheels"


def make(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a target with the environment that runs the tests; it must be ready for that."""
    return subprocess.run(
        ["make", f"VENV={sys.prefix}", f"PYTHON={sys.executable}", *arguments],
        cwd=ROOT,
        # Of a make that runs these tests, nothing.
        env={name: value for name, value in os.environ.items() if not name.startswith("MAKE")},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )


@pytest.fixture(scope="session")
def spider_image(
    docker_engine: docker.DockerClient, tmp_path_factory: pytest.TempPathFactory
) -> str:
    """Name and tag of the image, on the base made of this Python; built without any network."""
    return _image("spider-image", "TAG", NAME, docker_engine, tmp_path_factory)


@pytest.fixture(scope="session")
def scrapy_image(
    docker_engine: docker.DockerClient, tmp_path_factory: pytest.TempPathFactory
) -> str:
    """The same for Scrapy projects: ``make scrapy-image``."""
    return _image("scrapy-image", "SCRAPY_TAG", SCRAPY_NAME, docker_engine, tmp_path_factory)


def _image(
    target: str,
    tag: str,
    name: str,
    docker_engine: docker.DockerClient,
    tmp_path_factory: pytest.TempPathFactory,
) -> str:
    reference = f"{name}:{tmp_path_factory.getbasetemp().name}"
    folder: Path = tmp_path_factory.mktemp("dist")
    done = make(
        target,
        f"BASE_IMAGE={make_base_image(docker_engine)}",
        f"{tag}={reference}",
        f"DIST={folder}",
        "ARGS=--network=none --label=crawlyard.test=1",
    )
    assert done.returncode == 0, done.stdout + done.stderr
    docker_engine.images.prune(filters={"dangling": True, "label": STAGE_LABEL})
    return reference
