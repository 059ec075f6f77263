"""SIGKILL at every failpoint of the seed service and its store, with many seeds in flight."""

from __future__ import annotations

import re
import signal
import statistics
import time
from functools import partial

import pytest

from tests.e2e.daemon_processes import ROOT
from tests.seeds.faults.crawl import Crawl, Mender, Running
from tests.seeds.faults.yard import DAEMON, FULL, PATIENCE_SECONDS, SeedYard

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
    "seeds.daemon.before_found": 2,
    "seeds.daemon.forgotten": 1,
    "seeds.daemon.committed": 5,
    "seeds.daemon.replied": 5,
    "seeds.daemon.acknowledged": 5,
}
SAVED = "seeds.filter.before_rename"
# Where time is short.
FEW = ["add.after", "lease.after", "finish.before", "finish.after", "extend.after", "expire.after"]

IN_FLIGHT = 100_000 if FULL else 2000
ROUNDS = 20
# What is added in each round.
MORE = 2000 if FULL else 500


def points() -> list[str]:
    of_daemon = [f"{name}=kill@{hit}" for name, hit in OF_DAEMON.items()]
    few = [one for one in OF_STORES if any(f"seeds.{name}_" in one for name in FEW)]
    return (OF_STORES if FULL else few) + of_daemon


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
def test_no_seed_is_lost_or_ended_twice_wherever_the_service_dies(yard: SeedYard) -> None:
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
    seconds = []
    works = (
        partial(crawl.crawl, "one"),
        partial(crawl.crawl, "two"),
        partial(crawl.add, MORE // 10),
        mender.work,
    )
    with Running(*works) as running:
        for point in rounds:
            began = time.monotonic()
            seconds.append(yard.start_serving(crawl.frontier, FAILPOINTS=point))
            process = yard.daemons.processes[DAEMON]
            while process.poll() is None:
                running.check()
                late = time.monotonic() - began > PATIENCE_SECONDS
                assert not late, f"{point} is never hit\n{yard.logs()}"
                time.sleep(0.02)
            yard.until_killed()
            running.check()
        seconds.append(yard.start_serving(crawl.frontier))
    for taken in held:
        crawl.finish("holder", taken)
    crawl.crawl_all()
    books = yard.books(crawl.frontier)
    yard.books(mender.frontier)
    assert (books.pending, books.leased) == (0, 0)
    assert sum(len(one.seeds) for one in held) == IN_FLIGHT
    usual = statistics.median(seconds)
    print(f"{len(crawl.added)} seeds, {len(rounds)} kills, serving after {usual:.1f} s")
    print(f"handed out once more: {crawl.repeats()}; tries that ran out: {books.expired}")
    yard.stop()
    crawl.check()
    assert books.expired == 0
    assert crawl.repeats() == 0


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
