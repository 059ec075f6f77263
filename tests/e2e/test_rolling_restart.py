"""Two web processes behind nginx and every daemon, restarted in turn while all of it is used.

No call of REST fails, nothing is handed out twice, and all requests are accounted for. With
``CRAWLYARD_FAULTS=full`` all kinds of daemons take part and go round three times.
"""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import requests

from tests.e2e.balancer import NGINX, Balancer
from tests.e2e.counting_site import CountingSite, tree
from tests.e2e.demo_process import free_port
from tests.e2e.installation import Installation
from tests.e2e.rabbit_node import RabbitNode, lend_rabbit_node
from tests.e2e.rest import Rest
from tests.plugins.measurements import Measured
from tests.plugins.stores import lend_postgres_database

pytestmark = [
    pytest.mark.services,
    pytest.mark.fault,
    pytest.mark.long("each daemon drains by itself, tests/e2e/test_daemons.py"),
    pytest.mark.timeout(900),
    pytest.mark.skipif(NGINX is None, reason="no nginx (apt-get install nginx-light)"),
]

FULL = os.environ.get("CRAWLYARD_FAULTS") == "full"
DAEMONS = ("center", "statistics", "log_ingester", "dataset_writer", "beat")
MORE = ("router", "seeds", "collector", "fetcher", "monitor") if FULL else ()
ROUNDS = 3 if FULL else 1
AGENTS = ("agent-1", "agent-2")
WEBS = ("web", "web-2")
# Of the crawl: it must outlast one round of restarts.
SPEED = 10.0
PAGES = 2000
CLIENTS = 2
JOBS = "from apps.jobs.models import Job; print(Job.objects.count())"


class Client(threading.Thread):
    """Calls REST without a pause, over kept connections, until it is told to stop.

    Reads and writes by turns: a balancer may repeat the ones and never the others.
    """

    def __init__(self, rest: Rest, project: int, run: int) -> None:
        super().__init__(daemon=True)
        parts = urlsplit(rest.address)
        self._where = (parts.hostname or "", parts.port)
        self._headers = {**rest.headers, "Content-Type": "application/json"}
        self._project, self._run_id = project, run
        self._ending = threading.Event()
        self.answers: Counter[tuple[str, int]] = Counter()
        self.failed: list[str] = []
        self.made = 0

    def run(self) -> None:
        connection = HTTPConnection(*self._where, timeout=60)
        paths = (f"/api/v1/runs/{self._run_id}/counters", "/api/v1/jobs", "/api/v1/agents")
        number = 0
        while not self._ending.is_set():
            number += 1
            self._call(connection, "GET", paths[number % len(paths)], None, 200)
            body = {
                "project": self._project,
                "name": f"{self.name} {number}",
                "spider": "yardspider.spiders:SiteSpider",
            }
            if self._call(connection, "POST", "/api/v1/jobs", body, 201):
                self.made += 1
        connection.close()

    def stop(self) -> None:
        self._ending.set()
        self.join(60)

    def _call(
        self, connection: HTTPConnection, method: str, path: str, body: Any, expected: int
    ) -> bool:
        data = json.dumps(body) if body is not None else None
        try:
            connection.request(method, path, body=data, headers=self._headers)
            answer = connection.getresponse()
            said = answer.read()
        except (OSError, HTTPException) as error:
            self.failed.append(f"{method} {path}: {error!r}")
            connection.close()
            return False
        self.answers[method, answer.status] += 1
        if answer.status != expected:
            self.failed.append(f"{method} {path}: {answer.status} {said[:300]!r}")
        return answer.status == expected


@pytest.fixture
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RabbitNode]:
    """One whose management counts what it delivers again."""
    with lend_rabbit_node(tmp_path_factory.mktemp("counting-rabbit"), management=True) as node:
        yield node


@pytest.fixture
def yard(node: RabbitNode, redis_url: str, tmp_path: Path) -> Iterator[Installation]:
    with lend_postgres_database() as database:
        stores = {"DATABASE_URL": database, "BROKER_URL": node.url, "REDIS_URL": redis_url}
        stores |= {"SEEDS_URL": database, "REQUESTS_URL": database}
        with Installation(tmp_path / "yard", stores) as yard:
            yard.start_some("runner", *DAEMONS, *MORE, "worker", agents=len(AGENTS))
            yield yard


@pytest.fixture
def second_web(yard: Installation) -> int:
    """Its port."""
    port = free_port()
    yard.daemons.start("web-2", "run_web", "--port", str(port))
    yard.daemons.until_logged("web-2", "Uvicorn running", 90)
    return port


@pytest.fixture
def balancer(yard: Installation, second_web: int, tmp_path: Path) -> Iterator[Balancer]:
    webs = (yard.port, second_web)
    balancer = Balancer(tmp_path / "nginx", free_port(), webs, (free_port(), free_port()))
    try:
        yield balancer
    finally:
        balancer.stop()


def test_a_rolling_restart_under_load_fails_no_call(
    yard: Installation, second_web: int, balancer: Balancer, node: RabbitNode, measured: Measured
) -> None:
    starts: dict[str, tuple[str, tuple[str, ...]]] = {
        "web": ("Uvicorn running", ("run_web", "--port", str(yard.port))),
        "web-2": ("Uvicorn running", ("run_web", "--port", str(second_web))),
        "worker": ("worker@", ("run_worker",)),
    }
    for name in ("runner", *DAEMONS, *MORE):
        starts[name] = ("is running", (f"run_{name}", "--name", yard.name))
    for name in AGENTS:
        starts[name] = ("serves", ("run_agent", "--id", name, "--name", name))

    def restart(name: str) -> None:
        status, seconds = yard.daemons.stop(name, signal.SIGTERM)
        # The web ends by the signal itself, once it has ended everything else.
        assert status in (0, -signal.SIGTERM), (name, yard.explain())
        assert seconds < 5.0, (name, seconds)
        words, arguments = starts[name]
        yard.daemons.start(name, *arguments)
        yard.daemons.until_logged(name, words, 90)

    rest = yard.rest
    rest.address = balancer.address
    project = rest.make("/projects", name="Sites", slug="sites", allowed_networks=["127.0.0.0/8"])
    rest.until(yard.agents_serve, "agents")
    # It ends the runs of its host, as it must, so it has its turn while there are none.
    restart("runner")
    with CountingSite(tree(PAGES)) as site:
        job = rest.make(
            "/jobs",
            project=project["id"],
            name="a site",
            spider="yardspider.spiders:SiteSpider",
            arguments={"url": site.url},
            speed=SPEED,
        )
        run = rest.make(f"/jobs/{job['id']}/start")["id"]
        rest.until(lambda: rest.get(f"/runs/{run}/counters")["success"] > 20, "pages")
        clients = [Client(rest, project["id"], run) for _ in range(CLIENTS)]
        for client in clients:
            client.start()
        order = [*WEBS, "worker", *DAEMONS, *MORE, *AGENTS]
        for _round in range(ROUNDS):
            for name in order:
                restart(name)
        # Both of them serve again.
        before = [balancer.answered_by(port) for port in (yard.port, second_web)]
        deadline = time.monotonic() + 30
        while not all(
            balancer.answered_by(port) > count
            for port, count in zip((yard.port, second_web), before, strict=True)
        ):
            assert time.monotonic() < deadline, yard.explain()
            time.sleep(0.2)
        for client in clients:
            client.stop()
        assert rest.get(f"/runs/{run}")["state"] == "running"
        rest.act(f"/runs/{run}/stop")
        _row, books = rest.ended(run)
    failed = [each for client in clients for each in client.failed]
    made = sum(client.made for client in clients)
    counted = int(yard.daemons.manage("shell", "-v0", "-c", JOBS).stdout)
    redelivered = _redelivered(node)
    measured(
        of=sum(client.answers.total() for client in clients),
        lost=len(failed),
        twice=max(counted - made - 1, 0),
        note=f"{ROUNDS} rounds, {sum(redelivered.values())} messages delivered again",
    )
    assert failed == [], balancer.said()
    assert made > 20
    # Each answer of 201 is one job, and no call was carried out twice.
    assert counted == made + 1
    assert books["balanced"], books
    assert books["out"] == 0, books
    # Nobody was asked twice, and the broker had nothing to hand out twice.
    assert {path: count for path, count in site.hits.items() if count > 1} == {}
    assert redelivered == {}
    assert yard.tracebacks() == {}


def _redelivered(node: RabbitNode) -> dict[str, int]:
    """How many messages were delivered again, by queue."""
    time.sleep(6)  # its statistics are 5 s old
    rows = requests.get(f"{node.management_url}/api/queues", timeout=10).json()
    counts = {row["name"]: row.get("message_stats", {}).get("redeliver", 0) for row in rows}
    return {name: count for name, count in counts.items() if count}
