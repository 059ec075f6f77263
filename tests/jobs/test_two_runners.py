"""Two runners on PostgreSQL and RabbitMQ share the work; then one of them dies."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.jobs.runner_processes import WAITS, Yard
from tests.plugins.measurements import Measured

pytestmark = [pytest.mark.services, pytest.mark.fault, pytest.mark.timeout(240)]

QUICK = (
    "import os, pathlib, time\n"
    "with open(os.environ['CRAWLYARD_RUN_DIR'] + '/starts', 'a') as starts: starts.write('x')\n"
    "time.sleep(0.2)\n"
)
CAPACITY = {"one": 2, "two": 3}


@pytest.fixture
def yard(
    tmp_path_factory: pytest.TempPathFactory, postgres_database: str, new_rabbit_vhost: str
) -> Iterator[Yard]:
    yard = Yard(
        tmp_path_factory.mktemp("two"), DATABASE_URL=postgres_database, BROKER_URL=new_rabbit_vhost
    )
    yield yard
    yard.end()


@pytest.mark.covers("S1.54")
def test_each_run_starts_once_on_a_host_with_room_and_outlives_a_killed_one(
    yard: Yard, measured: Measured
) -> None:
    for name, capacity in CAPACITY.items():
        yard.start_runner(name, capacity=capacity)
    yard.until(lambda: set(yard.ask("hosts")) == set(CAPACITY), "both hosts")
    runs = yard.start_many(QUICK, 20)
    for run in runs:
        look = yard.until_state(run, "exited", "failed", "lost", "cancelled")
        assert (look["state"], yard.starts(run)) == ("exited", 1), look
    times = yard.ask("times", runs=runs)
    assert {host for host, _start, _end in times} == set(CAPACITY)
    for name, capacity in CAPACITY.items():
        here = [(start, end) for host, start, end in times if host == name]
        assert max(sum(a <= start < b for a, b in here) for start, _end in here) <= capacity
    # One dies: what waits for a place goes to the other one.
    held = yard.start_many(WAITS, 5)
    for run in held:
        yard.until_state(run, "running")
    waiting = yard.start(QUICK)
    yard.until(lambda: "run slots are in use" in yard.look(waiting)["waits"], "the reason", waiting)
    yard.kill_runner("two")
    for run in held:
        if yard.look(run)["host"] == "one":
            yard.let_go(run)
    look = yard.until_state(waiting, "exited", "failed", "lost", "cancelled")
    assert (look["state"], look["host"]) == ("exited", "one")
    # It comes back, and finds its own.
    yard.start_runner("two", capacity=3)
    for run in held:
        yard.let_go(run)
    ends = [yard.until_state(run, "exited", "failed", "lost", "cancelled") for run in held]
    measured(**yard.counted(*runs, waiting, *held))
    for run, look in zip(held, ends, strict=True):
        assert (look["state"], yard.starts(run)) == ("exited", 1), look
