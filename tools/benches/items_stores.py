"""Installations of the bench of items, each empty and with settings of its own."""

from __future__ import annotations

import importlib.util
import secrets
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit, urlunsplit

from django.conf import settings

from tools.benches.measuring import BenchFailed, module
from tools.benches.router_stores import own_database, virtual_host
from yardkit.objects import open_objects

# Of what the bench's own process is given, nothing is meant.
_NAMES: Final = (
    *("DATABASE_URL", "BROKER_URL", "REDIS_URL", "REQUESTS_URL", "LOGS_URL", "OBJECTS_URL"),
    *("OBJECTS_ACCESS_KEY", "OBJECTS_SECRET_KEY", "ICEBERG_CATALOG_URL"),
)
_START_SECONDS: Final = 30.0


@contextmanager
def installation(*, servers: bool) -> Iterator[dict[str, str]]:
    """Yield the settings of a new one; it is removed afterwards.

    ``servers``: on PostgreSQL, RabbitMQ and S3 of the settings; without a bucket on moto.

    Raises:
        BenchFailed: a server is missing.
    """
    folder = Path(tempfile.mkdtemp(prefix="crawlyard-bench-"))
    environment = dict.fromkeys(_NAMES, "") | {"CRAWLYARD_DATA": str(folder)}
    try:
        with ExitStack() as stack:
            if servers:
                prefix = f"crawlyard_bench_{secrets.token_hex(4)}"
                environment |= {
                    "DATABASE_URL": stack.enter_context(own_database(prefix)),
                    "BROKER_URL": stack.enter_context(virtual_host(prefix)),
                    **stack.enter_context(_bucket(prefix)),
                }
            yield environment
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def check_servers() -> None:
    """Raise ``BenchFailed`` if a server is not configured."""
    for name, schemes in (
        ("DATABASE_URL", ("postgres://", "postgresql://")),
        ("BROKER_URL", ("amqp://", "amqps://")),
    ):
        if not getattr(settings, name).startswith(schemes):
            raise BenchFailed(f"{name} must be {schemes[0]}... with --engines configured")


@contextmanager
def _bucket(prefix: str) -> Iterator[dict[str, str]]:
    keys = {
        "OBJECTS_ACCESS_KEY": settings.OBJECTS_ACCESS_KEY,
        "OBJECTS_SECRET_KEY": settings.OBJECTS_SECRET_KEY,
    }
    if not settings.OBJECTS_URL.startswith("s3://"):
        with _moto() as url:
            yield {**keys, "OBJECTS_URL": url, **dict.fromkeys(keys, "testing")}
        return
    parts = urlsplit(settings.OBJECTS_URL)
    url = urlunsplit(parts._replace(path=f"{parts.path.rstrip('/')}/{prefix}"))
    store = open_objects(
        url, access_key=keys["OBJECTS_ACCESS_KEY"], secret_key=keys["OBJECTS_SECRET_KEY"]
    )
    try:
        yield {**keys, "OBJECTS_URL": url}
    finally:
        store.delete([info.key for info in store.list("")])


@contextmanager
def _moto() -> Iterator[str]:
    """Yield the URL of a bucket on moto's server, which keeps objects in memory."""
    if importlib.util.find_spec("moto") is None:
        raise BenchFailed("OBJECTS_URL must be s3://... with --engines configured, or install moto")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen(
        module("moto.server", "-H", "127.0.0.1", "-p", str(port)),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        url = f"s3://crawlyard?endpoint=http://127.0.0.1:{port}"
        _create_bucket(f"http://127.0.0.1:{port}")
        yield url
    finally:
        process.terminate()
        process.wait(_START_SECONDS)


def _create_bucket(endpoint: str) -> None:
    # Moto takes it unsigned.
    url = f"{endpoint}/crawlyard"
    request = urllib.request.Request(url, method="PUT")  # noqa: S310 - of this process
    deadline = time.monotonic() + _START_SECONDS
    while True:
        try:
            urllib.request.urlopen(request, timeout=5).close()  # noqa: S310
        except OSError as error:
            if time.monotonic() > deadline:
                raise BenchFailed(f"moto does not start: {error}") from error
            time.sleep(0.2)
        else:
            return
