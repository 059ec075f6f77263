"""A site for the tests of faults."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.requeststore.daemon.pages_site import Site


@pytest.fixture
def site() -> Iterator[Site]:
    """Its pages."""
    with closing(Site()) as made:
        yield made
