"""The marks ``services``, ``docker``, ``browser`` and ``kafka``: skipped with a reason.

``CRAWLYARD_REQUIRE=services,docker,browser,kafka`` turns such a skip into a failure, so that a
continuous build cannot pass by testing less.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import os
import shutil
import socket
from collections.abc import Callable
from urllib.parse import urlsplit

import pika
import pika.exceptions
import psycopg
import pytest
import redis

POSTGRES_URL = os.environ.get(
    "CRAWLYARD_TEST_POSTGRES_URL", "postgresql://postgres@127.0.0.1:5432/postgres"
)
REDIS_URL = os.environ.get("CRAWLYARD_TEST_REDIS_URL", "redis://127.0.0.1:6379/0")
BROKER_URL = os.environ.get("CRAWLYARD_TEST_BROKER_URL", "amqp://guest:guest@127.0.0.1:5672/%2F")
CHROMIUM = os.environ.get("CRAWLYARD_TEST_CHROMIUM", "chromium")
DOCKER_SOCKET = "/var/run/docker.sock"

_CONNECT_SECONDS = 2.0


def _port_problem(url: str, default_port: int) -> str:
    parts = urlsplit(url)
    address = (parts.hostname or "127.0.0.1", parts.port or default_port)
    try:
        socket.create_connection(address, timeout=_CONNECT_SECONDS).close()
    except OSError as error:
        return f"nothing answers on {address[0]}:{address[1]} ({error.strerror or error})"
    return ""


def postgres_problem() -> str:
    """Why PostgreSQL cannot be used, or "" when it can."""
    problem = _port_problem(POSTGRES_URL, 5432)
    if not problem:
        try:
            psycopg.connect(POSTGRES_URL, connect_timeout=3).close()
        except psycopg.OperationalError as error:
            # Every address that was tried has its own lines; the first one says enough.
            problem = str(error).strip().splitlines()[0]
    return problem and f"PostgreSQL: {problem}; see CRAWLYARD_TEST_POSTGRES_URL"


def redis_problem() -> str:
    """Why Redis cannot be used, or "" when it can."""
    problem = _port_problem(REDIS_URL, 6379)
    if not problem:
        client = redis.Redis.from_url(REDIS_URL, socket_timeout=_CONNECT_SECONDS)
        try:
            client.ping()
        except redis.RedisError as error:
            problem = str(error)
        finally:
            client.close()
    return problem and f"Redis: {problem}; see CRAWLYARD_TEST_REDIS_URL"


def rabbitmq_problem() -> str:
    """Why RabbitMQ cannot be used, or "" when it can."""
    problem = _port_problem(BROKER_URL, 5672)
    if not problem:
        parameters = pika.URLParameters(BROKER_URL)
        parameters.socket_timeout = _CONNECT_SECONDS
        # A node short of memory or disk answers slowly, but it does answer.
        parameters.blocked_connection_timeout = 3
        try:
            pika.BlockingConnection(parameters).close()
        except pika.exceptions.AMQPError as error:
            problem = str(error) or type(error).__name__
    return problem and f"RabbitMQ: {problem}; see CRAWLYARD_TEST_BROKER_URL"


def services_problem() -> str:
    """All of PostgreSQL, Redis and RabbitMQ that is missing, or ""."""
    problems = (postgres_problem(), redis_problem(), rabbitmq_problem())
    return "; ".join(problem for problem in problems if problem)


def docker_problem() -> str:
    """Why there is no Docker Engine, or ""."""
    with contextlib.closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as connection:
        connection.settimeout(_CONNECT_SECONDS)
        try:
            connection.connect(DOCKER_SOCKET)
            connection.sendall(b"GET /_ping HTTP/1.0\r\n\r\n")
            answer = connection.recv(64)
        except OSError as error:
            return f"Docker: {DOCKER_SOCKET} does not answer ({error.strerror or error})"
    if b" 200 " not in answer:
        return f"Docker: {DOCKER_SOCKET} answers {answer!r}"
    return ""


def browser_problem() -> str:
    """Why there is no browser, or ""."""
    if shutil.which(CHROMIUM) is None:
        return f"Chromium: no {CHROMIUM} on PATH (apt-get install chromium)"
    return ""


def kafka_problem() -> str:
    """Why there is no Kafka, or ""; the broker is made of the client's own library."""
    if importlib.util.find_spec("confluent_kafka") is None:
        return "Kafka: the extra is not installed (pip install '.[kafka]')"
    return ""


_PROBES: dict[str, Callable[[], str]] = {
    "services": functools.cache(services_problem),
    "docker": functools.cache(docker_problem),
    "browser": functools.cache(browser_problem),
    "kafka": functools.cache(kafka_problem),
}


def required_kinds() -> frozenset[str]:
    """What CRAWLYARD_REQUIRE says must not be skipped; raises ``UsageError`` for unknown words."""
    words = os.environ.get("CRAWLYARD_REQUIRE", "").replace(",", " ").split()
    unknown = sorted(set(words) - set(_PROBES))
    if unknown:
        raise pytest.UsageError(
            f"CRAWLYARD_REQUIRE: {', '.join(unknown)} is none of {', '.join(_PROBES)}"
        )
    return frozenset(words)


def pytest_configure() -> None:
    """Refuse a mistyped CRAWLYARD_REQUIRE at once, and not by requiring nothing."""
    required_kinds()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip, or fail, before any fixture of the test is made."""
    for kind, probe in _PROBES.items():
        if item.get_closest_marker(kind) is None:
            continue
        problem = probe()
        if problem and kind in required_kinds():
            pytest.fail(f"required by CRAWLYARD_REQUIRE but missing: {problem}", pytrace=False)
        if problem:
            pytest.skip(problem)
