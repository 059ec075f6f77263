"""Each kind of process tells its supervisor that it is ready, goes on, and ends."""

from __future__ import annotations

import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.daemon_processes import Daemons
from yardkit import alive
from yardkit.liveness import FILE_SETTING

pytestmark = pytest.mark.slow("daemons as processes")


@pytest.fixture
def daemons(tmp_path: Path) -> Iterator[Daemons]:
    found = Daemons(tmp_path)
    found.migrate()
    yield found
    found.end()


# One of each way to run: yardkit's loop, uvicorn's, Celery's, an event loop, the supervisor of all.
@pytest.mark.parametrize(
    "command",
    [
        ("run_center",),
        ("run_web", "--port", "0"),
        ("run_worker",),
        ("run_agent", "--name", "a"),
        ("up", "--port", "0", "--agents", "0"),
    ],
    ids=lambda command: command[0],
)
def test_it_tells_from_its_start_to_its_end(
    daemons: Daemons, tmp_path: Path, command: tuple[str, ...]
) -> None:
    file = tmp_path / "alive"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as supervisor:
        supervisor.bind(str(tmp_path / "notify"))
        supervisor.settimeout(60)
        name = command[0]
        daemons.start(
            name, *command, NOTIFY_SOCKET=str(tmp_path / "notify"), **{FILE_SETTING: str(file)}
        )
        told: list[str] = []
        while "READY=1" not in told:
            told += supervisor.recv(4096).decode().splitlines()
        while told[-2:] != ["WATCHDOG=1", "STATUS=running"]:
            told += supervisor.recv(4096).decode().splitlines()
        assert alive.check_file(file) == ""
        daemons.stop(name, signal.SIGTERM)
        while "STOPPING=1" not in told:
            told += supervisor.recv(4096).decode().splitlines()
    # Nobody else tells in its name.
    assert told.count("READY=1") == told.count("STOPPING=1") == 1
    assert alive.check_file(file).endswith("stopped")
