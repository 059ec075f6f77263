"""Each connection to PostgreSQL asks soon whether somebody is at its other end."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

from apps.datasets.engine.targets.databases import PostgresDatabase
from apps.runtime.engine.postgres_link import link_options
from apps.runtime.engine.postgres_pool import ProcessPool
from apps.seeds.stores.postgres.database import SeedDatabase


def options_of(connection: psycopg.Connection[Any]) -> tuple[int, ...]:
    """Of its socket: idle, interval and count of probes, how long what was sent may be unheard."""
    names = ("TCP_KEEPIDLE", "TCP_KEEPINTVL", "TCP_KEEPCNT", "TCP_USER_TIMEOUT")
    with socket.socket(fileno=connection.fileno()) as link:
        try:
            return tuple(link.getsockopt(socket.IPPROTO_TCP, getattr(socket, n)) for n in names)
        finally:
            link.detach()


@contextmanager
def of_a_pool(url: str) -> Iterator[psycopg.Connection[Any]]:
    pool = ProcessPool(url, application="x", options="", connections=1, wait_seconds=5)
    with pool.open().connection() as connection:
        yield connection
    pool.close()


@contextmanager
def of_seeds(url: str) -> Iterator[psycopg.Connection[Any]]:
    database = SeedDatabase(url, connections=1)
    with database._pool.connection() as connection:
        yield connection
    database.close()


@contextmanager
def of_records(url: str) -> Iterator[psycopg.Connection[Any]]:
    sink = PostgresDatabase(url)
    yield sink._connected()
    sink.close()


@pytest.mark.slow("2 s")
@pytest.mark.services
@pytest.mark.parametrize("connected", [of_a_pool, of_seeds, of_records])
def test_it_asks_soon(postgres_database: str, connected: Any) -> None:
    with connected(postgres_database) as connection:
        assert options_of(connection) == (20, 5, 3, 20_000)


@pytest.mark.services
def test_what_the_address_says_stands(postgres_database: str) -> None:
    with of_a_pool(f"{postgres_database}?keepalives_idle=77&tcp_user_timeout=0") as connection:
        assert options_of(connection) == (77, 5, 3, 0)


def test_an_address_that_cannot_be_read_is_for_psycopg_to_refuse() -> None:
    assert link_options("postgresql://u:canary@h:port/x")["keepalives_idle"] == 20
