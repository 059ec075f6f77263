"""A node of MongoDB, and a look past it at what it keeps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pymongo import MongoClient
from pymongo.collection import Collection
from pymongo.monitoring import CommandListener, CommandStartedEvent

from apps.requeststore.stores.mongo import MongoNode
from tests.plugins.mongodb_server import MongoServer
from tests.requeststore.stores.calls import PREFIX, SHARD

Document = dict[str, Any]


class Listener(CommandListener):
    """What the node says to the server."""

    def __init__(self) -> None:
        self.said: list[Document] = []

    def started(self, event: CommandStartedEvent) -> None:
        # Of a command that logs in the driver tells nothing.
        if event.command:
            self.said.append(dict(event.command))

    def succeeded(self, event: object) -> None:
        """Nothing to note."""

    def failed(self, event: object) -> None:
        """Nothing to note."""


@pytest.fixture
def listener() -> Listener:
    return Listener()


@pytest.fixture
def node(mongodb_server: MongoServer, listener: Listener) -> Iterator[MongoNode]:
    made = MongoNode(mongodb_server.url, listeners=[listener])
    yield made
    made.close()
    mongodb_server.forget(PREFIX)


@pytest.fixture
def client(mongodb_server: MongoServer) -> Iterator[MongoClient[Document]]:
    with MongoClient[Document](mongodb_server.url, tz_aware=True) as made:
        yield made


@pytest.fixture
def found(client: MongoClient[Document]) -> Collection[Document]:
    """The documents of the shard as somebody else sees them."""
    return client[SHARD.database][SHARD.collection]
