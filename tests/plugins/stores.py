"""Fixtures that lend a test a store of its own and take it away afterwards."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from urllib.parse import quote, urlsplit, urlunsplit

import psycopg
import pytest
import redis
from psycopg import sql

from tests.plugins import needs
from tests.plugins.migrated import migrate

REDIS_OWNER_KEY = "crawlyard:test:owner"


def _unique_name() -> str:
    return f"crawlyard_test_{os.getpid()}_{secrets.token_hex(4)}"


def _with_path(url: str, path: str) -> str:
    return urlunsplit(urlsplit(url)._replace(path=f"/{path}"))


def _on_postgres(statement: str, **names: str) -> None:
    identifiers = {key: sql.Identifier(name) for key, name in names.items()}
    with contextlib.closing(psycopg.connect(needs.POSTGRES_URL, autocommit=True)) as connection:
        connection.execute(sql.SQL(statement).format(**identifiers))


def _drop(name: str) -> None:
    # FORCE: a process that a test has killed may still be connected for a moment.
    _on_postgres("DROP DATABASE IF EXISTS {name} WITH (FORCE)", name=name)


def _create(source: str) -> str:
    name = _unique_name()
    _on_postgres("CREATE DATABASE {name} TEMPLATE {source}", name=name, source=source)
    # It need not outlive a crash of the server, and others keep the disk busy.
    _on_postgres("ALTER DATABASE {name} SET synchronous_commit TO off", name=name)
    return name


@cache
def _migrated_postgres() -> str:
    name = _create("template1")
    with tempfile.TemporaryDirectory() as data:
        migrate(Path(data), DATABASE_URL=_with_path(needs.POSTGRES_URL, name))
    return name


def pytest_unconfigure() -> None:
    """Drop what the databases on loan were copied from."""
    if _migrated_postgres.cache_info().currsize:
        _drop(_migrated_postgres())


@contextlib.contextmanager
def lend_postgres_database() -> Iterator[str]:
    """DATABASE_URL of a PostgreSQL database as ``migrate`` leaves it, dropped afterwards."""
    name = _create(_migrated_postgres())
    try:
        yield _with_path(needs.POSTGRES_URL, name)
    finally:
        _drop(name)


@contextlib.contextmanager
def lend_empty_database() -> Iterator[str]:
    """Address of a PostgreSQL database with nothing in it, dropped afterwards."""
    name = _create("template1")
    try:
        yield _with_path(needs.POSTGRES_URL, name)
    finally:
        _drop(name)


@pytest.fixture
def postgres_database() -> Iterator[str]:
    """DATABASE_URL of a PostgreSQL database of the test's own, as ``migrate`` leaves it."""
    with lend_postgres_database() as url:
        yield url


@contextlib.contextmanager
def lend_rabbit_vhost() -> Iterator[str]:
    """BROKER_URL of an own virtual host, or of the configured one where none can be made.

    Making one takes `rabbitmqctl`, which only runs beside the server and as its user or root.
    Without it tests share the configured virtual host, so queue names must be unique anyway.
    """
    if shutil.which("rabbitmqctl") is None:
        yield needs.BROKER_URL
        return
    name = _unique_name()
    user = urlsplit(needs.BROKER_URL).username or "guest"
    if not _rabbitmqctl("add_vhost", name):
        yield needs.BROKER_URL
        return
    try:
        if not _rabbitmqctl("set_permissions", "-p", name, user, ".*", ".*", ".*"):
            raise RuntimeError(f"rabbitmqctl made {name}, but cannot let {user} use it")
        yield _with_path(needs.BROKER_URL, quote(name, safe=""))
    finally:
        _rabbitmqctl("delete_vhost", name)


@pytest.fixture(scope="session")
def rabbit_vhost() -> Iterator[str]:
    """BROKER_URL of a virtual host that belongs to this session alone, where one can be made."""
    with lend_rabbit_vhost() as url:
        yield url


@pytest.fixture
def new_rabbit_vhost() -> Iterator[str]:
    """The same for one test, which would be upset by what others have left in the queues."""
    with lend_rabbit_vhost() as url:
        yield url


def _rabbitmqctl(*arguments: str) -> bool:
    command = ["rabbitmqctl", "--quiet", *arguments]
    return subprocess.run(command, capture_output=True, timeout=60, check=False).returncode == 0


@pytest.fixture(scope="session")
def redis_url() -> Iterator[str]:
    """REDIS_URL of an empty Redis database that no other session uses meanwhile."""
    for number in range(15, 0, -1):
        url = _with_path(needs.REDIS_URL, str(number))
        with contextlib.closing(redis.Redis.from_url(url)) as client:
            # The key outlives a killed session by an hour; then the database is free again.
            if not client.set(REDIS_OWNER_KEY, os.getpid(), nx=True, ex=3600):
                continue
            if client.dbsize() != 1:
                client.delete(REDIS_OWNER_KEY)
                continue
            try:
                yield url
            finally:
                client.flushdb()
            return
    pytest.fail("Redis: all of the databases 1 to 15 hold data of somebody else", pytrace=False)


@pytest.fixture
def sqlite_broker_url(tmp_path: Path) -> str:
    """BROKER_URL of an embedded broker in this test's own folder."""
    return f"sqlite:///{tmp_path / 'broker.sqlite3'}"
