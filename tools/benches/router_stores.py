"""A database, a virtual host and Redis keys of the bench's own, taken away afterwards."""

from __future__ import annotations

import secrets
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import quote, urlsplit, urlunsplit

import psycopg
import redis
from django.conf import settings
from psycopg import sql

from tools.benches.measuring import BenchFailed

_NEEDED = (
    ("DATABASE_URL", ("postgres://", "postgresql://")),
    ("BROKER_URL", ("amqp://", "amqps://")),
    ("REDIS_URL", ("redis://", "rediss://")),
)


@dataclass(frozen=True, slots=True)
class Stores:
    """Where the bench may do as it likes."""

    database_url: str
    broker_url: str
    redis_url: str
    # Before the name of each key and each queue.
    prefix: str

    @property
    def environment(self) -> dict[str, str]:
        """For processes that work on them."""
        return {
            "DATABASE_URL": self.database_url,
            "BROKER_URL": self.broker_url,
            "REDIS_URL": self.redis_url,
            "REDIS_PREFIX": self.prefix,
        }


@contextmanager
def lend_stores() -> Iterator[Stores]:
    """Beside what the servers of the settings hold already.

    Raises:
        BenchFailed: a server is not configured, or lends nothing.
    """
    for name, schemes in _NEEDED:
        if not getattr(settings, name).startswith(schemes):
            raise BenchFailed(
                f"{name} must be {schemes[0]}...: this bench needs PostgreSQL, RabbitMQ and Redis,"
                " and --engines configured"
            )
    prefix = f"crawlyard_bench_{secrets.token_hex(4)}"
    with own_database(prefix) as database, virtual_host(prefix) as broker, own_keys(prefix):
        yield Stores(database, broker, settings.REDIS_URL, prefix)


def _with_path(url: str, path: str) -> str:
    return urlunsplit(urlsplit(url)._replace(path=f"/{path}"))


@contextmanager
def own_database(name: str) -> Iterator[str]:
    """DATABASE_URL of one beside that of the settings. Raises ``BenchFailed``."""
    try:
        with psycopg.connect(settings.DATABASE_URL, autocommit=True) as connection:
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
            try:
                yield _with_path(settings.DATABASE_URL, name)
            finally:
                connection.execute(
                    sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name))
                )
    except psycopg.Error as error:
        raise BenchFailed(f"DATABASE_URL: no database of its own: {error}") from error


@contextmanager
def virtual_host(name: str) -> Iterator[str]:
    """That of the settings where none can be made: its queues have names of their own anyway."""
    if shutil.which("rabbitmqctl") is None or not _rabbitmqctl("add_vhost", name):
        yield settings.BROKER_URL
        return
    try:
        user = urlsplit(settings.BROKER_URL).username or "guest"
        _rabbitmqctl("set_permissions", "-p", name, user, ".*", ".*", ".*")
        yield _with_path(settings.BROKER_URL, quote(name, safe=""))
    finally:
        _rabbitmqctl("delete_vhost", name)


def _rabbitmqctl(*arguments: str) -> bool:
    command = ["rabbitmqctl", "--quiet", *arguments]
    return subprocess.run(command, capture_output=True, timeout=60, check=False).returncode == 0


@contextmanager
def own_keys(prefix: str) -> Iterator[None]:
    """What begins with ``prefix`` in the Redis of the settings is deleted afterwards."""
    try:
        yield
    finally:
        with redis.Redis.from_url(settings.REDIS_URL) as client:
            for key in client.scan_iter(f"{prefix}*", count=1000):
                client.delete(key)
