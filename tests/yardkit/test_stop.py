"""yardkit.stop, with real signals in real processes."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from yardkit.stop import Stop

PLATFORM = Path(__file__).parents[2] / "platform"

WAITER = """
import sys
from yardkit.stop import Stop
with Stop() as stop:
    print("ready", flush=True)
    stopped = stop.wait(60)
    print("stopped", stopped, stop.signal_name, flush=True)
    if len(sys.argv) > 1:
        sys.stdin.read()
"""

ASYNC_WAITER = """
import asyncio, sys
from yardkit.stop import stop_event
async def main():
    event = stop_event(asyncio.get_running_loop())
    print("ready", flush=True)
    await asyncio.wait_for(event.wait(), 60)
    print("stopped", flush=True)
    if len(sys.argv) > 1:
        await asyncio.sleep(60)
if "uvloop" in sys.argv:
    import uvloop
    uvloop.run(main())
else:
    asyncio.run(main())
"""

# A parent that is killed while its child lives on, as a supervisor may be.
ORPHAN_MAKER = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", sys.argv[1]], stdout=subprocess.PIPE, text=True)
print(child.pid, child.stdout.readline().strip(), flush=True)
time.sleep(60)
"""
ORPHAN = """
import time
from yardkit.stop import Stop, die_with_parent
with Stop() as stop:
    print(die_with_parent(), flush=True)
    stop.wait(60)
"""


def start(source: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", source, *arguments],
        env=os.environ | {"PYTHONPATH": str(PLATFORM)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # Whoever was started in the background of a shell ignores Ctrl-C, and so do its children.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def finish(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    output, errors = process.communicate(timeout=30)
    return process.returncode, output, errors


@pytest.mark.slow("1 s")
@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_wait(signum: signal.Signals) -> None:
    process = start(WAITER)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signum)
    status, output, errors = finish(process)
    assert status == 0
    assert output == f"stopped True {signum.name}\n"
    assert errors == ""


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_kills_quietly(signum: signal.Signals) -> None:
    process = start(WAITER, "linger")
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signum)
    assert process.stdout.readline().startswith("stopped")
    process.send_signal(signum)
    status = process.wait(30)
    _, _, errors = finish(process)
    assert status == -signum
    assert errors == ""


@pytest.mark.slow("3 s")
@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_the_event_for_asyncio(signum: signal.Signals, loop: str) -> None:
    process = start(ASYNC_WAITER, "linger", loop)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signum)
    assert process.stdout.readline() == "stopped\n"
    process.send_signal(signum)
    status, _, errors = finish(process)
    assert status == -signum
    assert errors == ""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux tells of a parent")
def test_a_child_dies_with_its_parent() -> None:
    parent = start(ORPHAN_MAKER, ORPHAN)
    assert parent.stdout is not None
    child, said = parent.stdout.readline().split()
    assert said == "True"
    parent.kill()
    finish(parent)
    deadline = time.monotonic() + 30
    while Path(f"/proc/{child}/cmdline").exists() and time.monotonic() < deadline:
        state = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[0]
        if state == "Z":
            break
        time.sleep(0.02)
    else:
        assert time.monotonic() < deadline, "the child outlived its parent"


@pytest.mark.slow("2 s")
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux tells of a parent")
@pytest.mark.parametrize(
    ("told", "status"),
    [("", 0), ("0", 0), ("1", 0), (str(os.getpid()), 0), (str(2**22 + 1), -signal.SIGTERM)],
    # Its own pid in a name would differ between the processes that share the tests.
    ids=["none", "zero", "init", "own parent", "nobody"],
)
def test_a_child_whose_parent_was_gone_before_it_asked_ends_at_once(told: str, status: int) -> None:
    source = (
        "import sys; from yardkit.stop import die_with_parent_if_asked;"
        "die_with_parent_if_asked({'CRAWLYARD_DIE_WITH_PARENT': sys.argv[1]})"
    )
    assert finish(start(source, told)) == (status, "", "")


def test_request_wakes_a_waiting_thread() -> None:
    stop = Stop()
    woken: list[bool] = []
    thread = threading.Thread(target=lambda: woken.append(stop.wait(60)))
    thread.start()
    stop.request()
    thread.join(30)
    assert woken == [True]
    assert stop.requested
    assert stop.signal_name == ""
    stop.close()


def test_wait_without_a_request_ends_in_time() -> None:
    stop = Stop()
    assert stop.wait(0) is False
    assert stop.wait(0.01) is False
    stop.close()


def test_old_handlers_come_back() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with Stop():
        assert signal.getsignal(signal.SIGTERM) != before
    assert signal.getsignal(signal.SIGTERM) == before


async def test_the_pipe_can_be_watched_by_a_loop() -> None:
    stop = Stop()
    seen = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_reader(stop.fileno(), seen.set)
    stop.request()
    await asyncio.wait_for(seen.wait(), 30)
    loop.remove_reader(stop.fileno())
    stop.close()
