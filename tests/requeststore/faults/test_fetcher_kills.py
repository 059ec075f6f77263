"""SIGKILL of producers, fetchers and Redis at every step: nothing is lost, nothing is there twice.

Each request that the store has accepted is processed in the end, has its records, and has them
once: rows by a primary key, lines by looking.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.daemon_processes import ROOT
from tests.plugins.stores import lend_postgres_database
from tests.requeststore.daemon.pages_site import Site
from tests.requeststore.daemon.plant import Clerk, Plant
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


def submit(clerk: Clerk, plant: Plant, site: Site, biz: str, count: int) -> None:
    """In calls of a size; the clerk may die in any of them."""
    for start in range(0, count, AT_ONCE):
        pages = range(start, min(start + AT_ONCE, count))
        requests = [{"url": f"{site.url}/p/{page}", "rule": "page"} for page in pages]
        clerk.ask("submit", number=plant.project, biz=biz, requests=requests)


def submit_half(clerk: Clerk, plant: Plant, site: Site, count: int = CHUNK) -> None:
    for biz in BIZZES:
        submit(clerk, plant, site, biz, count // 2)


def lines(plant: Plant) -> list[str]:
    """The ids in the files, one for each line."""
    folder = plant.folder / "data" / "records" / f"p{plant.project}" / "lines"
    return [
        json.loads(line)["request_id"]
        for path in folder.glob("*.jsonl")
        for line in path.read_text().splitlines()
    ]


def test_every_failpoint_is_tried() -> None:
    found = {
        name
        for path in (ROOT / "apps" / "requeststore" / "daemon").rglob("*.py")
        for name in re.findall(r'failpoints\.hit\("([a-z_.]+)"\)', path.read_text("utf-8"))
    }
    assert found == set(POINTS)


@pytest.mark.covers("S4.18", "S4.21", "S4.22", "S4.23")
def test_nothing_is_lost_or_recorded_twice_whoever_dies(
    plant: tuple[Plant, OwnRedis, str], site: Site
) -> None:
    made, server, store = plant
    points = list(POINTS.items())[slice(None) if FULL else SEEN[store]]
    for name, hit in points:
        submit_half(made.clerk, made, site)
        made.start(FAILPOINTS=f"{name}=kill@{hit}")
        made.until_killed()
    for failpoint in OF_PRODUCERS:
        producer = Clerk(made.daemons, FAILPOINTS=failpoint)
        with closing(producer), pytest.raises(BrokenPipeError):
            submit_half(producer, made, site)
    kill_redis(made, server, site)

    for biz in BIZZES:
        made.until(lambda biz=biz: all_queued(made, biz), "what nobody has is queued")  # type: ignore[misc]  # bound now
    made.start("last")
    stored = {biz: sum(made.flags(biz).values()) for biz in BIZZES}
    for biz, count in stored.items():
        made.until_flags(biz, {1: count}, seconds=60 + count / 50)
    made.stop("last")
    # All but those whose producer has died before it could store them.
    assert sum(stored.values()) > CHUNK * (len(points) + 1)
    check(made)


def all_queued(made: Plant, biz: str) -> bool:
    """After another sweep: one does a bounded amount of work."""
    made.ask("sweep", later_seconds=LATER_SECONDS)
    flags = made.flags(biz)
    return "-1" not in flags and (made.waiting(biz)[0] or 0) >= flags.get("0", 0)


def kill_redis(made: Plant, server: OwnRedis, site: Site) -> None:
    """It comes back empty, under a fetcher that lives on."""
    made.start("living")
    made.until(lambda: made.detail("living").get("bizzes"), "it serves")
    submit_half(made.clerk, made, site)
    server.kill()
    made.until(lambda: made.detail("living").get("away"), "it is told that the queue is away")
    server.start()
    made.until(lambda: not made.detail("living").get("away"), "it goes on")
    made.stop("living")


def check(made: Plant) -> None:
    """Each request once in each place."""
    recorded = {"rows": made.recorded("rows"), "lines": lines(made)}
    for biz, found in recorded.items():
        ids = made.ask("page_ids", number=made.project, biz=biz)
        twice = [one for one, count in Counter(found).items() if count > 1]
        assert not twice, (biz, len(twice))
        assert set(found) == set(ids), (biz, len(found), len(ids))
