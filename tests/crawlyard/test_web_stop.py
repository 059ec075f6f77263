"""A web process that is told to stop: what has reached it is answered, what has not is refused."""

from __future__ import annotations

import signal
import socket
import time
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPException
from pathlib import Path

import pytest

from crawlyard.web import DRAIN_SECONDS
from tests.e2e.daemon_processes import Daemons
from tests.e2e.demo_process import free_port

REQUEST = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.fixture
def daemons(tmp_path: Path) -> Iterator[Daemons]:
    found = Daemons(tmp_path)
    found.migrate()
    yield found
    found.end()


def serve(daemons: Daemons) -> int:
    """Start one; its port."""
    port = free_port()
    daemons.start("web", "run_web", "--port", str(port))
    daemons.until_logged("web", "Uvicorn running")
    return port


@pytest.mark.slow("4 s")
def test_no_call_that_has_reached_it_is_cut_off(daemons: Daemons) -> None:
    port = serve(daemons)
    kept = HTTPConnection("127.0.0.1", port, timeout=20)
    kept.request("GET", "/healthz")
    assert kept.getresponse().read() is not None
    process = daemons.processes["web"]
    # Whatever comes now lies in the kernel when the signal is seen: the worst moment of all.
    process.send_signal(signal.SIGSTOP)
    waiting = [socket.create_connection(("127.0.0.1", port), timeout=20) for _ in range(8)]
    for each in waiting:
        each.sendall(REQUEST)
    kept.request("GET", "/healthz")
    process.send_signal(signal.SIGTERM)
    process.send_signal(signal.SIGCONT)
    for each in waiting:
        with each:
            answer = each.recv(4096)
        assert answer.startswith(b"HTTP/1.1 200 "), answer
    assert kept.getresponse().status == 200
    kept.close()
    assert process.wait(20) == -signal.SIGTERM
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=5)
    assert "Traceback" not in daemons.log("web")
    del daemons.processes["web"]


@pytest.mark.slow("4 s")
def test_a_kept_connection_is_told_to_end_with_its_next_answer(daemons: Daemons) -> None:
    for _ in range(5):
        kept = HTTPConnection("127.0.0.1", serve(daemons), timeout=20)
        kept.request("GET", "/healthz")
        answer = kept.getresponse()
        answer.read()
        assert answer.getheader("Connection") is None
        told_at = time.monotonic()
        daemons.processes["web"].send_signal(signal.SIGTERM)
        said = _next_answer(kept)
        # On a busy machine its time may be over before it is asked, and that says nothing.
        if time.monotonic() - told_at < DRAIN_SECONDS:
            assert said == (200, "close")
            return
        daemons.processes.pop("web").wait(20)
    pytest.fail("this machine is too busy to ask within the time")


def _next_answer(kept: HTTPConnection) -> tuple[int, str | None] | None:
    """The first one that comes once new connections are refused; None where it is cut off."""
    while True:
        try:
            socket.create_connection((kept.host, kept.port), timeout=5).close()
        except ConnectionRefusedError:
            break
    try:
        kept.request("GET", "/healthz")
        answer = kept.getresponse()
    except (OSError, HTTPException):
        return None
    return answer.status, answer.getheader("Connection")
