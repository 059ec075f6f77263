"""A broker file and a place for processes."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.runtime.processes import Place
from yardkit import topology
from yardkit.broker import Broker, connect
from yardkit.broker.base import DEAD_QUEUE

QUEUES = (*(spec.name for spec in topology.SHARED), "work", "nobody.reads.this")


@pytest.fixture
def broker(sqlite_broker_url: str) -> Iterator[Broker]:
    """An empty broker: a file of this test's own, or the virtual host test_services.py names."""
    shared = os.environ.get("CRAWLYARD_TEST_RUNTIME_BROKER_URL", "")
    broker = connect(shared or sqlite_broker_url, name="test")
    broker.declare(*topology.SHARED)
    yield broker
    if shared and broker.connected:
        for queue in QUEUES:
            broker.delete(queue)
        broker.purge(DEAD_QUEUE)
    broker.close()


@pytest.fixture(scope="session")
def migrated_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A migrated SQLite database to copy from."""
    folder = tmp_path_factory.mktemp("migrated")
    file = folder / "crawlyard.sqlite3"
    Place(f"sqlite:///{file}", "", folder).migrate()
    return file


@pytest.fixture
def place(tmp_path: Path, migrated_file: Path, sqlite_broker_url: str) -> Place:
    file = tmp_path / "crawlyard.sqlite3"
    shutil.copy(migrated_file, file)
    return Place(f"sqlite:///{file}", sqlite_broker_url, tmp_path)
