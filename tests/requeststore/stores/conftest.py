"""Storage nodes of every kind, empty, for the tests of their contract."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from apps.requeststore.stores.base import StorageNode
from apps.requeststore.stores.mongo import MongoNode
from apps.requeststore.stores.postgres import PostgresNode
from apps.requeststore.stores.sqlite import SqliteNode
from tests.plugins.mongodb_server import MongoServer
from tests.plugins.stores import lend_empty_database
from tests.requeststore.stores.calls import PREFIX

Opened = Callable[[], StorageNode]


@pytest.fixture
def open_sqlite(tmp_path: Path) -> Iterator[Opened]:
    """Opens the same folder as often as it is called."""
    with contextlib.ExitStack() as stack:

        def opened() -> StorageNode:
            node = SqliteNode(tmp_path / "requests")
            stack.callback(node.close)
            return node

        yield opened


@pytest.fixture(scope="session")
def requests_database() -> Iterator[str]:
    """One for all tests of a session; each leaves no shard behind."""
    with lend_empty_database() as url:
        yield url


@pytest.fixture
def open_postgres(requests_database: str) -> Iterator[Opened]:
    """Opens the same database as often as it is called."""
    with contextlib.ExitStack() as stack:

        def opened() -> StorageNode:
            node = PostgresNode(requests_database, connections=4)
            stack.callback(node.close)
            return node

        yield opened
        node = opened()
        for shard in node.shards(PREFIX):
            node.drop(shard)


@pytest.fixture
def open_mongo(mongodb_server: MongoServer) -> Iterator[Opened]:
    """Opens the same server as often as it is called."""
    with contextlib.ExitStack() as stack:

        def opened() -> StorageNode:
            node = MongoNode(mongodb_server.url)
            stack.callback(node.close)
            return node

        yield opened
        mongodb_server.forget(PREFIX)


NODES = [
    pytest.param("open_sqlite", id="sqlite"),
    pytest.param("open_postgres", id="postgres", marks=pytest.mark.services),
    pytest.param("open_mongo", id="mongo"),
]


@pytest.fixture(params=NODES)
def open_node(request: pytest.FixtureRequest) -> Opened:
    """Every call opens the same node once more, as another process would."""
    opened: Opened = request.getfixturevalue(request.param)
    return opened


@pytest.fixture
def node(open_node: Opened) -> StorageNode:
    """A node with nothing in it."""
    return open_node()
