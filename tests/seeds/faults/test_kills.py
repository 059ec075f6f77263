"""SIGKILL, SIGSTOP and exceptions at every failpoint of the seed service and its store."""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Callable
from functools import partial

import pytest

from tests.e2e.daemon_processes import ROOT
from tests.plugins.measurements import Measured
from tests.seeds.faults.crawl import Crawl, Mender, Running
from tests.seeds.faults.service_processes import DAEMON, FULL, PATIENCE_SECONDS, SeedYard

pytestmark = [pytest.mark.fault, pytest.mark.services, pytest.mark.timeout(3000 if FULL else 400)]

# At which hit: before it something was promised.
STORE = {
    "add": 3,
    "lease": 3,
    "finish": 3,
    "extend": 1,
    "give_back": 1,
    "expire": 1,
    "reopen": 1,
    "forget": 1,
    "reopen_failed": 1,
    "restore": 1,
    "move": 1,
    "drop": 1,
}
OF_STORES = [
    f"seeds.{name}.{when}_write=kill@{hit}"
    for name, hit in STORE.items()
    for when in ("before", "after")
]
# Each of the service's own, and when it is hit.
OF_DAEMON = {
    "seeds.daemon.taken": 5,
    "seeds.daemon.before_lease": 3,
    "seeds.daemon.before_found": 2,
    "seeds.daemon.forgotten": 1,
    "seeds.daemon.committed": 5,
    "seeds.daemon.replied": 5,
    "seeds.daemon.acknowledged": 5,
}
SAVED = "seeds.filter.before_rename"
# Where time is short.
FEW = ["add.after", "lease.after", "finish.before", "finish.after", "extend.after", "expire.after"]

# Where it stands still for longer than a lease, and than whoever waits for a lock of PostgreSQL.
LONG_STOPS = {"seeds.lease.before_write", "seeds.finish.before_write", "seeds.expire.before_write"}
FROZEN_AT = 2

IN_FLIGHT = 100_000 if FULL else 2000
ROUNDS = 20
# What is added in each round.
MORE = 2000 if FULL else 500


def of_daemon() -> list[str]:
    return [f"{name}=kill@{hit}" for name, hit in OF_DAEMON.items()]


def points() -> list[str]:
    few = [one for one in OF_STORES if any(f"seeds.{name}_" in one for name in FEW)]
    # Before a lease is written it is killed as well.
    daemon = [one for one in of_daemon() if FULL or "before_lease" not in one]
    return (OF_STORES if FULL else few) + daemon


def test_every_failpoint_is_tried() -> None:
    found = {
        name
        for part in ("daemon", "engine", "stores")
        for path in (ROOT / "apps" / "seeds" / part).rglob("*.py")
        for name in re.findall(r'failpoints\.hit\(f?"([a-z_.{}]+)"\)', path.read_text("utf-8"))
    }
    of_stores = {"seeds.{name}.before_write", "seeds.{name}.after_write"}
    assert found == {*of_stores, *OF_DAEMON, SAVED}


@pytest.mark.covers("S3.1", "S3.15", "S3.16", "S3.18")
def test_no_seed_is_lost_or_ended_twice_wherever_the_service_dies(
    yard: SeedYard, measured: Measured
) -> None:
    crawl = Crawl(yard, yard.frontier())
    mender = Mender(yard, yard.frontier())
    yard.start_serving(crawl.frontier)
    crawl.add(2 * IN_FLIGHT)
    # So many stay leased all the time.
    most = min(IN_FLIGHT, 5000)
    held = [crawl.lease("holder", most) for _ in range(IN_FLIGHT // most)]
    yard.kill()
    rounds = points()
    assert not FULL or len(rounds) >= ROUNDS
    mistakes = yard.mistakes
    with Running(*works_of(crawl, mender)) as running:
        for point in rounds:
            began = time.monotonic()
            seconds = yard.start_serving(crawl.frontier, FAILPOINTS=point)
            process = yard.daemons.processes[DAEMON]
            if process.poll() is None:
                measured(back_s=seconds)
            while process.poll() is None:
                running.check()
                late = time.monotonic() - began > PATIENCE_SECONDS
                assert not late, f"{point} is never hit\n{yard.logs()}"
                time.sleep(0.02)
            yard.until_killed()
            running.check()
        seconds = yard.start_serving(crawl.frontier)
    for taken in held:
        crawl.finish("holder", taken)
    crawl.crawl_all()
    books = yard.books(crawl.frontier)
    yard.books(mender.frontier)
    assert (books.pending, books.leased) == (0, 0)
    assert sum(len(one.seeds) for one in held) == IN_FLIGHT
    yard.stop()
    crawl.check(measured, seconds)
    assert books.expired == 0
    assert crawl.repeats() == 0
    assert yard.mistakes == mistakes


def works_of(crawl: Crawl, mender: Mender) -> tuple[Callable[[], object], ...]:
    """What passes every failpoint, round and round."""
    return (
        partial(crawl.crawl, "one"),
        partial(crawl.crawl, "two"),
        partial(crawl.add, MORE // 10),
        mender.work,
    )


def settle(yard: SeedYard, crawl: Crawl, measured: Measured) -> None:
    """All seeds come to their end, and each to one."""
    crawl.crawl_all()
    books = yard.books(crawl.frontier)
    yard.stop()
    crawl.check(measured)
    assert (books.pending, books.leased, books.expired) == (0, 0, 0)
    assert crawl.repeats() == 0


@pytest.mark.long("killed there each of them is tried")
def test_an_exception_at_each_failpoint_costs_a_call_and_no_seed(
    yard: SeedYard, measured: Measured
) -> None:
    crawl, mender = Crawl(yard, yard.frontier()), Mender(yard, yard.frontier())
    mistakes = yard.mistakes
    points = [point.replace("=kill", "=raise") for point in (*OF_STORES, *of_daemon())]
    yard.start_serving(crawl.frontier, FAILPOINTS=",".join(points))
    left = {point.partition("=")[0] for point in points}
    with Running(*works_of(crawl, mender)) as running:

        def are_tried() -> bool:
            running.check()
            said = yard.daemons.log(DAEMON)
            left.difference_update({one for one in left if f"FailpointError: {one}" in said})
            return not left

        yard.until(are_tried, "an exception at each of them", left=left)
    settle(yard, crawl, measured)
    assert 0 < yard.mistakes - mistakes <= 2 * len(points)


@pytest.mark.long("killed there each of them is tried")
def test_frozen_at_each_failpoint_it_loses_no_seed_and_no_lease(
    yard: SeedYard, measured: Measured
) -> None:
    """Leases of 8 s, which are over when it wakes from a long sleep."""
    crawl, mender = Crawl(yard, yard.frontier(lease_seconds=8)), Mender(yard, yard.frontier())
    points = dict.fromkeys(point.partition("=")[0] for point in (*OF_STORES, *of_daemon()))
    # In one process one after the other; long where its locks and leases are at stake.
    stops = [f"{one}=stop:{12 if one in LONG_STOPS else 3}@{FROZEN_AT}" for one in points]
    # Not before somebody looks: the first calls pass some of them.
    yard.start(FAILPOINTS=",".join(stops))
    left = set(points)
    with Running(*works_of(crawl, mender)) as running:

        def are_tried() -> bool:
            running.check()
            left.difference_update(yard.frozen_at())
            return not left

        yard.until(are_tried, "it stands still at each of them", 300.0, left)
        yard.until(lambda: not yard.frozen_at(), "it wakes")
        back_s = crawl.until_back(time.monotonic())
    measured(back_s=back_s)
    settle(yard, crawl, measured)


def test_killed_while_it_saves_its_filters_it_builds_them_again(yard: SeedYard) -> None:
    if yard.store_url.startswith("postgresql"):
        pytest.skip("filters of processes on PostgreSQL are not saved")
    crawl = Crawl(yard, yard.frontier())
    yard.start_serving(crawl.frontier, FAILPOINTS=f"{SAVED}=kill")
    crawl.add(1000)
    yard.daemons.processes[DAEMON].send_signal(signal.SIGTERM)
    yard.until_killed()
    yard.start_serving(crawl.frontier)
    crawl.add(10)
    crawl.crawl_all()
    yard.stop()
    crawl.check()
