"""Signs of life, at a real socket, in a real file, and the check that reads it."""

from __future__ import annotations

import contextlib
import http.server
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from yardkit import alive
from yardkit.heartbeat import Beat, read_beat, write_beat
from yardkit.liveness import FILE_SETTING, LivenessReporter

PLATFORM = Path(__file__).parents[2] / "platform"
PROGRAM = """
import sys, time
from yardkit.daemon import Options, run

class Yard:
    def setup(self): pass
    def step(self):
        MODE
        return False
    def teardown(self): pass

sys.exit(run(Yard(), Options(name="run_yard", poll_seconds=0.05, heartbeat_seconds=0.1)))
"""


class Supervisor:
    """The listening side of sd_notify(3)."""

    def __init__(self, path: Path) -> None:
        self.path = str(path / "notify")
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(self.path)
        self.socket.settimeout(20)

    def next(self) -> list[str]:
        return self.socket.recv(4096).decode().splitlines()

    def until(self, word: str) -> list[list[str]]:
        seen: list[list[str]] = []
        while not seen or word not in seen[-1]:
            seen.append(self.next())
        return seen


@pytest.fixture
def supervisor(tmp_path: Path) -> Iterator[Supervisor]:
    found = Supervisor(tmp_path)
    yield found
    found.socket.close()


def test_without_a_supervisor_nothing_is_told(tmp_path: Path) -> None:
    life = LivenessReporter.take("x", {})
    life.ready()
    life.feed(now=True)
    life.stopping()
    assert list(tmp_path.iterdir()) == []


def test_what_is_told_in_its_order(supervisor: Supervisor) -> None:
    life = LivenessReporter.take("x", {"NOTIFY_SOCKET": supervisor.path})
    life.ready()
    life.feed("failing", "OSError: two\nlines", now=True)
    life.stopping()
    assert supervisor.next() == ["READY=1"]
    assert supervisor.next() == ["WATCHDOG=1", "STATUS=running"]
    assert supervisor.next() == ["WATCHDOG=1", "STATUS=failing: OSError: two lines"]
    assert supervisor.next() == ["STOPPING=1", "STATUS=stopping"]


def test_a_socket_without_a_file(tmp_path: Path) -> None:
    name = f"crawlyard-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(f"\0{name}")
        listener.settimeout(5)
        LivenessReporter.take("x", {"NOTIFY_SOCKET": f"@{name}"}).ready()
        assert listener.recv(100) == b"READY=1"


def test_it_is_not_handed_on_to_children() -> None:
    environ = {"NOTIFY_SOCKET": "/x", "WATCHDOG_USEC": "1", FILE_SETTING: "/y", "PATH": "/bin"}
    LivenessReporter.take("x", environ)
    assert environ == {"PATH": "/bin"}


def test_a_supervisor_that_is_away_or_does_not_read_stops_nothing(
    tmp_path: Path, supervisor: Supervisor
) -> None:
    LivenessReporter.take("x", {"NOTIFY_SOCKET": str(tmp_path / "nobody")}).ready()
    LivenessReporter.take("x", {FILE_SETTING: "/proc/nowhere/file"}).ready()
    life = LivenessReporter.take("x", {"NOTIFY_SOCKET": supervisor.path})
    for _ in range(2000):
        life.feed(now=True)


def start(mode: str, **environment: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM.replace("MODE", mode)],
        env={"PYTHONPATH": str(PLATFORM), **environment},
        stderr=subprocess.DEVNULL,
    )


def test_a_daemon_tells_from_its_start_to_its_end(tmp_path: Path, supervisor: Supervisor) -> None:
    file = tmp_path / "alive"
    process = start("pass", NOTIFY_SOCKET=supervisor.path, **{FILE_SETTING: str(file)})
    try:
        assert ["READY=1"] in supervisor.until("READY=1")
        for _ in range(3):
            supervisor.until("WATCHDOG=1")
        assert alive.check_file(file) == ""
        process.send_signal(signal.SIGTERM)
        supervisor.until("STOPPING=1")
        assert process.wait(10) == 0
    finally:
        process.kill()
        process.wait()
    assert alive.check_file(file) == "run_yard: stopped"


@pytest.mark.slow("1 s")
def test_a_daemon_that_hangs_in_a_step_tells_nothing(
    tmp_path: Path, supervisor: Supervisor
) -> None:
    file = tmp_path / "alive"
    process = start("time.sleep(60)", NOTIFY_SOCKET=supervisor.path, **{FILE_SETTING: str(file)})
    try:
        supervisor.until("READY=1")
        supervisor.socket.settimeout(1.0)
        # What had been sent before the step began is there at once, and then nothing comes.
        with contextlib.suppress(TimeoutError):
            for _ in range(100):
                supervisor.next()
            pytest.fail("it goes on telling")
        assert process.poll() is None
        assert alive.check_file(file, oldest_seconds=0.5) != ""
    finally:
        process.kill()
        process.wait()


# --- the check of a container -------------------------------------------------------------------


def beat(at: float, state: str = "running") -> Beat:
    return Beat(name="center", boot="", host="h", pid=1, state=state, at=at)


def test_the_check_of_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "alive"
    environ = {FILE_SETTING: str(file)}
    assert alive.main([], {}) == 1
    assert alive.main([], environ) == 1
    write_beat(file, beat(time.time() - 61))
    assert alive.main([], environ) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "center: last sign of life 61 s ago"
    write_beat(file, beat(time.time(), "stopped"))
    assert alive.main([], environ) == 1
    write_beat(file, beat(time.time(), "failing"))
    assert alive.main([], environ) == 0
    file.write_bytes(b"{")
    assert read_beat(file) is None
    assert alive.main([], environ) == 1


def test_the_check_of_an_address() -> None:
    class Answers(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path == "/healthz" else 503)
            self.end_headers()

        def log_message(self, *arguments: object) -> None:
            """Quietly."""

    with http.server.HTTPServer(("127.0.0.1", 0), Answers) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        base = f"http://127.0.0.1:{server.server_port}"
        assert alive.check_address(f"{base}/healthz") == ""
        assert alive.check_address(f"{base}/readyz").endswith("answers 503")
        server.shutdown()
        thread.join()
    assert "refused" in alive.check_address(f"{base}/healthz")
