"""A PostgreSQL server for a peer, where the settings name none."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from tools.benches.measuring import BenchFailed

_START_SECONDS: Final = 60


@contextmanager
def own_server() -> Iterator[str | None]:
    """Yield the URL of a new server with default settings; None if PostgreSQL is not installed."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    initdb = str(found[-1]) if found else shutil.which("initdb")
    if initdb is None:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="crawlyard-bench-") as above:
        # The server refuses to be root, and its user must get there.
        Path(above).chmod(0o755)
        folder = Path(above, "postgresql")
        folder.mkdir()
        server = _Server(Path(initdb), folder)
        server.start()
        try:
            yield server.url
        finally:
            server.run("pg_ctl", "-m", "immediate", "-w", "stop")


class _Server:
    def __init__(self, initdb: Path, folder: Path) -> None:
        self._initdb = initdb
        self._folder = folder
        self._user: dict[str, Any] = {}
        if os.geteuid() == 0:
            self._user = {"user": "postgres", "group": "postgres", "extra_groups": []}
            shutil.chown(folder, "postgres", "postgres")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = free.getsockname()[1]
        self.url = f"postgresql://postgres@127.0.0.1:{self._port}/postgres"

    def start(self) -> None:
        self.run("initdb", "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8")
        options = (
            f"-c listen_addresses=127.0.0.1 -c port={self._port}"
            f" -c unix_socket_directories={self._folder}"
        )
        log = str(self._folder / "log")
        self.run("pg_ctl", "-l", log, "-w", "-t", str(_START_SECONDS), "-o", options, "start")

    def run(self, program: str, *words: str) -> None:
        done = subprocess.run(
            [str(self._initdb.with_name(program)), "-D", str(self._folder / "data"), *words],
            cwd=self._folder,
            env={"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=False,
            **self._user,
        )
        if done.returncode:
            raise BenchFailed(f"{program} ended with status {done.returncode}")
