"""Shared harness of the fault tests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.plugins.stores import lend_postgres_database
from tests.routing.faults.harness import RouterHarness


@pytest.fixture(scope="module")
def harness(
    tmp_path_factory: pytest.TempPathFactory, rabbit_vhost: str, redis_url: str
) -> Iterator[RouterHarness]:
    """One harness per test file; each test has its own project, queue and lists."""
    with (
        lend_postgres_database() as database,
        closing(
            RouterHarness(tmp_path_factory.mktemp("harness"), database, rabbit_vhost, redis_url)
        ) as made,
    ):
        yield made
