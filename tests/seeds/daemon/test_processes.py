"""run_seeds as a process: killed where it hurts, stopped, started twice, and told of changes."""

from __future__ import annotations

import os
import signal
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import msgspec
import psycopg
import pytest

from apps.seeds.stores.base import Segment
from apps.seeds.stores.operations import ShowSegments
from tests.e2e.daemon_processes import Daemons
from tests.seeds.daemon.call_helpers import Later, ask, ended, keys, seeds
from yardkit.broker import Broker, connect
from yardkit.protocol import FinishSeeds, SeedsFinished
from yardkit.seeds import SeedClient
from yardkit.tokens import frontier_scope, manage_scope, sign_scope

pytestmark = [pytest.mark.slow("seed services as processes"), pytest.mark.timeout(240)]

FULL = os.environ.get("CRAWLYARD_FAULTS") == "full"
SECRET = "only for this test, and long enough for Django"
MAKE = """
from apps.projects.models import Project
from apps.seeds.models import Frontier
project = Project.objects.create(name="news", slug="news")
print(Frontier.objects.create(project=project, name="news").pk)
"""


class Yard:
    """Processes, and a spider's client that asks as long as it takes."""

    def __init__(self, daemons: Daemons, broker: Broker, frontier: int) -> None:
        self.daemons = daemons
        self.broker = broker
        self.frontier = frontier
        self.token = sign_scope(SECRET, frontier_scope(frontier))
        self.client = SeedClient(
            broker, frontier, self.token, owner="w1", timeout=5.0, patience=120.0
        )
        scope = sign_scope(SECRET, manage_scope(frontier))
        self.manager = SeedClient(broker, frontier, scope, timeout=5.0, patience=120.0)

    def start(self, **environment: str) -> None:
        self.daemons.start("seeds", "run_seeds", **environment)

    def segments(self) -> list[Segment]:
        show = msgspec.Raw(msgspec.msgpack.encode(ShowSegments()))
        found = msgspec.msgpack.decode(self.manager.manage(show), type=list[Segment])
        assert all(one.books.balance() for one in found), found
        return found

    def work(self) -> list[str]:
        """Lease and finish until nothing is left; the keys in order."""
        done: list[str] = []
        while True:
            lease = self.client.lease(100)
            if not lease.seeds:
                return done
            answer = self.client.finish(ended(lease))
            codes = {one.code for one in answer.answers}
            assert codes <= {"finished", "repeated"}, codes
            done += keys(lease)


@pytest.fixture(
    params=[
        pytest.param("embedded", marks=pytest.mark.twin),
        pytest.param("services", marks=pytest.mark.services),
    ]
)
def yard(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Yard]:
    environment = {"BROKER_URL": f"sqlite:///{tmp_path / 'broker.sqlite3'}", "SECRET_KEY": SECRET}
    if request.param == "services":
        database = request.getfixturevalue("postgres_database")
        with psycopg.connect(database, autocommit=True) as connection:
            connection.execute("DROP SCHEMA IF EXISTS crawlyard_seeds CASCADE")
        environment |= {
            "DATABASE_URL": database,
            "SEEDS_URL": database,
            "BROKER_URL": request.getfixturevalue("new_rabbit_vhost"),
        }
    daemons = Daemons(tmp_path, **environment)
    daemons.migrate()
    frontier = int(daemons.manage("shell", "-v0", "-c", MAKE).stdout.split()[-1])
    broker = connect(environment["BROKER_URL"], name="asker")
    yield Yard(daemons, broker, frontier)
    broker.close()
    daemons.end()


embedded = pytest.mark.parametrize("yard", ["embedded"], indirect=True)


@pytest.mark.covers("S3.15", "S3.16")
@pytest.mark.fault
def test_a_killed_service_loses_nothing(yard: Yard) -> None:
    yard.start()
    names = [f"https://shop.example/{number}" for number in range(3000)]
    assert {one.code for one in yard.client.add(seeds(*names))} == {"new"}
    lease = yard.client.lease(500)
    assert yard.daemons.stop("seeds", signal.SIGKILL)[0] == -signal.SIGKILL
    yard.start()
    done = yard.client.finish(ended(lease))
    assert {one.code for one in done.answers} == {"finished"}
    assert keys(lease) + yard.work() == names
    (segment,) = yard.segments()
    assert (segment.books.succeeded, segment.books.added, segment.books.retried) == (3000, 3000, 0)


STEPS = ["add", "lease", "finish"]
POINTS = ["seeds.daemon.taken", "seeds.daemon.committed", "seeds.daemon.replied"]
KILLS = [
    *((point, at) for point in POINTS for at in (1, 2, 3)),
    ("seeds.daemon.acknowledged", 1),
    ("seeds.daemon.before_found", 1),
]
SOME = [("seeds.daemon.committed", at) for at in (1, 2, 3)] + [("seeds.daemon.before_found", 1)]


@pytest.mark.covers("S3.15", "S3.16", "S3.17")
@pytest.mark.fault
@embedded
@pytest.mark.parametrize(
    ("point", "at"), KILLS if FULL else SOME, ids=lambda value: str(value).rpartition(".")[2]
)
def test_killed_at_a_step_each_seed_ends_once(yard: Yard, point: str, at: int) -> None:
    yard.start(FAILPOINTS=f"{point}=kill@{at}")

    def spider() -> list[str]:
        told = yard.client.add(seeds("a", "b", "c"))
        assert {one.code for one in told} <= {"new", "duplicate"}
        lease = yard.client.lease(2)
        call = FinishSeeds(
            frontier=yard.frontier,
            token=yard.token,
            owner="w1",
            finishes=ended(lease),
            found=seeds("d"),
        )
        answer = _ask_until_answered(yard.broker, call)
        assert {one.code for one in answer.answers} <= {"finished", "repeated"}
        return keys(lease) + yard.work()

    later = Later(spider)
    assert yard.daemons.processes.pop("seeds").wait(60) == -signal.SIGKILL, "it was not killed"
    yard.start()
    assert later.answer() == ["a", "b", "c", "d"]
    (segment,) = yard.segments()
    assert (segment.books.added, segment.books.succeeded) == (4, 4)
    # No lease was given to nobody: nothing had to run out.
    assert (segment.books.retried, segment.books.expired) == (0, 0)


def _ask_until_answered(broker: Broker, call: FinishSeeds) -> SeedsFinished:
    deadline = time.monotonic() + 120
    while True:
        try:
            answer = ask(broker, call, timeout=5.0)
        except TimeoutError:
            assert time.monotonic() < deadline
        else:
            assert isinstance(answer, SeedsFinished), answer
            return answer


@pytest.mark.covers("S3.18", "S3.19")
@embedded
def test_one_owns_the_folder_and_stops_in_order(yard: Yard) -> None:
    yard.start()
    yard.daemons.until_logged("seeds", "is running")
    second = yard.daemons.manage("run_seeds", status=2)
    assert "belongs to another seed service that is running" in second.stderr
    assert "Traceback" not in second.stderr
    assert "running" in yard.daemons.manage("run_seeds", "--status").stdout
    doctor = yard.daemons.manage("doctor").stdout
    row = next(line for line in doctor.splitlines() if "SEEDS_URL" in line)
    assert "in use by run_seeds" in row
    later = Later(partial(yard.client.lease, 1, wait_seconds=30))
    time.sleep(1.0)
    status, seconds = yard.daemons.stop("seeds", signal.SIGTERM)
    assert (status, seconds < 5) == (0, True), yard.daemons.log("seeds")
    assert later.answer().seeds == []
    yard.daemons.manage("run_seeds", "--status", status=1)


@embedded
def test_a_change_of_a_frontier_counts_within_a_second(yard: Yard, tmp_path: Path) -> None:
    yard.start()
    yard.client.add(seeds(*(str(number) for number in range(1000))))
    database = tmp_path / "data" / "crawlyard.sqlite3"
    with closing(sqlite3.connect(database, timeout=20, isolation_level=None)) as connection:
        connection.execute("UPDATE seeds_frontier SET is_paused = 1")
    began = time.monotonic()
    while yard.client.lease(1).seeds:
        assert time.monotonic() - began < 10
    # The machine may be busy; a second is the promise.
    assert time.monotonic() - began < (1.0 if FULL else 5.0)
