"""The seed service on a real broker, on either store, beside a web process that is the test."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.db import connections

from apps.access.states import Role
from apps.projects.models import Project
from apps.seeds.daemon import SeedDaemon
from apps.seeds.daemon.frontiers import Frontiers
from apps.seeds.models import Frontier
from apps.seeds.stores.factory import open_store
from tests.access.factories import Api, make_project, make_user
from yardkit import topology
from yardkit.broker import connect
from yardkit.clock import SystemClock


class Service:
    """The daemon in a thread. Only the test's own thread reads the database: see ``look``."""

    def __init__(self, store_url: str) -> None:
        self.clock = SystemClock()
        self.broker = connect(settings.BROKER_URL, name="seeds")
        self.daemon = SeedDaemon(
            broker=self.broker,
            clock=self.clock,
            open_store=partial(open_store, store_url),
            secret=settings.SECRET_KEY,
            shared=False,
            threads=False,
        )
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="service")

    def start(self) -> None:
        """From an empty queue."""
        self.broker.declare(topology.SEEDS)
        self.broker.purge(topology.SEEDS.name)
        self.daemon.setup()
        self.daemon.frontiers.look = lambda: None  # type: ignore[method-assign]
        self.daemon.reporter.turn = lambda store: None  # type: ignore[method-assign]
        self._thread.start()

    def stop(self) -> None:
        """Orderly."""
        self._end.set()
        self._thread.join()
        self.daemon.teardown()
        self.broker.close()

    def look(self) -> None:
        """Hear of what has changed in the database."""
        Frontiers.look(self.daemon.frontiers)

    def now(self) -> int:
        """In ms, as the service counts."""
        return int(self.clock.time() * 1000)

    def _run(self) -> None:
        try:
            while not self._end.is_set():
                self.daemon.step()
        finally:
            connections.close_all()


@pytest.fixture(
    params=[
        "rocks",
        pytest.param("postgres", marks=[pytest.mark.services, pytest.mark.slow("1 s")]),
    ]
)
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Of a store without seeds."""
    if request.param == "rocks":
        return f"rocksdb://{tmp_path}/seeds?sync=0"
    return str(request.getfixturevalue("empty_database"))


@pytest.fixture
def rocks_url(tmp_path: Path) -> str:
    """Where it does not matter which one."""
    return f"rocksdb://{tmp_path}/seeds?sync=0"


@pytest.fixture
def project(db: None) -> Project:
    return make_project(slug="ic")


@pytest.fixture
def frontier(project: Project) -> Frontier:
    """Days in UTC, whole keys."""
    return Frontier.objects.create(project=project, name="news")


def _running(store_url: str) -> Iterator[Service]:
    made = Service(store_url)
    made.start()
    yield made
    made.stop()


@pytest.fixture
def service(frontier: Frontier, rocks_url: str) -> Iterator[Service]:
    """It runs, and knows ``frontier``."""
    yield from _running(rocks_url)


@pytest.fixture
def either_service(frontier: Frontier, store_url: str) -> Iterator[Service]:
    """The same, on each store."""
    yield from _running(store_url)


class Caller(Api):
    """A REST client that speaks of one frontier."""

    def __init__(self, frontier: Frontier, role: Role = Role.ADMIN, **token: Any) -> None:
        super().__init__(make_user(roles={frontier.project: role}), **token)
        self.base = f"frontiers/{frontier.pk}"

    def ask(self, path: str, body: Any = None, status: int = 200, **headers: str) -> Any:
        """What a POST to one of its paths answers; the status must be that."""
        if isinstance(body, str):
            body = json.dumps(body)
        answer = self.post(f"{self.base}/{path}", body, **headers)
        assert answer.status_code == status, answer.content
        return answer.json()

    def show(self, path: str, status: int = 200) -> Any:
        """The same of a GET."""
        answer = self.get(f"{self.base}/{path}")
        assert answer.status_code == status, answer.content
        return answer.json()

    def raw(self, path: str, body: bytes, content_type: str = "application/json", **h: str) -> Any:
        """The response to a body as it is."""
        headers = self.headers | {name.replace("_", "-"): value for name, value in h.items()}
        return self._client.post(
            f"/api/v1/{self.base}/{path}", body, content_type=content_type, headers=headers
        )


@pytest.fixture
def caller(frontier: Frontier) -> Caller:
    return Caller(frontier)


@pytest.fixture(autouse=True)
def _audited(watched: object) -> None:
    """Whatever these tests do stands in the audit trail."""
