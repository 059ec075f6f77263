"""SIGKILL of producers, fetchers and Redis at every step: nothing is lost, nothing is there twice.

Each request that the store has accepted is processed in the end, has its records, and has them
once: rows by a primary key, lines by looking.
"""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.daemon_processes import ROOT, is_frozen
from tests.plugins.measurements import Measured
from tests.plugins.stores import lend_postgres_database
from tests.requeststore.daemon.fetcher_processes import Clerk, Plant
from tests.requeststore.daemon.pages_site import Site
from tests.requeststore.redis_own import OwnRedis

FULL = os.environ.get("CRAWLYARD_FAULTS") == "full"
pytestmark = [pytest.mark.fault, pytest.mark.services, pytest.mark.timeout(3000 if FULL else 300)]

# At which hit: the first ones are those of the first requests.
POINTS = {
    "fetcher.popped": 2,
    "fetcher.taken": 3,
    "fetcher.downloaded": 40,
    "fetcher.recorded": 2,
    "fetcher.finished": 2,
    "fetcher.settled": 3,
}
OF_PRODUCERS = ["requests.after_insert=kill@2", "requests.after_push=kill@2"]
# Where time is short, each store sees every second one.
SEEN = {"embedded": slice(0, None, 2), "postgresql": slice(1, None, 2)}
# One for each kill of a fetcher and of a producer, and one for that of Redis: 50,000 in all.
CHUNK = 50_000 // (len(POINTS) + len(OF_PRODUCERS) + 1) if FULL else 300
AT_ONCE = min(CHUNK, 1000)
BIZZES: dict[str, dict[str, Any]] = {
    "rows": {"take_seconds": 60},
    "lines": {"take_seconds": 60, "records": {"to": "json_lines"}},
}
# Another may have what is taken before one that stands still for 3 s wakes.
SHORT: dict[str, Any] = {"take_seconds": 2, "max_tries": 50, "retry_seconds": 1}
SHORT["fetch"] = {"timeout_seconds": 1}
FEW = 100
# One of taking and one of ending at a time: of failures of one of them in a row the first is told.
RAISED = [
    ("fetcher.popped", "fetcher.recorded"),
    ("fetcher.taken", "fetcher.finished"),
    ("fetcher.downloaded", "fetcher.settled"),
]
# Beyond every deadline, and beyond what a queue is given to come back with an entry.
LATER_SECONDS = 700


@pytest.fixture(params=[pytest.param("embedded", marks=pytest.mark.twin), "postgresql"])
def plant(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Plant, OwnRedis, str]]:
    """With a Redis of its own for the queues; everything else is embedded, or in PostgreSQL."""
    with ExitStack() as stack:
        server = OwnRedis(tmp_path)
        stack.callback(server.kill)
        environment = {"REDIS_URL": server.url}
        if request.param == "postgresql":
            url = stack.enter_context(lend_postgres_database())
            environment |= {"DATABASE_URL": url, "REQUESTS_URL": url}
        made = stack.enter_context(closing(Plant(tmp_path / "plant", **environment)))
        made.save(**BIZZES)
        yield made, server, request.param


class Producer:
    """What the store has answered for; the clerk that it asks may die in any call."""

    def __init__(self, plant: Plant, site: Site) -> None:
        self.plant = plant
        self.site = site
        self.promised: dict[str, set[str]] = {biz: set() for biz in BIZZES}

    def submit(self, clerk: Clerk, biz: str, count: int) -> None:
        """In calls of a size."""
        for start in range(0, count, AT_ONCE):
            pages = range(start, min(start + AT_ONCE, count))
            requests = [{"url": f"{self.site.url}/p/{page}", "rule": "page"} for page in pages]
            ids = clerk.ask("submit", number=self.plant.project, biz=biz, requests=requests)
            self.promised[biz].update(ids)

    def submit_half(self, clerk: Clerk, count: int = CHUNK) -> None:
        for biz in BIZZES:
            self.submit(clerk, biz, count // 2)


def test_every_failpoint_is_tried() -> None:
    found = {
        name
        for path in (ROOT / "apps" / "requeststore" / "daemon").rglob("*.py")
        for name in re.findall(r'failpoints\.hit\("([a-z_.]+)"\)', path.read_text("utf-8"))
    }
    assert found == set(POINTS)


@pytest.mark.covers("S4.18", "S4.21", "S4.22", "S4.23")
def test_nothing_is_lost_or_recorded_twice_whoever_dies(
    plant: tuple[Plant, OwnRedis, str], site: Site, measured: Measured
) -> None:
    made, server, store = plant
    producer = Producer(made, site)
    points = list(POINTS.items())[slice(None) if FULL else SEEN[store]]
    for name, hit in points:
        producer.submit_half(made.clerk)
        made.start(FAILPOINTS=f"{name}=kill@{hit}")
        made.until_killed()
    for failpoint in OF_PRODUCERS:
        clerk = Clerk(made.daemons, FAILPOINTS=failpoint)
        with closing(clerk), pytest.raises(BrokenPipeError):
            producer.submit_half(clerk)
    measured(back_s=kill_redis(made, server, producer))

    for biz in BIZZES:
        made.until(lambda biz=biz: all_queued(made, biz), "what nobody has is queued")  # type: ignore[misc]  # bound now
    stored = {biz: sum(made.flags(biz).values()) for biz in BIZZES}
    began, before = time.monotonic(), processed(made)
    made.start("last")
    made.until(lambda: processed(made) > before, "the last one goes on")
    measured(back_s=time.monotonic() - began)
    for biz, count in stored.items():
        made.until_flags(biz, {1: count}, seconds=60 + count / 50)
    made.stop("last")
    # All but those whose producer has died before it could store them.
    assert sum(stored.values()) > CHUNK * (len(points) + 1)
    check(made, producer, measured)


@pytest.mark.long("SIGKILL there, and one frozen with a page in hand")
@pytest.mark.covers("S4.21", "S4.22")
def test_a_fetcher_frozen_in_any_window_beside_another_does_nothing_twice(
    plant: tuple[Plant, OwnRedis, str], site: Site, measured: Measured
) -> None:
    made, producer = plant[0], Producer(plant[0], site)
    made.save(**{biz: {**fields, **SHORT} for biz, fields in BIZZES.items()})
    made.start("other")
    for name in POINTS:
        process = made.start("frozen", FAILPOINTS=f"{name}=stop:3@1")
        made.daemons.until_logged("frozen", "serving p")

        def gets_some(process: subprocess.Popen[bytes] = process) -> bool:
            producer.submit_half(made.clerk, FEW)
            return is_frozen(process)

        made.until(gets_some, f"it stands still: {name}")
        made.until(lambda: all_processed(made, producer), "both process all of them", 120)
        made.until(lambda process=process: not is_frozen(process), "it wakes")  # type: ignore[misc]  # bound now
        made.stop("frozen")
    made.stop("other")
    check(made, producer, measured)


@pytest.mark.long("SIGKILL there")
@pytest.mark.covers("S4.21", "S4.22")
def test_an_exception_in_every_window_ends_no_fetcher(
    plant: tuple[Plant, OwnRedis, str], site: Site, measured: Measured
) -> None:
    """It lives on and keeps nothing in hand."""
    made, producer = plant[0], Producer(plant[0], site)
    made.save(**{biz: {**fields, **SHORT} for biz, fields in BIZZES.items()})
    for names in RAISED:
        producer.submit_half(made.clerk, 3 * FEW)
        made.start("tried", FAILPOINTS=",".join(f"{name}=raise@{POINTS[name]}" for name in names))
        made.until(lambda: all_processed(made, producer), "it processes all of them", 120)
        made.until(lambda: in_hand(made, "tried") == 0, "nothing is in its hands")
        for name in names:
            assert f"FailpointError: {name}" in made.daemons.log("tried"), name
        made.stop("tried")
    check(made, producer, measured)


def all_processed(made: Plant, producer: Producer) -> bool:
    made.ask("sweep")
    return all(made.flags(biz) == {"1": len(ids)} for biz, ids in producer.promised.items())


def in_hand(made: Plant, name: str) -> int:
    return sum(each["in_hand"] for each in made.detail(name)["bizzes"].values())


def processed(made: Plant) -> int:
    return sum(made.flags(biz).get("1", 0) for biz in BIZZES)


def all_queued(made: Plant, biz: str) -> bool:
    """After another sweep: one does a bounded amount of work."""
    made.ask("sweep", later_seconds=LATER_SECONDS)
    flags = made.flags(biz)
    return "-1" not in flags and (made.waiting(biz)[0] or 0) >= flags.get("0", 0)


def kill_redis(made: Plant, server: OwnRedis, producer: Producer) -> float:
    """It comes back empty, under a fetcher that lives on; after so many seconds it takes one."""
    made.start("living")
    made.until(lambda: made.detail("living").get("bizzes"), "it serves")
    producer.submit_half(made.clerk)
    server.kill()
    made.until(lambda: made.detail("living").get("away"), "it is told that the queue is away")
    hits = producer.site.hits
    pages, began = hits.total(), time.monotonic()
    server.start()

    def fetches() -> bool:
        # What comes before the server is up is stored, and queued by the upkeep.
        producer.submit(made.clerk, "rows", 1)
        return hits.total() > pages

    made.until(fetches, "it fetches")
    back = time.monotonic() - began
    made.until(lambda: not made.detail("living").get("away"), "it goes on")
    made.stop("living")
    return back


def check(made: Plant, producer: Producer, measured: Measured) -> None:
    """Each request once in each place."""
    recorded = {biz: made.recorded(biz) for biz in BIZZES}
    for biz, found in recorded.items():
        ids = set(made.ask("page_ids", number=made.project, biz=biz))
        lost = (ids | producer.promised[biz]) - (ids & set(found))
        twice = len(found) - len(set(found))
        measured(of=len(ids | producer.promised[biz]), lost=len(lost), twice=twice)
        assert not twice, (biz, twice)
        assert set(found) == ids, (biz, len(found), len(ids))
        assert producer.promised[biz] <= ids, (biz, len(producer.promised[biz] - ids))
