"""Fixtures that lend a test a store of its own and take it away afterwards."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote, urlsplit, urlunsplit

import psycopg
import pytest
import redis
from psycopg import sql

from tests.plugins import needs

REDIS_OWNER_KEY = "crawlyard:test:owner"


def _unique_name() -> str:
    return f"crawlyard_test_{os.getpid()}_{secrets.token_hex(4)}"


def _with_path(url: str, path: str) -> str:
    return urlunsplit(urlsplit(url)._replace(path=f"/{path}"))


@contextlib.contextmanager
def lend_postgres_database() -> Iterator[str]:
    """DATABASE_URL of an empty PostgreSQL database that is dropped afterwards."""
    name = _unique_name()
    with contextlib.closing(psycopg.connect(needs.POSTGRES_URL, autocommit=True)) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        try:
            yield _with_path(needs.POSTGRES_URL, name)
        finally:
            # FORCE: a process that a test has killed may still be connected for a moment.
            connection.execute(
                sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name))
            )


@pytest.fixture(scope="session")
def postgres_database() -> Iterator[str]:
    """DATABASE_URL of an empty PostgreSQL database that belongs to this session alone."""
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
