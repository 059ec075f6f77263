"""What the tests of yardscrapy share."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.yardscrapy.scrapy_platform import ScrapyPlatform


def pythons() -> list[str]:
    """Interpreters with a version of Scrapy each: this one, and those of ``SCRAPY_VENVS``.

    That names a folder with virtual environments "scrapy-2.11" and so on.
    """
    folder = os.environ.get("SCRAPY_VENVS", "")
    found = sorted(Path(folder).glob("scrapy-*/bin/python")) if folder else []
    return [sys.executable, *map(str, found)]


@pytest.fixture(
    params=pythons(), ids=lambda path: "own" if path == sys.executable else path.split("/")[-3]
)
def python(request: pytest.FixtureRequest) -> str:
    """An interpreter with one version of Scrapy."""
    return str(request.param)


@pytest.fixture(scope="package")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ScrapyPlatform]:
    """Broker, center and two agents."""
    platform = ScrapyPlatform(tmp_path_factory.mktemp("platform"))
    yield platform
    platform.close()
