"""A MongoDB for tests: SecantusDB, which speaks its protocol, in a process of its own.

It is one of the test requirements, and no mongod: it looks through whole collections for what a
mongod finds by an index, so tests keep theirs small, and take no measure of speed from it.
``CRAWLYARD_TEST_MONGODB_URL`` names a real server, best a replica set, to be used in its place.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from pymongo import MongoClient

_REAL_URL_NAME = "CRAWLYARD_TEST_MONGODB_URL"
REAL_URL = os.environ.get(_REAL_URL_NAME, "")
# Not its own program, which does not let one choose how often it deletes what has expired. It ends
# with its input, so that none outlives a test session that was killed.
_SERVER = """
import os
import sys
from secantus.server import SecantusDBServer

port, folder, sweep_seconds, durable = sys.argv[1:]
server = SecantusDBServer(
    port=int(port),
    storage_path=folder,
    ttl_sweep_seconds=float(sweep_seconds),
    cache_size="64M",
    durable=durable == "True",
    enable_test_commands=True,
)
server.start()
print("ready", flush=True)
sys.stdin.read()
os._exit(0)
"""


class MongoServer:
    """One server; ``url`` is its address. A real one cannot be killed, or made to hang."""

    def __init__(
        self,
        url: str = "",
        folder: Path | None = None,
        sweep_seconds: float = 3600.0,
        durable: bool = True,
    ) -> None:
        self.is_real = bool(url)
        self.url = url
        self._folder = folder
        self._sweep_seconds = sweep_seconds
        self._durable = durable
        self._process: subprocess.Popen[str] | None = None
        if not url:
            if sys.version_info >= (3, 14) and find_spec("secantus") is None:
                version = ".".join(map(str, sys.version_info[:2]))
                pytest.skip(f"SecantusDB has no wheel for Python {version}: set {_REAL_URL_NAME}")
            with socket.create_server(("127.0.0.1", 0)) as free:
                self._port = free.getsockname()[1]
            self.url = f"mongodb://127.0.0.1:{self._port}/?replicaSet=secantus"
            self.start()

    def start(self) -> None:
        """At its address, with what it had on disk."""
        arguments = (self._port, self._folder, self._sweep_seconds, self._durable)
        self._process = subprocess.Popen(
            [sys.executable, "-c", _SERVER, *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n", "SecantusDB did not start"

    def stop(self) -> None:
        """Kills it."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate(timeout=20)
            self._process = None

    def connect(self) -> MongoClient[dict[str, object]]:
        """A client of other make."""
        return MongoClient(self.url, serverSelectionTimeoutMS=2000, connectTimeoutMS=2000)

    def forget(self, prefix: str) -> None:
        """Drop the databases whose names begin so."""
        with self.connect() as client:
            for name in client.list_database_names():
                if name.startswith(prefix):
                    client.drop_database(name)


@contextlib.contextmanager
def lend_mongodb(sweep_seconds: float = 3600.0, durable: bool = True) -> Iterator[MongoServer]:
    """A server of one's own, for tests that stop it; so often it looks what has expired.

    ``durable``: what it has survives its being killed.
    """
    with tempfile.TemporaryDirectory() as folder:
        server = MongoServer(folder=Path(folder), sweep_seconds=sweep_seconds, durable=durable)
        try:
            yield server
        finally:
            server.stop()


@pytest.fixture(scope="session")
def mongodb_server() -> Iterator[MongoServer]:
    """One for the whole session, started by the first test that wants it."""
    if REAL_URL:
        yield MongoServer(REAL_URL)
        return
    with lend_mongodb(durable=False) as server:
        yield server


@pytest.fixture
def mongodb(mongodb_server: MongoServer) -> str:
    """The address of a MongoDB that tests share: databases need names of their own."""
    return mongodb_server.url


@pytest.fixture
def mongodb_prefix(mongodb_server: MongoServer) -> Iterator[str]:
    """What the databases of one test begin with; they are dropped after it."""
    prefix = f"cyt{secrets.token_hex(4)}"
    yield prefix
    mongodb_server.forget(prefix)
