"""A plant on embedded stores and a site; the whole folder shares them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.requeststore.daemon.fetcher_processes import Plant
from tests.requeststore.daemon.pages_site import Site


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    """Its pages."""
    with closing(Site()) as made:
        yield made


@pytest.fixture(scope="module")
def plant(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plant]:
    """One for all tests of a file, each with bizzes of its own names."""
    with closing(Plant(tmp_path_factory.mktemp("plant"))) as made:
        yield made
