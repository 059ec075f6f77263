"""A PostgreSQL server of a test's own, to be stopped, crashed and made to read only at will."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.e2e.demo_process import free_port
from tests.plugins.markers import required_kinds
from tests.plugins.migrated_databases import migrate

_FOUND = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
INITDB = str(_FOUND[-1]) if _FOUND else shutil.which("initdb") or ""
# What a crash of the machine would cost does not matter: only the server crashes.
_OPTIONS = "-c listen_addresses=127.0.0.1 -c max_connections=200 -c fsync=off"


class PostgresNode:
    """Its own data and port. What it has confirmed outlives any stop, as on any server."""

    def __init__(self, folder: Path) -> None:
        """``folder``: new, and where the server's user may go."""
        self.folder = folder
        self.port = free_port()
        self.url = f"postgresql://postgres@127.0.0.1:{self.port}/postgres"
        # The server refuses to be root.
        self._as: dict[str, Any] = {}
        if os.geteuid() == 0:
            self._as = {"user": "postgres", "group": "postgres", "extra_groups": []}
            shutil.chown(folder, "postgres", "postgres")
        words = ("-U", "postgres", "-A", "trust", "--no-sync", "-E", "UTF8", "--locale=C.UTF-8")
        self._run("initdb", *words)

    def start(self) -> None:
        """Returns once it takes connections, after a crash when it has recovered."""
        said = f"{_OPTIONS} -c port={self.port} -c unix_socket_directories={self.folder}"
        words = ("-l", str(self.folder / "log"), "-w", "-t", "120", "-o", said)
        self._run("pg_ctl", *words, "start")

    def stop(self, mode: str = "fast") -> None:
        """``immediate`` is a crash: it says goodbye to nobody, and recovers when it starts."""
        self._run("pg_ctl", "-m", mode, "-w", "-t", "120", "stop")

    def only_read(self, *, on: bool) -> None:
        """As a standby does, for each transaction that begins from now on."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            value = "on" if on else "off"
            connection.execute(f"ALTER SYSTEM SET default_transaction_read_only = {value}")
            connection.execute("SELECT pg_reload_conf()")

    def _run(self, program: str, *words: str) -> None:
        with (self.folder.parent / f"{self.folder.name}.txt").open("ab") as output:
            done = subprocess.run(
                [str(Path(INITDB).with_name(program)), "-D", str(self.folder / "data"), *words],
                cwd=self.folder,
                env={"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                check=False,
                **self._as,
            )
        said = Path(output.name).read_text(errors="replace")[-2000:]
        assert done.returncode == 0, f"{program} {words}: {said}"


@contextlib.contextmanager
def lend_postgres_node() -> Iterator[PostgresNode]:
    """One that takes connections, its database as ``migrate`` leaves it."""
    if not INITDB:
        problem = "PostgreSQL: no initdb on this machine to make a server of our own with"
        if "services" in required_kinds():
            pytest.fail(problem, pytrace=False)
        pytest.skip(problem)
    with tempfile.TemporaryDirectory() as above:
        # pytest's own folders are for nobody but who runs it.
        Path(above).chmod(0o755)
        folder = Path(above, "node")
        folder.mkdir()
        node = PostgresNode(folder)
        node.start()
        try:
            migrate(Path(above, "data"), DATABASE_URL=node.url)
            yield node
        finally:
            with contextlib.suppress(AssertionError):
                node.stop("immediate")
