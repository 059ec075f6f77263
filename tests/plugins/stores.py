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
from xdist.workermanage import WorkerController

from tests.plugins import markers
from tests.plugins.migrated_databases import migrate, one_at_a_time
from yardkit.broker import Broker, connect

# Set in each process that shares the tests of one run, and in what it starts.
_RUN = "PYTEST_XDIST_TESTRUNUID"
_run = pytest.StashKey[str]()
REDIS_OWNER_KEY = "crawlyard:test:owner"


def _unique_name() -> str:
    return f"crawlyard_test_{os.getpid()}_{secrets.token_hex(4)}"


def _with_path(url: str, path: str) -> str:
    return urlunsplit(urlsplit(url)._replace(path=f"/{path}"))


def _on_postgres(statement: str, **names: str) -> None:
    identifiers = {key: sql.Identifier(name) for key, name in names.items()}
    with contextlib.closing(psycopg.connect(markers.POSTGRES_URL, autocommit=True)) as connection:
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
    """What databases on loan are copies of; processes that share the tests share it."""
    run = os.environ.get(_RUN)
    if not run:
        return _migrate_one()
    name = _name_in(run)
    with one_at_a_time():
        if not _exists(name):
            _on_postgres("ALTER DATABASE {made} RENAME TO {name}", made=_migrate_one(), name=name)
    return name


def _migrate_one() -> str:
    name = _create("template1")
    with tempfile.TemporaryDirectory() as data:
        migrate(Path(data), DATABASE_URL=_with_path(markers.POSTGRES_URL, name))
    return name


def _name_in(run: str) -> str:
    return f"crawlyard_test_{run[:16]}_migrated"


def _exists(name: str) -> bool:
    query = "SELECT 1 FROM pg_database WHERE datname = %s"
    with contextlib.closing(psycopg.connect(markers.POSTGRES_URL)) as connection:
        return connection.execute(query, [name]).fetchone() is not None


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: WorkerController) -> None:
    """Note what the processes of this run are known by."""
    node.config.stash[_run] = node.workerinput["testrunuid"]


def pytest_unconfigure(config: pytest.Config) -> None:
    """Drop what the databases on loan were copied from, and the virtual hosts."""
    _vhosts.end()
    if _run in config.stash:
        if not markers.postgres_problem():
            _drop(_name_in(config.stash[_run]))
    elif _RUN not in os.environ and _migrated_postgres.cache_info().currsize:
        _drop(_migrated_postgres())


@contextlib.contextmanager
def lend_postgres_database() -> Iterator[str]:
    """DATABASE_URL of a PostgreSQL database as ``migrate`` leaves it, dropped afterwards."""
    name = _create(_migrated_postgres())
    try:
        yield _with_path(markers.POSTGRES_URL, name)
    finally:
        _drop(name)


@contextlib.contextmanager
def lend_empty_database() -> Iterator[str]:
    """Address of a PostgreSQL database with nothing in it, dropped afterwards."""
    name = _create("template1")
    try:
        yield _with_path(markers.POSTGRES_URL, name)
    finally:
        _drop(name)


@pytest.fixture
def postgres_database() -> Iterator[str]:
    """DATABASE_URL of a PostgreSQL database of the test's own, as ``migrate`` leaves it."""
    with lend_postgres_database() as url:
        yield url


@pytest.fixture
def empty_database() -> Iterator[str]:
    """DATABASE_URL of a PostgreSQL database without tables: made in a fraction of the time."""
    with lend_empty_database() as url:
        yield url


class _Vhosts:
    """Virtual hosts, several made and deleted by one call: each call starts an Erlang machine."""

    AT_ONCE = 8

    def __init__(self) -> None:
        self._free: list[str] = []
        self._used: list[str] = []
        self._has_made = False

    def take(self) -> str:
        """The name of one; "" where none can be made."""
        if not self._free:
            names = [_unique_name() for _ in range(self.AT_ONCE if self._has_made else 1)]
            user = urlsplit(markers.BROKER_URL).username or "guest"
            anything = ", ".join(['<<".*">>'] * 3)
            allowed = f'set_permissions(<<"{user}">>, V, {anything}, {_BY})'
            make = f"rabbit_vhost:add(V, {_BY}), rabbit_auth_backend_internal:{allowed}"
            made = f"[begin {make} end || V <- {_binaries(names)}]"
            if not _rabbitmqctl(f"{made}, {self._gone()}"):
                return ""
            self._free, self._used, self._has_made = names, [], True
        return self._free.pop()

    def give_back(self, name: str) -> None:
        """It goes when others are made, or in the end."""
        self._used.append(name)

    def end(self) -> None:
        """Delete all of them."""
        self._used += self._free
        if self._used:
            _rabbitmqctl(self._gone())

    def _gone(self) -> str:
        return f"[rabbit_vhost:delete(V, {_BY}) || V <- {_binaries(self._used)}]"


_BY = '<<"tests">>'
_vhosts = _Vhosts()


def _binaries(names: list[str]) -> str:
    return "[" + ", ".join(f'<<"{name}">>' for name in names) + "]"


@contextlib.contextmanager
def lend_rabbit_vhost() -> Iterator[str]:
    """BROKER_URL of an own virtual host, or of the configured one where none can be made.

    Making one takes `rabbitmqctl`, which only runs beside the server and as its user or root.
    Without it tests share the configured virtual host, so queue names must be unique anyway.
    """
    name = _vhosts.take() if shutil.which("rabbitmqctl") else ""
    if not name:
        yield markers.BROKER_URL
        return
    try:
        yield _with_path(markers.BROKER_URL, quote(name, safe=""))
    finally:
        _vhosts.give_back(name)


@contextlib.contextmanager
def lend_servers(redis_url: str) -> Iterator[dict[str, str]]:
    """Settings of an installation on PostgreSQL, RabbitMQ and Redis, the first two on loan."""
    with lend_postgres_database() as database, lend_rabbit_vhost() as broker:
        yield {"DATABASE_URL": database, "BROKER_URL": broker, "REDIS_URL": redis_url}


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


def _rabbitmqctl(expression: str) -> bool:
    command = ["rabbitmqctl", "--quiet", "eval", f"{expression}."]
    return subprocess.run(command, capture_output=True, timeout=60, check=False).returncode == 0


@pytest.fixture(scope="session")
def redis_url() -> Iterator[str]:
    """REDIS_URL of an empty Redis database that no other session uses meanwhile."""
    for number in range(15, 0, -1):
        url = _with_path(markers.REDIS_URL, str(number))
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


@pytest.fixture
def broker(sqlite_broker_url: str) -> Iterator[Broker]:
    """Connected to that one."""
    with contextlib.closing(connect(sqlite_broker_url, name="test")) as broker:
        yield broker


def rabbitmqctl(*arguments: str) -> str:
    """What the server's own tool prints; it only runs beside the server, and the test is skipped
    elsewhere."""
    if shutil.which("rabbitmqctl") is None:
        pytest.skip("no rabbitmqctl on PATH")
    command = ["rabbitmqctl", "--quiet", *arguments]
    done = subprocess.run(command, capture_output=True, timeout=60, check=True, text=True)
    return done.stdout.strip()
