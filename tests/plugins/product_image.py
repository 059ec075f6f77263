"""The image of the product, made as its users make it: ``make image``."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import docker
import pytest

from tests.plugins.base_image import make_base_image
from tests.plugins.spider_image import make

NAME = "crawlyard-test-product"
# Of the first stage of deploy/docker/Dockerfile.
STAGE_LABEL = "crawlyard.stage=packages"


@pytest.fixture(scope="session")
def product_image(
    docker_engine: docker.DockerClient, tmp_path_factory: pytest.TempPathFactory
) -> str:
    """Name and tag of the image, on the base made of this Python; built without any network."""
    reference = f"{NAME}:{tmp_path_factory.getbasetemp().name}"
    # The wheels stay, so that they are fetched once on a machine.
    folder = Path(tempfile.gettempdir()) / f"crawlyard-test-image-{os.getuid()}"
    done = make(
        "image",
        f"BASE_IMAGE={make_base_image(docker_engine)}",
        f"IMAGE={reference}",
        f"DIST={folder}",
        "ARGS=--network=none --build-arg APT_PACKAGES= --label=crawlyard.test=1",
    )
    assert done.returncode == 0, done.stdout + done.stderr
    docker_engine.images.prune(filters={"dangling": True, "label": STAGE_LABEL})
    return reference
