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
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pymongo import MongoClient
from pymongo.errors import PyMongoError

REAL_URL = os.environ.get("CRAWLYARD_TEST_MONGODB_URL", "")
_START_SECONDS = 60.0
# It ends with its input, so that none outlives a test session that was killed.
_WATCHED = """
import os, signal, subprocess, sys
server = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL)
for name in ("SIGTERM", "SIGINT"):
    signal.signal(getattr(signal, name), lambda *_: server.kill())
print(server.pid, flush=True)
sys.stdin.read()
server.kill()
server.wait()
"""


class MongoServer:
    """One server; ``url`` is its address. A real one cannot be killed, or made to hang."""

    def __init__(self, url: str = "", folder: Path | None = None) -> None:
        self.is_real = bool(url)
        self.url = url
        self._folder = folder
        self._process: subprocess.Popen[str] | None = None
        self.pid = 0
        if not url:
            with socket.create_server(("127.0.0.1", 0)) as free:
                self._port = free.getsockname()[1]
            self.url = f"mongodb://127.0.0.1:{self._port}/?replicaSet=secantus"
            self.start()

    def start(self) -> None:
        """Where its address was, empty unless it has a folder."""
        assert self._folder is not None
        command = [
            str(Path(sys.executable).with_name("secantusd-py")),
            *("--host", "127.0.0.1", "--port", str(self._port), "--log-level", "ERROR"),
            *("--storage-path", ":memory:", "--cache-size", "64M", "--enable-test-commands"),
        ]
        self._process = subprocess.Popen(
            [sys.executable, "-c", _WATCHED, *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            # It looks for a file of settings where it starts.
            cwd=self._folder,
            start_new_session=True,
        )
        assert self._process.stdout is not None
        self.pid = int(self._process.stdout.readline())
        deadline = time.monotonic() + _START_SECONDS
        while True:
            with contextlib.suppress(PyMongoError), self.connect() as client:
                client.admin.command("ping")
                return
            assert time.monotonic() < deadline, "SecantusDB did not start"

    def stop(self) -> None:
        """As if killed."""
        if self._process is not None:
            self._process.communicate("", timeout=20)
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
def lend_mongodb() -> Iterator[MongoServer]:
    """A server of one's own, for tests that stop it."""
    with tempfile.TemporaryDirectory() as folder:
        server = MongoServer(folder=Path(folder))
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
    with lend_mongodb() as server:
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
