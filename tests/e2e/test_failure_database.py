"""The database's server stops, crashes or only reads while everything is at work, and comes back.

Web, center, runner, statistics, an agent with a run, worker, beat, router and seed service stand on
one PostgreSQL server, which is a test's own.
"""

from __future__ import annotations

import itertools
import json
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import pytest

from tests.crawlyard.test_celery import account
from tests.e2e.accounting import check_complete, reference
from tests.e2e.cluster import Cluster
from tests.e2e.counting_site import CountingSite, tree
from tests.e2e.demo_process import free_port
from tests.e2e.installation import MAKE_ADMIN
from tests.e2e.postgres_node import PostgresNode, lend_postgres_node
from tests.e2e.rest import send
from tests.plugins.measurements import Measured
from tests.plugins.stores import lend_rabbit_vhost
from tests.routing.faults.harness import RouterHarness, Traffic
from tests.seeds.faults.crawl import Crawl, Running
from tests.seeds.faults.service_processes import SeedYard

pytestmark = [
    pytest.mark.services,
    pytest.mark.fault,
    pytest.mark.timeout(1500),
    pytest.mark.long("connections are ended, and a server that lets nobody in, each daemon alone"),
]

AWAY_SECONDS = 12.0
PAGES = 300
ITEMS = 2000
SEEDS = 5000
# Generous, because it only bounds a failing test.
PATIENCE_SECONDS = 240.0
BREAKS: dict[str, tuple[Callable[[PostgresNode], None], Callable[[PostgresNode], None]]] = {
    "stopped": (PostgresNode.stop, PostgresNode.start),
    "crashed": (lambda node: node.stop("immediate"), PostgresNode.start),
    "only-reads": (lambda node: node.only_read(on=True), lambda node: node.only_read(on=False)),
}


@dataclass
class Place:
    """All that stands on the server."""

    node: PostgresNode
    cluster: Cluster
    routing: RouterHarness
    seeds: SeedYard
    address: str
    token: str

    def check_alive(self) -> None:
        """No daemon has ended."""
        for daemons in (self.cluster.daemons, self.routing.daemons, self.seeds.daemons):
            for name, process in daemons.processes.items():
                assert process.poll() is None, (name, daemons.log(name)[-3000:])


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, redis_url: str) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("database")
    port = free_port()
    with ExitStack() as stack:
        node = stack.enter_context(lend_postgres_node())
        broker = stack.enter_context(lend_rabbit_vhost())
        cluster = Cluster(
            folder / "cluster", DATABASE_URL=node.url, BROKER_URL=broker, REDIS_URL=redis_url
        )
        stack.callback(cluster.end)
        cluster.start()
        cluster.daemons.start("worker", "run_worker", "--concurrency", "1")
        cluster.daemons.start("beat", "run_beat")
        cluster.daemons.start("web", "run_web", "--port", str(port))
        made = cluster.daemons.manage("shell", "-v0", "-c", MAKE_ADMIN)
        routing = stack.enter_context(
            closing(RouterHarness(folder / "routing", node.url, broker, redis_url))
        )
        seeds = stack.enter_context(
            closing(
                SeedYard(folder / "seeds", store_url=node.url, broker_url=broker, database=node.url)
            )
        )
        seeds.start()
        cluster.daemons.until_logged("web", "Uvicorn running")
        cluster.daemons.until_logged("beat", "is running")
        yield Place(
            node, cluster, routing, seeds, f"http://127.0.0.1:{port}", json.loads(made.stdout)
        )


@dataclass
class Posts:
    """Somebody makes projects over REST, one after the other; what was answered."""

    place: Place
    made: list[str] = field(default_factory=list)
    refused: int = 0
    wrong: list[str] = field(default_factory=list)
    slowest_s: float = 0.0
    _stop: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> Posts:
        self._name = secrets.token_hex(4)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        for number in itertools.count():
            if self._stop.wait(0.2):
                return
            slug = f"p{self._name}-{number}"
            began = time.monotonic()
            status, headers, said = send(
                f"{self.place.address}/api/v1/projects",
                method="POST",
                body=json.dumps({"slug": slug, "name": slug}).encode(),
                headers={
                    "Authorization": f"Bearer {self.place.token}",
                    "Content-Type": "application/json",
                },
            )
            self.slowest_s = max(self.slowest_s, time.monotonic() - began)
            if status == 201:
                self.made.append(slug)
            elif status == 503 and "retry-after" in {name.lower() for name in headers}:
                self.refused += 1
            else:
                self.wrong.append(f"{status} {said[:300]!r}")


@contextmanager
def broken(node: PostgresNode, how: str) -> Iterator[None]:
    """For the block; whatever happens in it, spiders that ask on need the server afterwards."""
    go, come_back = BREAKS[how]
    go(node)
    try:
        yield
    finally:
        come_back(node)


@dataclass
class Back:
    """When each part has gone on, in seconds since it could."""

    parts: dict[str, Callable[[], bool]]
    seconds: dict[str, float] = field(default_factory=dict)

    def wait(self, explain: Callable[[], str]) -> None:
        began = time.monotonic()
        while self.parts:
            for name in [name for name, has_gone_on in self.parts.items() if has_gone_on()]:
                del self.parts[name]
                self.seconds[name] = time.monotonic() - began
            late = time.monotonic() > began + PATIENCE_SECONDS
            assert not late, f"do not go on: {sorted(self.parts)}\n{explain()}"
            time.sleep(0.05)


@pytest.mark.covers("S1.46", "S1.48", "S1.13", "S3.15")
@pytest.mark.parametrize("how", BREAKS)
def test_a_database_that_goes_and_comes_back_costs_nothing(
    place: Place, how: str, measured: Measured
) -> None:
    cluster, node = place.cluster, place.node
    traffic = place.routing.project()
    router = traffic.start()
    crawl = Crawl(place.seeds, place.seeds.frontier())
    crawl.add(SEEDS)
    cluster.agents(1)
    spiders = (partial(crawl.crawl, "one", 50), partial(crawl.crawl, "two", 50))
    with CountingSite(tree(PAGES)) as site, Running(*spiders) as running, Posts(place) as posts:
        expected = reference(site, delay_seconds=0.1)
        run = cluster.crawl(site.url)
        traffic.publish(range(ITEMS // 2))
        cluster.until(lambda: cluster.look(run)["books"]["success"] > 20, "pages")
        cluster.until(lambda: traffic.count() > 0 and posts.made, "items and projects", 120)
        made_at = datetime.fromisoformat(cluster.ask("plan", name=f"job {how}"))
        with broken(node, how):
            cluster.until(lambda: posts.refused > 0, "the web says so", PATIENCE_SECONDS)
            traffic.publish(range(ITEMS // 2, ITEMS))
            # The fault itself: longer than leases of leaders, and than first pauses.
            time.sleep(AWAY_SECONDS)
            place.check_alive()
            before, pages = len(posts.made), len(site.hits)
            sent, ended = traffic.count(), len(crawl.ended)
        back = Back(
            {
                "web": lambda: len(posts.made) > before,
                "run": lambda: len(site.hits) > pages or cluster.look(run)["ended"],
                "router": lambda: traffic.count() > sent or traffic.settled(ITEMS),
                "seeds": lambda: len(crawl.ended) > ended or crawl.ended >= crawl.added,
                "worker": lambda: bool(cluster.ask("planned", name=f"job {how}")["times"]),
            }
        )
        back.wait(lambda: cluster.logs() + place.routing.logs() + place.seeds.logs())
        running.check()
        end = check_complete(cluster, run, site, expected)
    told = ", ".join(f"{name} {seconds:.1f}" for name, seconds in back.seconds.items())
    note = f"{how}: goes on after s: {told}; slowest answer of the web {posts.slowest_s:.1f} s"
    measured(**end["figures"], note=note)
    for seconds in back.seconds.values():
        measured(back_s=seconds)
    check_posts(place, posts, measured)
    check_items(traffic, router, measured)
    place.seeds.until(crawl.crawl_all, "every seed has ended")
    crawl.check(measured)
    assert crawl.repeats() == 0
    check_planned(cluster, f"job {how}", made_at, measured)
    place.check_alive()


def check_posts(place: Place, posts: Posts, measured: Measured) -> None:
    """What was answered 201 is there, and everything else was a 503 that says when to come back."""
    lost = {*posts.made} - {*place.cluster.ask("slugs")}
    measured(of=len(posts.made), lost=len(lost))
    assert not posts.wrong, posts.wrong[:5]
    assert not lost


def check_items(traffic: Traffic, router: str, measured: Measured) -> None:
    """What was in hand comes again when its lease is over."""
    traffic.until_settled(ITEMS, PATIENCE_SECONDS)
    traffic.check(ITEMS, measured=measured)
    traffic.stop(router)
    assert traffic.yard.broker.depth(traffic.queue).ready == 0


def check_planned(cluster: Cluster, name: str, made_at: datetime, measured: Measured) -> None:
    """Each minute once, and a run for each of those that were started."""
    found = cluster.until(
        lambda: is_planned(cluster.ask("planned", name=name), made_at),
        "all that was due is planned, and started",
        PATIENCE_SECONDS,
    )
    times = [datetime.fromisoformat(each) for each in found["times"]]
    counted = account(made_at, datetime.fromisoformat(found["through"]), times)
    measured(**counted)
    assert (counted["lost"], counted["twice"]) == (0, 0), found


def is_planned(found: dict[str, Any], made_at: datetime) -> dict[str, Any] | None:
    through = found["through"]
    is_done = through and datetime.fromisoformat(through) >= made_at - timedelta(minutes=1)
    return found if is_done and found["runs"] == found["with_runs"] > 0 else None
