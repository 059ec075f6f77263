"""The yards that the tests of faults share: one for each store."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing

import pytest

from tests.plugins.stores import lend_postgres_database, lend_rabbit_vhost
from tests.seeds.faults.service_processes import SeedYard

STORES = ["rocksdb", "postgresql"]


@pytest.fixture(scope="module", params=STORES)
def yard(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SeedYard]:
    """One for all tests of a file. Its broker knows no other service: all share one queue."""
    folder = tmp_path_factory.mktemp("yard")
    with ExitStack() as stack:
        store_url = (
            f"rocksdb://{folder}/store"
            if request.param == "rocksdb"
            else stack.enter_context(lend_postgres_database())
        )
        broker_url = stack.enter_context(lend_rabbit_vhost())
        made = SeedYard(folder, store_url=store_url, broker_url=broker_url)
        yield stack.enter_context(closing(made))
