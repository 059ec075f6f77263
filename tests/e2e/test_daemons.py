"""Every daemon on its own: it starts, says so, works with the others, and stops in time."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.e2e.counting_site import CountingSite, tree
from tests.e2e.daemon_processes import Daemons
from tests.e2e.demo_process import free_port

COMMANDS = {
    "center": ("run_center",),
    "runner": ("run_runner",),
    "statistics": ("run_statistics",),
    "agent-1": ("run_agent", "--id", "solo-1", "--name", "solo-1"),
    "agent-2": ("run_agent", "--id", "solo-2", "--name", "solo-2"),
}
READY = {"agent-1": "serves", "agent-2": "serves"}
# Makes the job and waits for the end of its run, in a process like any other.
CRAWL = """
import json, sys, time
from crawlyard.demo import job as demo
run = demo.start(job=demo.make_job(url=sys.argv[1], name="single daemons"))
deadline = time.monotonic() + 90
while not (end := demo.look(run.pk)).over and time.monotonic() < deadline:
    time.sleep(0.1)
print(json.dumps(end.report()))
"""


@pytest.fixture(
    params=[
        pytest.param("embedded", marks=pytest.mark.twin),
        pytest.param("services", marks=pytest.mark.services),
    ]
)
def daemons(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Daemons]:
    environment = {}
    if request.param == "services":
        environment = {
            "DATABASE_URL": request.getfixturevalue("postgres_database"),
            "BROKER_URL": request.getfixturevalue("new_rabbit_vhost"),
            "REDIS_URL": request.getfixturevalue("redis_url"),
        }
    daemons = Daemons(tmp_path, **environment)
    daemons.migrate()
    yield daemons
    daemons.end()


def test_single_daemons_crawl_a_site_and_stop_in_time(daemons: Daemons) -> None:
    for name, command in COMMANDS.items():
        daemons.start(name, *command)
    for name in COMMANDS:
        daemons.until_logged(name, READY.get(name, "is running"))
    assert "solo" not in daemons.manage("run_center", "--status").stdout
    with CountingSite(tree(200)) as site:
        done = daemons.manage("shell", "-v0", "-c", _script(site.url))
    report = json.loads(done.stdout.splitlines()[-1])
    assert report["state"] == "exited", report
    assert (report["pages"], report["left"], report["balanced"]) == (201, 0, True)
    assert report["agents"] == 2
    assert max(site.hits.values()) == 1
    signals = [signal.SIGTERM, signal.SIGINT]
    for index, name in enumerate(COMMANDS):
        status, seconds = daemons.stop(name, signals[index % 2])
        assert status == 0, daemons.log(name)
        assert seconds < 5.0, daemons.log(name)
        assert "Traceback" not in daemons.log(name)
    daemons.manage("run_center", "--status", status=1)


def _script(url: str) -> str:
    return CRAWL.replace("sys.argv[1]", repr(url))


@pytest.mark.timeout(300)
def test_up_runs_the_box_and_leaves_nothing_behind(tmp_path: Path) -> None:
    daemons = Daemons(tmp_path)
    port = str(free_port())
    daemons.start("up", "up", "--port", port, "--agents", "1")
    try:
        daemons.until_logged("up", "Uvicorn running")
        daemons.until_logged("up", "agent agent-1 (agent-1) registered")
        assert "First administrator" in daemons.log("up")
        status, seconds = daemons.stop("up", signal.SIGINT)
    finally:
        daemons.end()
    assert status == 0, daemons.log("up")
    assert seconds < 5.0
    assert "Traceback" not in daemons.log("up")


@pytest.mark.fault
@pytest.mark.timeout(300)
def test_a_killed_supervisor_takes_its_children_with_it(tmp_path: Path) -> None:
    daemons = Daemons(tmp_path)
    daemons.migrate()
    process = daemons.start("up", "up", "--port", str(free_port()), "--agents", "1")
    try:
        daemons.until_logged("up", "Uvicorn running")
        children = psutil.Process(process.pid).children(recursive=True)
        assert len(children) >= 5
        process.kill()
        process.wait()
        deadline = time.monotonic() + 10
        while any(child.is_running() for child in children):
            assert time.monotonic() < deadline, [c.cmdline() for c in children if c.is_running()]
            time.sleep(0.05)
    finally:
        daemons.end()
