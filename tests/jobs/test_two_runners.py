"""Two runners on PostgreSQL and RabbitMQ share the work; then one of them dies."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.jobs.runner_processes import WAITS, RunnerHarness
from tests.plugins.measurements import Measured

pytestmark = [pytest.mark.services, pytest.mark.fault, pytest.mark.timeout(240)]

QUICK = (
    "import os, pathlib, time\n"
    "with open(os.environ['CRAWLYARD_RUN_DIR'] + '/starts', 'a') as starts: starts.write('x')\n"
    "time.sleep(0.2)\n"
)
CAPACITY = {"one": 2, "two": 3}


@pytest.fixture
def harness(
    tmp_path_factory: pytest.TempPathFactory, postgres_database: str, new_rabbit_vhost: str
) -> Iterator[RunnerHarness]:
    harness = RunnerHarness(
        tmp_path_factory.mktemp("two"), DATABASE_URL=postgres_database, BROKER_URL=new_rabbit_vhost
    )
    yield harness
    harness.end()


@pytest.mark.covers("S1.54")
def test_each_run_starts_once_on_a_host_with_room_and_outlives_a_killed_one(
    harness: RunnerHarness, measured: Measured
) -> None:
    for name, capacity in CAPACITY.items():
        harness.start_runner(name, capacity=capacity)
    harness.until(lambda: set(harness.ask("hosts")) == set(CAPACITY), "both hosts")
    runs = harness.start_many(QUICK, 20)
    for run in runs:
        look = harness.until_state(run, "exited", "failed", "lost", "cancelled")
        assert (look["state"], harness.starts(run)) == ("exited", 1), look
    times = harness.ask("times", runs=runs)
    assert {host for host, _start, _end in times} == set(CAPACITY)
    for name, capacity in CAPACITY.items():
        here = [(start, end) for host, start, end in times if host == name]
        assert max(sum(a <= start < b for a, b in here) for start, _end in here) <= capacity
    # One dies: what waits for a place goes to the other one.
    held = harness.start_many(WAITS, 5)
    for run in held:
        harness.until_state(run, "running")
    waiting = harness.start(QUICK)
    harness.until(
        lambda: "run slots are in use" in harness.look(waiting)["waits"], "the reason", waiting
    )
    harness.kill_runner("two")
    for run in held:
        if harness.look(run)["host"] == "one":
            harness.let_go(run)
    look = harness.until_state(waiting, "exited", "failed", "lost", "cancelled")
    assert (look["state"], look["host"]) == ("exited", "one")
    # It comes back, and finds its own.
    harness.start_runner("two", capacity=3)
    for run in held:
        harness.let_go(run)
    ends = [harness.until_state(run, "exited", "failed", "lost", "cancelled") for run in held]
    measured(**harness.counted(*runs, waiting, *held))
    for run, look in zip(held, ends, strict=True):
        assert (look["state"], harness.starts(run)) == ("exited", 1), look
