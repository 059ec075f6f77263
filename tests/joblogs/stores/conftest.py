"""A log store of each kind: all are held to the same contract.

A new adapter adds itself to ``ADAPTERS``: its name and what makes an empty store.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from apps.joblogs.stores.base import LogStore
from apps.joblogs.stores.postgres import PostgresLogStore
from apps.joblogs.stores.postgres.schema import SCHEMA
from apps.joblogs.stores.sqlite import SqliteLogStore
from tests.joblogs import elastic_server
from tests.plugins.stores import lend_empty_database


@contextmanager
def _sqlite(_request: pytest.FixtureRequest, folder: Path) -> Iterator[LogStore]:
    store = SqliteLogStore(folder / "logs", busy_seconds=5)
    store.setup()
    yield store
    store.close()


@pytest.fixture(scope="session")
def logs_database() -> Iterator[str]:
    """Address of an empty PostgreSQL database for the log stores of this session."""
    with lend_empty_database() as url:
        yield url


@contextmanager
def _postgres(request: pytest.FixtureRequest, _folder: Path) -> Iterator[LogStore]:
    url = request.getfixturevalue("logs_database")
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE")
    store = PostgresLogStore(url)
    store.setup()
    yield store
    store.close()


@contextmanager
def _elastic(_request: pytest.FixtureRequest, _folder: Path) -> Iterator[LogStore]:
    with elastic_server.lend_store() as store:
        yield store


Maker = Callable[[pytest.FixtureRequest, Path], AbstractContextManager[LogStore]]
# The quick tests of this contract are those of the embedded store.
_SLOW = pytest.mark.slow("1 s")
ADAPTERS: dict[str, tuple[Maker, Any]] = {
    "sqlite": (_sqlite, ()),
    "postgres": (_postgres, (pytest.mark.services, _SLOW)),
    "elastic": (_elastic, (elastic_server.WANTED, _SLOW)),
}


@pytest.fixture(
    params=[pytest.param(name, marks=marks) for name, (_maker, marks) in ADAPTERS.items()]
)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LogStore]:
    """An empty one."""
    maker, _marks = ADAPTERS[request.param]
    with maker(request, tmp_path) as made:
        yield made
